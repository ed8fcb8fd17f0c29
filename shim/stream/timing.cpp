#include "timing.h"

#include <atomic>

#include "channel.h"
#include "driver.h"
#include "relaxed.h"
#include "slots.h"
#include "streams.h"
#include "wait.h"

namespace tandem::shim {

enum class PairState : uint32_t { kFree, kTaken, kPending };

// `state` decides who owns the rest: while kTaken a launching thread or the helper, else nobody.
struct TimingPair {
  std::atomic<PairState> state;
  std::atomic<uint64_t> context;  // of the events; 0 = none created yet
  std::atomic<uint32_t> device;
  uint64_t home;  // as in the stream's slot
  CUevent begin, end;
  Duration* duration;
  uint32_t age;  // of the duration, read before the launch, which may move its stream to other SMs
};

namespace {

constexpr uint32_t kPairs = 64;  // as many as HeldTimings has bits
constexpr uint64_t kHoldNs = 10'000'000;
TimingPair g_pairs[kPairs];

bool take(TimingPair& pair, PairState from) {
  if (pair.state.load(std::memory_order_relaxed) != from) return false;  // saves a locked operation
  // Acquire: pairs with the release of the thread that set `from`.
  return pair.state.compare_exchange_strong(from, PairState::kTaken, std::memory_order_acquire);
}

void set(TimingPair& pair, PairState state) { pair.state.store(state, std::memory_order_release); }

bool make_events(TimingPair& pair, const TimedIn& where) {
  if (pair.context.load(std::memory_order_relaxed) == where.context) return true;
  if (g_driver.cuEventCreate(&pair.begin, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return false;
  if (g_driver.cuEventCreate(&pair.end, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
    if (g_driver.cuEventDestroy_v2) g_driver.cuEventDestroy_v2(pair.begin);
    return false;
  }
  pair.home = where.home;
  pair.device.store(where.device, std::memory_order_relaxed);
  pair.context.store(where.context, std::memory_order_relaxed);
  return true;
}

bool record(CUevent event, CUstream handle) {
  const partition::Stream stream(handle, partition::How::kHold);
  return g_driver.cuEventRecord(event, stream.real()) == CUDA_SUCCESS;
}

TimingPair* take_of(TimingPair& pair, uint64_t context) {
  if (pair.context.load(std::memory_order_relaxed) != context || !take(pair, PairState::kFree))
    return nullptr;
  if (pair.context.load(std::memory_order_relaxed) == context) return &pair;
  set(pair, PairState::kFree);
  return nullptr;
}

// A pair of this context, else one without events. Pairs stay with their context, so each context
// leaves later ones as many pairs as it has itself.
TimingPair* take_pair(uint64_t context) {
  uint32_t own = 0, unused = 0;
  for (TimingPair& pair : g_pairs) {
    if (TimingPair* taken = take_of(pair, context)) return taken;
    const uint64_t its_context = pair.context.load(std::memory_order_relaxed);
    own += its_context == context ? 1 : 0;
    unused += its_context == 0 ? 1 : 0;
  }
  if (own >= unused) return nullptr;
  for (TimingPair& pair : g_pairs) {
    if (TimingPair* taken = take_of(pair, 0)) return taken;
  }
  return nullptr;
}

bool is_of(const TimingPair& pair, uint64_t context, int device) {
  return goes_with(context, device, pair.context.load(std::memory_order_relaxed),
                   pair.device.load(std::memory_order_relaxed));
}

}  // namespace

TimingPair* begin_timing(const TimedIn& where, CUstream stream, Duration* duration) {
  if (where.context == 0 || !g_driver.cuEventCreate || !g_driver.cuEventElapsedTime) return nullptr;
  TimingPair* pair = take_pair(where.context);
  if (!pair) return nullptr;
  duration->note_begun();  // what the driver refuses is then not tried again at every launch
  pair->duration = duration;
  pair->age = duration->age.load(std::memory_order_relaxed);
  const RelaxedCapture relaxed;
  if (make_events(*pair, where) && record(pair->begin, stream)) return pair;
  set(*pair, PairState::kFree);
  return nullptr;
}

void end_timing(TimingPair* pair, CUstream stream, bool taken) {
  const RelaxedCapture relaxed;
  const bool complete = taken && record(pair->end, stream);
  set(*pair, complete ? PairState::kPending : PairState::kFree);
}

bool collect_timings() {
  bool outstanding = false;
  for (TimingPair& pair : g_pairs) {
    if (!take(pair, PairState::kPending)) continue;
    make_current(pair.home);
    if (g_driver.cuEventQuery(pair.end) == CUDA_ERROR_NOT_READY) {
      outstanding = true;
      set(pair, PairState::kPending);
      continue;
    }
    float ms = 0;
    if (g_driver.cuEventElapsedTime(&ms, pair.begin, pair.end) == CUDA_SUCCESS && ms >= 0)
      DurationTable::measured(*pair.duration, static_cast<uint64_t>(ms * 1e6f), pair.age);
    set(pair, PairState::kFree);
  }
  return outstanding;
}

HeldTimings hold_timings(uint64_t context, int device) {
  HeldTimings held;
  const uint64_t start = monotonic_ns();
  for (uint32_t i = 0; i < kPairs; ++i) {
    const uint64_t bit = uint64_t{1} << i;
    while (is_of(g_pairs[i], context, device)) {
      if (take(g_pairs[i], PairState::kFree)) held.free |= bit;
      else if (take(g_pairs[i], PairState::kPending)) held.pending |= bit;
      if ((held.free | held.pending) & bit || monotonic_ns() - start > kHoldNs) break;
      cpu_pause();
    }
  }
  return held;
}

void let_timings_go(const HeldTimings& held, bool are_gone) {
  for (uint32_t i = 0; i < kPairs; ++i) {
    const uint64_t bit = uint64_t{1} << i;
    if (!((held.free | held.pending) & bit)) continue;
    if (are_gone) g_pairs[i].context.store(0, std::memory_order_relaxed);
    const bool goes_on = held.pending & bit && !are_gone;
    set(g_pairs[i], goes_on ? PairState::kPending : PairState::kFree);
  }
}

void forget_all_timings() {
  for (TimingPair& pair : g_pairs) {
    pair.context.store(0, std::memory_order_relaxed);
    set(pair, PairState::kFree);
  }
}

}  // namespace tandem::shim
