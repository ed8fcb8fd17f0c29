#include "daemon/resolve.h"

#include <unordered_map>
#include <utility>

#include "dag/parameters.h"

namespace tandem::daemon {
namespace {

using Launches = std::unordered_map<uint32_t, const SampledLaunch*>;

Launches by_number(const Sample& sample) {
  Launches found;
  for (const SampledLaunch& launch : sample.launches) found[launch.number] = &launch;
  return found;
}

// Returns null if the launch was not sampled, or the numbers belong to another sample.
const SampledLaunch* find(const Launches& launches, const Sample& sample,
                          const shm::Record& record) {
  const bool is_sampled = record.kind == static_cast<uint8_t>(shm::RecordKind::kLaunch) &&
                          (record.flags & shm::kRecordSampled);
  const auto found = is_sampled ? launches.find(shm::low_value(record)) : launches.end();
  if (found == launches.end()) return nullptr;
  const SampledLaunch& launch = *found->second;
  const bool fits = launch.thread == record.thread && launch.function != Sample::kUnknown &&
                    sample.functions[launch.function].handle == record.object;
  return fits ? &launch : nullptr;
}

ResolvedLaunch resolve(const shm::Record& record, const SampledLaunch& launch, const Sample& sample,
                       const Signatures& declared, const LiveMemory& memory) {
  const SampledFunction& function = sample.functions[launch.function];
  const dag::LaunchParameters parameters{function.layout.data(), function.layout.size(),
                                         sample.words.data() + launch.first_word, launch.word_count,
                                         launch.is_cut || function.is_cut};
  const auto found = declared.find(function.name);
  const dag::Touched touched = found == declared.end()
                                   ? dag::touched_by(parameters, function.name, memory.known())
                                   : dag::touched_by(parameters, &found->second, memory.known());
  return {&record, launch.number, touched.coverage == dag::Coverage::kAll,
          touched.coverage >= dag::Coverage::kDirect, dag::accesses_of(touched)};
}

}  // namespace

std::vector<ResolvedLaunch> resolve(const Window& window, const Sample& sample,
                                    const Signatures& declared) {
  const Launches launches = by_number(sample);
  LiveMemory memory = window.memory;
  size_t room = kMostAccesses;
  std::vector<ResolvedLaunch> found;
  for (const shm::Record& record : window.records) {
    memory.take(&record, 1, 0);
    memory.settle();
    const SampledLaunch* launch = find(launches, sample, record);
    if (!launch) continue;
    ResolvedLaunch resolved = resolve(record, *launch, sample, declared, memory);
    if (resolved.accesses.size() > room) break;
    room -= resolved.accesses.size();
    const bool is_sure = window.lost == 0 && !resolved.accesses.empty();
    resolved.is_all &= is_sure;
    resolved.is_direct &= is_sure;
    found.push_back(std::move(resolved));
  }
  return found;
}

}  // namespace tandem::daemon
