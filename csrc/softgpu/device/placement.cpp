#include "placement.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tandem::softgpu {
namespace {

// Moves up to `wanted` SMs of `from` into `chosen`, lowest index first.
void take(const SmSet& from, uint32_t wanted, SmSet* chosen) {
  const SmSet fresh = from & ~*chosen;
  const uint32_t have = count_of(*chosen);
  if (wanted <= have || fresh.none()) return;
  uint32_t missing = wanted - have;
  if (count_of(fresh) <= missing) {
    *chosen |= fresh;
    return;
  }
  for (size_t i = 0; missing > 0; ++i) {
    if (!fresh[i]) continue;
    chosen->set(i);
    --missing;
  }
}

}  // namespace

std::vector<SmSet> place_kernels(const DeviceInfo& device, const std::vector<Op*>& kernels,
                                 const std::vector<Op*>& runnable) {
  std::vector<SmSet> places(runnable.size());
  if (runnable.empty()) return places;
  const SmSet all = first_sms(device.sm_count);
  SmSet left = all;
  SmSet confined_to, held;
  for (const Op* op : kernels) {
    if (op->sms > 0) held |= op->sm_set;
  }
  for (const Op* op : runnable) {
    if (op->stream->confined) confined_to |= op->stream->sms;
  }
  std::map<const Context*, uint32_t> taken;
  for (size_t i = 0; i < runnable.size() && left.any(); ++i) {
    const Op& op = *runnable[i];
    const SmSet allowed = op.stream->confined ? op.stream->sms : all;
    const SmSet usable = left & allowed;
    const uint32_t cap = std::max(1u, (device.sm_count * op.context->sm_percent + 50) / 100);
    uint32_t& mine = taken[op.context];
    const uint32_t wanted = std::min(sm_demand(device, op.kernel), cap - std::min(cap, mine));
    SmSet& place = places[i];
    // A cooperative grid or a cluster runs side by side or not at all. The limit of its context or
    // of its set of SMs takes precedence, otherwise it would never run.
    const uint32_t least = std::min({op.kernel.least_sms, cap, count_of(allowed)});
    if (count_of(usable) < least || wanted < std::min(least, sm_demand(device, op.kernel)))
      continue;
    take(usable & op.sm_set, wanted, &place);
    take(usable & ~held & ~confined_to, wanted, &place);
    take(usable & ~held, wanted, &place);
    take(usable, wanted, &place);
    mine += count_of(place);
    left &= ~place;
  }
  return places;
}

}  // namespace tandem::softgpu
