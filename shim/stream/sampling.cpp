#include "sampling.h"

#include "event_writer.h"
#include "sample_writer.h"
#include "thread_state.h"
#include "tracing_functions.h"

namespace tandem::shim {
namespace {

using tracing::FunctionNote;

// All under the lock of the ring, which SampleWriter holds.
tracing::FunctionNotes g_functions;
uint32_t g_sample = 0;  // the one in which the functions were reported
const shm::StatePage* g_told_in = nullptr;
uint32_t g_number = 0;  // of the last launch

// In a new sample, or for another daemon, functions are reported again.
void begin_if_new(const Channel& channel, uint32_t sample) {
  if (sample == g_sample && channel.state == g_told_in) return;
  g_sample = sample;
  g_told_in = channel.state;
  g_functions.begin_round();
}

shm::Record head(shm::RecordKind kind, bool is_cut) {
  shm::Record record{};
  record.ticks = g_clock.ticks();
  record.kind = static_cast<uint8_t>(kind);
  record.flags = is_cut ? shm::kSampleCut : uint8_t{0};
  record.thread = thread_id();
  record.stream = g_sample;
  return record;
}

const FunctionNote& tell_function(SampleWriter& writer, CUfunction function) {
  return g_functions.look_up(function, [&](const FunctionNote& note, const shm::Record& told,
                                           const uint64_t* words, const char* name) {
    shm::Record record = head(shm::RecordKind::kFunction, note.has_more);
    record.object = told.object;
    record.bytes = note.number;
    record.grid_blocks = told.grid_blocks;
    record.block_threads = told.block_threads;
    writer.put(record, words, name);
    return true;
  });
}

}  // namespace

uint32_t sample_launch(Channel& channel, const LaunchArguments& launch) {
  if (!channel.has_samples) return 0;
  SampleWriter writer(channel.state);
  if (!writer.taken()) return 0;
  begin_if_new(channel, channel.command->gate.sample.load(std::memory_order_relaxed));
  const FunctionNote& note = tell_function(writer, launch.function);
  const bool has_values = launch.parameters || launch.extra || note.count == 0;
  if (!note.is_known || !has_values) return 0;
  uint64_t words[trace::kMaxWords];
  const auto found =
      tracing::collect_parameters(note, launch.parameters, launch.extra, words, trace::kMaxWords);
  shm::Record record = head(shm::RecordKind::kParameters, found.is_cut);
  record.object = reinterpret_cast<uint64_t>(launch.function);
  record.bytes = note.number;
  record.grid_blocks = found.count;
  record.value = ++g_number;
  writer.put(record, words, nullptr);
  return g_number;
}

}  // namespace tandem::shim
