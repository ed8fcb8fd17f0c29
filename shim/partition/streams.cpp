#include "streams.h"

#include <pthread.h>

#include "bias.h"
#include "capture.h"
#include "driver.h"
#include "durations.h"
#include "faults.h"
#include "inside.h"
#include "mutex.h"
#include "relaxed.h"
#include "sets.h"
#include "slots.h"
#include "stream_lock.h"

namespace tandem::shim::partition {

std::atomic<bool> g_on{false};

// A handle to which work was submitted. Rows never move, and are reused for other handles. What a
// launch reads of a row comes first, in one cache line, to which it does not write.
struct alignas(64) Row {
  std::atomic<uint64_t> handle;  // kFree, kGone, kEnding, or the handle; release, after the rest
  std::atomic<uint32_t> stays;  // 1 + StayReason, 0 = it moves. kRefused and kCapturing come and go
  // Threads inside calls that wait or query. seq_cst, like `real`: see drop_one.
  std::atomic<uint32_t> lookers;
  std::atomic<CUstream> real;  // written by the holder of `lock`
  StreamLock lock;
  // Written under `lock`:
  uint32_t word;  // the set it is in, as the daemon encodes it; 0 = none yet: the whole device
  // The word on which the row last acted; others only read it. Release, after `is_leaving`, which
  // the helper reads later without the lock: whoever sees where the stream went also sees that it
  // has work elsewhere.
  std::atomic<uint32_t> seen;  // seq_cst where the order with told() matters: see follow
  uint32_t beginnings;         // calls in progress that may make it capture
  CUcontext context;
  std::atomic<CUevent> left;     // behind its work in the previous sets; others only query it
  std::atomic<bool> is_leaving;  // `left` has not been reached yet; others only read
  // Written under g_mutex:
  int set;                  // that `real` is in, or is about to be
  int set_before;           // still has work, or may have; kWhole: none that matters
  CUstream streams[kSets];  // created so far
};

namespace {

// Not handles: those values are default streams.
constexpr uint64_t kFree = 0, kGone = 1, kEnding = 2;
constexpr uint32_t kRows = 1024;
constexpr uint32_t kProbes = 32;
constexpr uint32_t kNobody = ~uint32_t{0};
constexpr uint32_t kDevices = 64;

Row g_rows[kRows];
// Serialises adding and dropping rows and sets. Taken inside a row's lock, never around one.
pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;
std::atomic<const shm::CommandMemory*> g_told{nullptr};  // in a command page; those stay mapped
std::atomic<uint64_t> g_switches{0};
std::atomic<bool> g_default_used[2];  // indexed by kLegacy and kPerThread
std::atomic<bool> g_runs_graphs{false};
std::atomic<uint32_t> g_rowless{0};  // handles that found no row
// How often the job holds each device's primary context.
std::atomic<uint32_t> g_retained[kDevices];
CUdevice g_device = 0;          // on which the process attached; its primary context has the sets
CUcontext g_primary = nullptr;  // that primary context; null = not known. Under g_mutex

// seq_cst: see follow.
uint32_t told() {
  const shm::CommandMemory* memory = g_told.load(std::memory_order_acquire);
  return memory ? memory->sm_set.load() : 0;
}

uint32_t turn() {
  const shm::CommandMemory* memory = g_told.load(std::memory_order_acquire);
  return memory ? memory->set_turn.load(std::memory_order_acquire) : 0;
}

uint32_t place_of(uint64_t handle) {
  return static_cast<uint32_t>((handle >> 4) * 0x9e3779b97f4a7c15u >> 54) % kRows;
}

Row* find(uint64_t handle) {
  for (uint32_t i = 0; i < kProbes; ++i) {
    Row& row = g_rows[(place_of(handle) + i) % kRows];
    const uint64_t held = row.handle.load(std::memory_order_acquire);
    if (__builtin_expect(held == handle, 1)) return &row;
    if (held == kFree) return nullptr;
  }
  return nullptr;
}

Row* vacant(uint64_t handle) {
  for (uint32_t i = 0; i < kProbes; ++i) {
    Row& row = g_rows[(place_of(handle) + i) % kRows];
    if (row.handle.load(std::memory_order_relaxed) <= kGone) return &row;
  }
  return nullptr;
}

// Restores the job's current context when it goes out of scope.
class InContext {
 public:
  explicit InContext(CUcontext context)
      : entered_(g_driver.cuCtxPushCurrent_v2 && g_driver.cuCtxPopCurrent_v2 &&
                 g_driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {}
  ~InContext() {
    CUcontext same = nullptr;
    if (entered_) g_driver.cuCtxPopCurrent_v2(&same);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  [[nodiscard]] bool entered() const { return entered_; }

 private:
  bool entered_;
};

// Finds the primary context of the current device if it is alive: the query must not create it.
bool learn_primary(CUdevice device) {
  if (device != g_device || g_primary) return device == g_device;
  unsigned flags = 0;
  int is_active = 0;
  if (!g_driver.cuDevicePrimaryCtxGetState || !g_driver.cuDevicePrimaryCtxRetain ||
      !g_driver.cuDevicePrimaryCtxRelease_v2 ||
      g_driver.cuDevicePrimaryCtxGetState(device, &flags, &is_active) != CUDA_SUCCESS ||
      !is_active || g_driver.cuDevicePrimaryCtxRetain(&g_primary, device) != CUDA_SUCCESS) {
    g_primary = nullptr;
    return false;
  }
  g_driver.cuDevicePrimaryCtxRelease_v2(device);
  return true;
}

uint32_t staying(shm::StayReason reason) { return 1 + static_cast<uint32_t>(reason); }

// 1 + why the stream stays where it is; 0: it moves.
uint32_t why_it_stays(CUstream handle, CUcontext* context) {
  CUgreenCtx green = nullptr;
  unsigned flags = 0;
  CUdevice device = 0;
  if (!g_driver.cuStreamGetCtx_v2 || !g_driver.cuStreamGetFlags || !g_driver.cuCtxGetDevice ||
      g_driver.cuStreamGetCtx_v2(handle, context, &green) != CUDA_SUCCESS ||
      g_driver.cuStreamGetFlags(handle, &flags) != CUDA_SUCCESS) {
    return staying(shm::StayReason::kRefused);
  }
  const InContext home(*context);
  if (green || !home.entered() || g_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
      !learn_primary(device) || *context != g_primary) {
    return staying(shm::StayReason::kElsewhere);
  }
  return flags & CU_STREAM_NON_BLOCKING ? 0 : staying(shm::StayReason::kBlocking);
}

// Null if the handle names no stream: the driver will refuse the call.
__attribute__((cold, noinline)) Row* add(CUstream handle) {
  const RelaxedCapture relaxed;
  const auto number = reinterpret_cast<uint64_t>(handle);
  CUcontext context = nullptr;
  if (!g_driver.cuStreamGetCtx || g_driver.cuStreamGetCtx(handle, &context) != CUDA_SUCCESS)
    return nullptr;
  const HoldsMutex held(&g_mutex);
  if (Row* row = find(number)) return row;
  Row* row = vacant(number);
  if (!row) {
    g_rowless.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  row->stays.store(why_it_stays(handle, &context), std::memory_order_relaxed);
  row->real.store(handle);
  row->word = 0;
  row->beginnings = 0;
  row->seen.store(0, std::memory_order_relaxed);
  row->context = context;
  row->left.store(nullptr, std::memory_order_relaxed);
  row->is_leaving.store(false, std::memory_order_relaxed);
  row->set = row->set_before = kWhole;
  for (CUstream& stream : row->streams) stream = nullptr;
  row->handle.store(number, std::memory_order_release);
  return row;
}

// A handle that is being destroyed still has its streams.
bool is_handle(uint64_t handle) { return handle > kGone; }

template <class Do>
void each_row(Do what) {
  for (Row& row : g_rows) {
    if (is_handle(row.handle.load(std::memory_order_acquire))) what(row);
  }
}

// Each set that the stream moved to waits for those before, so the newest event is behind the work
// in all of them.
bool has_left(const Row& row) {
  const CUevent left = row.left.load(std::memory_order_acquire);
  return !left || g_driver.cuEventQuery(left) != CUDA_ERROR_NOT_READY;
}

// Nothing runs in the set any more, and nobody waits for one of its streams. A stream that is
// leaving may have work in all the sets where it was since it last finished leaving; only the
// newest two are known.
bool is_unused(int set) {
  bool unused = true;
  each_row([&](Row& row) {
    if (!row.streams[set]) return;
    const bool is_leaving = row.is_leaving.load(std::memory_order_relaxed) && !has_left(row);
    if (row.set == set || row.set_before == set || is_leaving || row.lookers.load() != 0)
      unused = false;
  });
  return unused;
}

// Whether work goes on in the set, or somebody waits for one of its streams, after all streams were
// told to go home.
bool is_in_use(int set) {
  bool in_use = false;
  each_row([&](Row& row) {
    if (!row.streams[set]) return;
    if (row.set == set || !has_left(row) || row.lookers.load() != 0) in_use = true;
  });
  return in_use;
}

void destroy_streams(int set) {
  each_row([&](Row& row) {
    if (row.streams[set]) g_driver.cuStreamDestroy_v2(row.streams[set]);
    row.streams[set] = nullptr;
  });
}

// Makes room for another set. A thread in a kLook call counts itself before it reads `real`, and
// `real` has not been a stream of this set since before this function saw that its row had left.
// All are seq_cst, so one of the two sees the other.
void drop_one() {
  for (int set = 0; set < kSets; ++set) {
    if (!has_set(set) || !is_unused(set)) continue;
    destroy_streams(set);
    drop_set(set);
    return;
  }
}

// Returns the row's stream in a set and records that the row is about to be there; null: no stream
// can be had.
CUstream stream_in(Row& row, uint32_t word) {
  const HoldsMutex held(&g_mutex);
  if (row.context != g_primary) return nullptr;
  const auto handle = reinterpret_cast<CUstream>(row.handle.load(std::memory_order_relaxed));
  if (!has_room(word)) drop_one();
  const int set = set_number(word, g_device);
  if (set == kNoSet) return nullptr;
  CUstream stream = handle;
  if (set != kWhole) {
    int priority = 0;
    if (g_driver.cuStreamGetPriority) g_driver.cuStreamGetPriority(handle, &priority);
    if (!row.streams[set]) {
      row.streams[set] = make_stream(set, priority);
      if (row.streams[set] && g_driver.cuStreamCopyAttributes)
        g_driver.cuStreamCopyAttributes(row.streams[set], handle);
    }
    stream = row.streams[set];
  }
  if (!stream) return nullptr;
  row.set_before = row.set;
  row.set = set;
  return stream;
}

// Whether others have work in all the sets that fit, and this set is not among them.
bool is_crowded_out(uint32_t word) {
  const HoldsMutex held(&g_mutex);
  return !has_room(word);
}

void settle_in(Row& row, bool went) {
  const HoldsMutex held(&g_mutex);
  if (!went) row.set = row.set_before;
}

// Makes all later work in `next` wait for everything that is in the current stream now.
bool join(Row& row, CUstream next) {
  if (planted(Fault::kForgetJoin)) return true;
  CUevent left = row.left.load(std::memory_order_relaxed);
  if (!left) {
    if (g_driver.cuEventCreate(&left, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return false;
    row.left.store(left, std::memory_order_release);
  }
  return g_driver.cuEventRecord(left, row.real.load()) == CUDA_SUCCESS &&
         g_driver.cuStreamWaitEvent(next, left, CU_EVENT_WAIT_DEFAULT) == CUDA_SUCCESS;
}

// 0: the whole device.
uint32_t sms_of(uint32_t word) {
  const shm::SmSet set = shm::set_of(word);
  return set.count * set.group_sms;
}

// The number of SMs of the latest move: durations measured on other numbers are stale.
std::atomic<uint32_t> g_sms{0};

// Published at once, because a process that ends soon has no further round of the helper.
void count_switch() {
  const uint64_t count = g_switches.fetch_add(1, std::memory_order_relaxed) + 1;
  if (Channel* channel = g_channel.load(std::memory_order_acquire))
    channel->state->sets.switches.store(count, std::memory_order_relaxed);
}

bool go(Row& row, uint32_t word) {
  const InContext home(row.context);
  CUstream next = home.entered() ? stream_in(row, word) : nullptr;
  if (!next) return false;
  const bool went = next == row.real.load() || join(row, next);
  settle_in(row, went);
  if (!went) return false;
  row.real.store(next);
  // Concerns the launches from here on. The same number of other SMs takes the same time, and so
  // does a new stream on as many SMs as others of the process already use.
  const uint32_t sms = sms_of(word), before = g_sms.exchange(sms, std::memory_order_relaxed);
  if (sms != (row.word ? sms_of(row.word) : before)) g_durations.make_stale();
  row.word = word;
  row.is_leaving.store(true, std::memory_order_relaxed);
  count_switch();
  return true;
}

// The caller holds the row's lock. Asks the driver, because a capture may have begun before this
// process attached. The driver answers only where a context is current, and the helper has none; no
// answer counts as yes.
bool captures(const Row& row) {
  if (!g_driver.cuStreamIsCapturing) return false;
  const RelaxedCapture relaxed;
  const InContext home(row.context);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return g_driver.cuStreamIsCapturing(row.real.load(), &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// The caller holds the row's lock. Cold: called when a stream is told another set. The word is read
// again after `seen` shows that the stream is on its way. The helper reads the two in reverse
// order, so it never takes a stream to be settled where it was, and where it is again told to be,
// while this function is about to move it elsewhere.
__attribute__((cold, noinline)) void follow(Row& row) {
  row.seen.store(kNobody);
  const uint32_t word = told();
  if (word == 0) return;  // a daemon that has not said anything yet
  const RelaxedCapture relaxed;
  if (captures(row)) {
    row.stays.store(staying(shm::StayReason::kCapturing), std::memory_order_relaxed);
    return;
  }
  const bool is_there = word == row.word || go(row, word);
  row.stays.store(is_there ? 0 : staying(shm::StayReason::kRefused), std::memory_order_relaxed);
  // Otherwise it tries again.
  if (is_there || !is_crowded_out(word)) row.seen.store(word, std::memory_order_release);
}

bool stays_for(const Row& row, shm::StayReason reason) {
  return row.stays.load(std::memory_order_relaxed) == staying(reason);
}

// Either now, or once it no longer captures.
bool may_go(const Row& row) {
  return row.stays.load(std::memory_order_relaxed) == 0 ||
         stays_for(row, shm::StayReason::kRefused) || stays_for(row, shm::StayReason::kCapturing);
}

// The caller holds the row's lock.
bool is_bound_home(Row& row) {
  if (!stays_for(row, shm::StayReason::kCapturing)) return false;
  if (row.beginnings != 0 || captures(row)) return true;
  row.stays.store(0, std::memory_order_relaxed);
  return false;
}

// Notes when the work in the old sets is done. The caller holds the row's lock.
void look_at_leaving(Row& row) {
  if (!row.is_leaving.load(std::memory_order_relaxed)) return;
  if (!has_left(row)) return;
  row.is_leaving.store(false, std::memory_order_relaxed);
  const HoldsMutex held(&g_mutex);
  row.set_before = kWhole;
}

// Whether the stream is where it should be, and has left where it was.
bool is_there(const Row& row, uint32_t word) {
  return row.seen.load() == word && !row.is_leaving.load(std::memory_order_relaxed);
}

// The same, after trying to move the stream there. A stream that captures can only be at home, and
// is not waited for.
bool look_after_row(const Channel& channel, Row& row, uint32_t word) {
  if (!may_go(row)) return true;
  if (is_there(row, word)) return true;
  if (!row.lock.try_lock()) return false;  // a thread is submitting, and moves the stream itself
  if (row.handle.load(std::memory_order_relaxed) <= kEnding) return row.lock.unlock(), true;
  const bool is_bound = is_bound_home(row);
  if (!is_bound && row.seen.load(std::memory_order_relaxed) != word &&
      !is_anyone_kept(channel, reinterpret_cast<uint64_t>(row.context))) {
    follow(row);
  }
  const InContext home(row.context);
  look_at_leaving(row);
  const bool now_there =
      is_bound ? !row.is_leaving.load(std::memory_order_relaxed) : is_there(row, word);
  row.lock.unlock();
  return now_there;
}

// The caller holds the row's lock. The driver's streams behind the handle are destroyed, but not
// the handle's own.
void empty(Row& row) {
  const HoldsMutex held(&g_mutex);
  for (CUstream& stream : row.streams) {
    if (stream) g_driver.cuStreamDestroy_v2(stream);
    stream = nullptr;
  }
  if (const CUevent left = row.left.exchange(nullptr)) g_driver.cuEventDestroy_v2(left);
  row.handle.store(kGone, std::memory_order_release);
}

// The caller holds the row's lock.
void go_home(Row& row) {
  if (row.set != kWhole && !captures(row)) go(row, shm::word_of({0, 0, 1}));
  row.seen.store(kNobody, std::memory_order_release);
}

// With the row's lock, unless the handle was destroyed meanwhile.
template <class Do>
void with_row(Row& row, uint64_t handle, Do what) {
  row.lock.lock();
  if (row.handle.load(std::memory_order_relaxed) == handle) what();
  row.lock.unlock();
}

// The row of a stream that may be told a set. Null: the stream has none, and never will.
Row* row_of(CUstream handle) {
  const auto number = reinterpret_cast<uint64_t>(handle);
  if (!is_on() || is_default_stream(number)) return nullptr;
  Row* row = find(number);
  return row ? row : add(handle);
}

// Called often, but rarely writes.
void note(std::atomic<bool>& what) {
  if (!what.load(std::memory_order_relaxed)) what.store(true, std::memory_order_relaxed);
}

}  // namespace

// The usual case: the row is at the handle's first place, its lock is biased to this thread, and
// the stream is where it should be. A launch in a set then costs only this and `leave`, without a
// locked operation.
void Stream::enter(How how, bool per_thread) {
  const auto handle = reinterpret_cast<uint64_t>(handle_);
  Row& row = g_rows[place_of(handle)];
  if (__builtin_expect(!is_default_stream(handle) && row.lock.try_biased(), 1)) {
    if (__builtin_expect(row.handle.load(std::memory_order_acquire) == handle &&
                             row.stays.load(std::memory_order_relaxed) == 0 &&
                             row.seen.load(std::memory_order_relaxed) == told(),
                         1)) {
      row_ = &row;
      real_ = row.real.load();
      return;
    }
    row.lock.unlock_biased();
  }
  enter_slowly(how, per_thread);
}

__attribute__((noinline)) void Stream::enter_slowly(How how, bool per_thread) {
  const uint64_t handle = normalise(handle_, per_thread);
  if (is_default_stream(handle)) {
    if (how == How::kFollow) note(g_default_used[handle == kPerThreadStream]);
    return;
  }
  Row* row = find(handle);
  if (__builtin_expect(!row, 0) && how == How::kFollow) row = add(handle_);
  if (!row || __builtin_expect(!may_go(*row), 0)) return;
  if (how != How::kHoldIfFree) row->lock.lock();
  else if (!row->lock.try_lock()) return void(is_free_ = false);
  if (__builtin_expect(row->handle.load(std::memory_order_relaxed) != handle, 0))
    return row->lock.unlock();  // destroyed meanwhile
  row_ = row;
  if (how == How::kFollow && !is_bound_home(*row)) {
    if (__builtin_expect(told() != row->seen.load(std::memory_order_relaxed), 0)) follow(*row);
  }
  real_ = row->real.load();
}

void Stream::leave() { row_->lock.unlock(); }

void Stream::look(bool per_thread) {
  const uint64_t handle = normalise(handle_, per_thread);
  if (is_default_stream(handle)) return;
  Row* row = find(handle);
  if (!row || !may_go(*row)) return;
  row_ = row;
  is_looking_ = true;
  row->lookers.fetch_add(1);
  real_ = row->real.load();
}

void Stream::look_away() { row_->lookers.fetch_sub(1); }

void attach_on(CUdevice device) { g_device = device; }

void obey(const shm::CommandMemory& memory, bool is_first) {
  if (is_first && memory.sm_set.load(std::memory_order_relaxed) != 0)
    g_on.store(true, std::memory_order_relaxed);
  g_told.store(&memory, std::memory_order_release);
}

bool look_after(Channel& channel) {
  if (!is_on()) return false;
  shm::StateSets* shown = &channel.state->sets;
  // Read first: what is published belongs to this turn, or to a newer one.
  const uint32_t turn_told = turn();
  const uint32_t word = told();
  uint32_t following = 0, counts[shm::kStayReasonCount] = {};
  bool are_all_there = true;
  each_row([&](Row& row) {
    are_all_there &= word == 0 || look_after_row(channel, row, word);
    const uint32_t stays = row.stays.load(std::memory_order_relaxed);
    if (stays == 0) ++following;
    else ++counts[stays - 1];
  });
  for (uint32_t i = 0; i < 2; ++i) counts[i] += g_default_used[i].load(std::memory_order_relaxed);
  counts[static_cast<uint32_t>(shm::StayReason::kRefused)] +=
      g_rowless.load(std::memory_order_relaxed);
  shown->following.store(following, std::memory_order_relaxed);
  for (uint32_t i = 0; i < shm::kStayReasonCount; ++i)
    shown->staying[i].store(counts[i], std::memory_order_relaxed);
  shown->graphs.store(g_runs_graphs.load(std::memory_order_relaxed), std::memory_order_relaxed);
  shown->switches.store(g_switches.load(std::memory_order_relaxed), std::memory_order_relaxed);
  if (are_all_there && (shown->in.load(std::memory_order_relaxed) != word ||
                        shown->in_turn.load(std::memory_order_relaxed) != turn_told)) {
    shown->in.store(word, std::memory_order_release);
    shown->in_turn.store(turn_told, std::memory_order_release);
    ring_doorbell(channel);
  }
  return !are_all_there;
}

void note_graph() {
  if (is_on()) note(g_runs_graphs);
}

void copy_settings(CUstream handle) {
  if (!is_on() || !g_driver.cuStreamCopyAttributes) return;
  Row* row = find(reinterpret_cast<uint64_t>(handle));
  if (!row) return;
  const HoldsMutex held(&g_mutex);
  for (const CUstream stream : row->streams) {
    if (stream) g_driver.cuStreamCopyAttributes(stream, handle);
  }
}

__attribute__((cold, noinline)) bool is_in_set(CUstream handle) {
  const Row* row = is_on() ? find(reinterpret_cast<uint64_t>(handle)) : nullptr;
  return row && row->real.load() != handle;
}

void keep_home(CUstream handle, shm::StayReason reason) {
  Row* row = row_of(handle);
  if (!row || !may_go(*row)) return;
  with_row(*row, reinterpret_cast<uint64_t>(handle), [&] {
    go_home(*row);
    row->stays.store(staying(reason), std::memory_order_relaxed);
  });
}

AtHome::AtHome(CUstream handle) : handle_(reinterpret_cast<uint64_t>(handle)) {
  Row* row = row_of(handle);
  if (!row || !may_go(*row)) return;
  with_row(*row, handle_, [&] {
    row_ = row;
    ++row->beginnings;
    go_home(*row);
    row->stays.store(staying(shm::StayReason::kCapturing), std::memory_order_relaxed);
  });
}

AtHome::~AtHome() {
  if (row_) with_row(*row_, handle_, [&] { --row_->beginnings; });
}

Ending::Ending(CUstream handle) : handle_(handle) {
  if (!is_on()) return;
  row_ = find(reinterpret_cast<uint64_t>(handle));
  if (!row_) return;
  row_->lock.lock();
  row_->handle.store(kEnding, std::memory_order_relaxed);
}

void Ending::end(bool is_gone) {
  if (!row_) return;
  if (is_gone) empty(*row_);
  else row_->handle.store(reinterpret_cast<uint64_t>(handle_), std::memory_order_release);
  row_->lock.unlock();
}

void forget_context(CUcontext context) {
  if (!is_on()) return;
  const HoldsMutex held(&g_mutex);
  each_row([&](Row& row) {
    if (row.context == context) row.handle.store(kGone, std::memory_order_release);
  });
}

void note_retained(CUdevice device) {
  if (device >= 0 && static_cast<uint32_t>(device) < kDevices)
    g_retained[device].fetch_add(1, std::memory_order_relaxed);
}

bool is_last_hold(CUdevice device) {
  return device < 0 || static_cast<uint32_t>(device) >= kDevices ||
         g_retained[device].load(std::memory_order_relaxed) <= 1;
}

void before_release(CUdevice device, bool may_destroy, bool is_reset) {
  if (!is_on() || !g_primary || device != g_device || !may_destroy) return;
  each_row([](Row& row) {
    if (may_go(row))
      with_row(row, row.handle.load(std::memory_order_relaxed), [&] { go_home(row); });
  });
  const HoldsMutex held(&g_mutex);
  for (int set = 0; set < kSets; ++set) {
    if (!has_set(set) || (!is_reset && is_in_use(set))) continue;
    destroy_streams(set);
    drop_set(set);
  }
}

void after_release(CUdevice device, bool is_gone) {
  if (device < 0 || static_cast<uint32_t>(device) >= kDevices) return;
  if (is_gone) g_retained[device].store(0, std::memory_order_relaxed);
  else if (g_retained[device].load(std::memory_order_relaxed) != 0)
    g_retained[device].fetch_sub(1, std::memory_order_relaxed);
  if (!is_on() || !is_gone || device != g_device) return;
  if (g_primary) forget_context(g_primary);
  const HoldsMutex held(&g_mutex);
  g_primary = nullptr;
  forget_sets();
}

void start_afresh() {
  g_sms.store(0);
  g_on.store(false, std::memory_order_relaxed);
  g_mutex = PTHREAD_MUTEX_INITIALIZER;
  for (Row& row : g_rows) {
    row.handle.store(kFree, std::memory_order_relaxed);
    row.lookers.store(0);
    row.lock.start_afresh();
  }
  for (std::atomic<uint32_t>& retained : g_retained) retained.store(0, std::memory_order_relaxed);
  g_told.store(nullptr, std::memory_order_relaxed);
  g_switches.store(0, std::memory_order_relaxed);
  g_rowless.store(0, std::memory_order_relaxed);
  g_runs_graphs.store(false, std::memory_order_relaxed);
  for (std::atomic<bool>& used : g_default_used) used.store(false, std::memory_order_relaxed);
  g_primary = nullptr;
  forget_sets();
  forget_owners();
}

}  // namespace tandem::shim::partition
