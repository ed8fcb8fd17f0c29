// The process-wide state of the software driver: the connection to the device process, the
// submitted operations, and which thread waits for what.
//
// One mutex protects all of it. Three kinds of threads take it: the program's own threads, inside
// driver calls; the connection thread, for every packet received; and the executors, one for device
// work and one for host functions. Executors run bodies without it and take it to hand in the
// results.
//
// Virtual time. `running_` counts the known threads that are not waiting in here, plus the packets
// and bodies being worked on. Whoever brings it to zero sends the device IDLE. Whoever satisfies a
// wait counts the woken thread as running before releasing the mutex, so IDLE is never sent in
// between and a run repeats exactly.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "mps.h"
#include "objects.h"
#include "protocol.h"

namespace softgpu {

namespace proto = tandem::softgpu;
using Lock = std::unique_lock<std::mutex>;

enum class Life { kFresh, kReady, kLost, kForked };

struct GraphAllocation;
struct GraphExec;

// The DONEs that a waiting thread is interested in: those of these operations, or any `count` of
// them. With neither, any DONE may be the one. The device reports other DONEs when it suits it.
struct Interest {
  const std::vector<uint64_t>* ops = nullptr;
  uint64_t count = 1;
};
constexpr Interest kOnlyTime{nullptr, proto::kNever};

// Set for a thread that polls memory which others write.
struct Look {
  uint64_t step_ns = 0;      // 0: it does not poll
  bool only_looked = false;  // the thread has done nothing else since its last wait
};

struct Waiter {
  bool (*ready)(void*);
  void* argument;
  uint64_t deadline_ns;
  Interest interest;
  Look look;
  bool woken = false;
  std::condition_variable changed;
};

class Runtime {
 public:
  std::mutex mutex;
  // Held while a body that touches device memory runs, and by code whose changes a body must not
  // see halfway. Taken after `mutex`; the executor then releases `mutex`.
  std::mutex bodies;
  bool hidden = false;  // a kernel runs, and memory it has no right to is out of reach; see reach.h
  Life life = Life::kFresh;
  proto::Welcome device{};  // lists only the visible devices
  // The device process's number for a visible device.
  uint32_t gpu_of(CUdevice ordinal) const { return device.device[ordinal].gpu; }
  // The inverse; -1 for a device that is not visible.
  CUdevice ordinal_of(uint32_t gpu) const {
    for (uint32_t i = 0; i < device.device_count; ++i) {
      if (device.device[i].gpu == gpu) return static_cast<CUdevice>(i);
    }
    return -1;
  }
  MpsMembership mps;  // fixed when the driver starts
  bool is_under_mps() const {
    return mps.member || device.mode == static_cast<uint32_t>(proto::Mode::kMps);
  }
  bool locked = false;      // by a checkpoint: calls wait
  int calls_under_way = 0;  // calls that began before the lock
  void say_frozen_if_quiet();

  std::unordered_set<const void*> contexts, streams, events, modules, functions, libraries, kernels,
      links;
  std::vector<Context*> ended_contexts;  // never deleted: they may be on threads' stacks
  std::unordered_set<const void*> graphs, graph_nodes, user_objects;
  std::unordered_set<const void*> arrays, mipmapped_arrays;  // mipmap levels are in `arrays`, too
  std::unordered_map<const void*, std::shared_ptr<GraphExec>> graph_execs;
  std::unordered_map<uint64_t, unsigned> condition_values;    // by CUgraphConditionalHandle
  std::vector<Capture*> captures;                             // captures that have not ended
  std::map<int, GraphMemory> graph_memory;                    // by device
  std::map<CUdeviceptr, GraphAllocation*> graph_allocations;  // all of them
  std::map<CUdeviceptr, std::shared_ptr<GraphAllocation>> live_graph_memory;
  std::map<uintptr_t, Range> ranges;
  std::unordered_map<uint64_t, Physical*> physicals;
  std::vector<Pool*> pools;            // all, including destroyed ones that still hold memory
  std::map<int, Pool*> current_pools;  // by device, if not the default pool
  std::vector<LateFree> late_frees;
  std::vector<Context*> primary;
  std::vector<uint32_t> primary_references;
  std::vector<unsigned> primary_flags;

  // Connects, starting the device process if necessary. `flags` as in Hello.
  CUresult start(uint32_t flags);
  // After a fork, the child owns nothing of its parent's connection.
  void forget_after_fork();

  bool is_virtual() const {
    return device.clock == static_cast<uint32_t>(proto::ClockKind::kVirtual);
  }
  uint64_t now_ns() const;
  uint64_t next_number() { return ++last_number_; }

  // Appends a message for the device; it is sent by the next flush.
  template <class Message>
  void post(proto::Type type, Message message) {
    message.header = {static_cast<uint16_t>(type), sizeof message, 0};
    append(&message, sizeof message);
  }
  void flush();
  // The ask_* functions post, then wait for the reply that carries `request`. They return false
  // when the device is gone.
  bool ask_memory(Lock& lock, uint64_t bytes, int device_index, proto::MemKind kind,
                  proto::MemReply* reply);
  bool ask_retain(Lock& lock, uint64_t allocation, proto::MemReply* reply);
  bool ask_memory_info(Lock& lock, int device_index, proto::MemInfoReply* reply);

  // Hands work to the device, ordered after what `stream` puts before it and after `after`. Returns
  // the operation's number. Driver calls use StreamCall::enqueue instead.
  uint64_t submit(Stream* stream, const Work& work, std::vector<uint64_t> after = {});
  // Like submit, for all but the first of a batch: it omits the barriers of the legacy default
  // stream, which the first one has, and does not have the operations sent soon (`kick` does).
  uint64_t submit_unbarred(Stream* stream, const Work& work, const std::vector<uint64_t>& after);
  void kick();
  bool live(uint64_t op) const;
  bool has_room(const Context* context) const {
    return context->pending_ops < queue_limit_ && sent_pending_ < kMostPending;
  }
  // Waits until the context has room for one more operation, as a hardware queue does.
  void wait_for_room(Lock& lock, Context* context);
  void wait_for_ops(Lock& lock, const std::vector<uint64_t>& ops);
  // Asks about an interprocess event; the message carries `request`.
  template <class Message>
  bool ask_event(Lock& lock, proto::Type type, Message message, proto::EventReply* reply) {
    post(type, message);
    return await_reply(lock, message.request, &event_replies_, reply);
  }
  // The operations that a host-side synchronisation with `stream` has to wait for.
  std::vector<uint64_t> tail_of(const Stream* stream) const;
  // The unfinished operations that the stream's next operation would come after.
  std::vector<uint64_t> frontier_of(const Stream* stream) const;

  // Blocks until ready() holds, the clock passes the deadline, or the device is gone.
  template <class Ready>
  void wait(Lock& lock, Ready ready, uint64_t deadline_ns = proto::kNever, Interest interest = {}) {
    wait_erased(lock, [](void* f) { return (*static_cast<Ready*>(f))(); }, &ready, deadline_ns,
                interest, {});
  }
  // Waits until the deadline, or until a look is due: softgpu_wait_for_change. Returns false if a
  // nap ended before either.
  bool wait_for_change(Lock& lock, uint64_t step_ns, uint64_t deadline_ns, bool only_looked);
  void end_nap();  // softgpu_end_nap
  // Lets virtual time pass when a poll would answer "not ready"; otherwise a polling loop would
  // stop the clock that it waits for.
  void let_time_pass(Lock& lock, uint64_t op);

  // The thread takes part in the clock from now on; on the virtual clock this learns the current
  // time.
  void thread_begins(Lock& lock);
  void thread_ends();

 private:
  CUresult leave_after(CUresult error);
  template <class Reply>
  bool await_reply(Lock& lock, uint64_t request, std::unordered_map<uint64_t, Reply>* replies,
                   Reply* reply) {
    wait(lock, [&] { return replies->count(request) != 0; });
    const auto found = replies->find(request);
    if (found == replies->end()) return false;
    *reply = found->second;
    replies->erase(found);
    return true;
  }
  void append(const void* message, size_t bytes);
  bool wait_erased(Lock& lock, bool (*ready)(void*), void* argument, uint64_t deadline_ns,
                   Interest interest, Look look);
  void add_interest(const Interest& interest, proto::Idle* idle) const;
  void wake_satisfied();
  void settle_after(int change);
  void say_idle_if_settled();
  void write_submit(Stream* stream, const Work& work, const std::vector<uint64_t>& deps);
  void release(Op* op);
  void order_after_barriers(const Stream* stream, std::vector<uint64_t>* deps) const;

  void receive_loop(int fd);
  void handle_packet(const char* packet, size_t bytes);
  void handle(const proto::Header& header, const char* message);
  void on_start(const proto::Start& start);
  void on_done(const proto::Done& done);
  enum class Bodies { kDeviceWork, kHostFunctions };
  void execute_loop(Bodies which);
  void execute(Lock& lock, Op* op);
  void execute_here(Lock& lock);
  Op* take_executable(Bodies which);
  void lose();

  bool observes_ = false;
  bool nap_is_over_ = false;
  int fd_ = -1;
  int wake_fd_ = -1;  // makes the connection thread flush a batch (real clock)
  bool flush_armed_ = false;
  static constexpr uint64_t kMostPending = proto::kMaxLiveOps / 2;  // leaves the rest to big graphs
  uint32_t queue_limit_ = 1024;
  uint64_t last_number_ = 0;
  uint64_t last_time_ns_ = 0;  // virtual clock: newest time received
  bool frozen_said_ = false;   // since `locked` was set
  uint64_t times_heard_ = 0;   // TIME messages received so far
  bool look_is_due_ = false;   // set by the TIME being worked on
  bool only_looked_ = false;   // nothing but looking happened since the last IDLE

  std::vector<char> outbox_;
  std::deque<Op*> ops_;  // ops_[i] has id first_op_ + i; null once done
  uint64_t first_op_ = 1;
  uint64_t sent_pending_ = 0;  // submitted, not done
  std::vector<Op*> spare_ops_;

  std::unordered_map<uint64_t, proto::MemReply> memory_replies_;
  std::unordered_map<uint64_t, proto::MemInfoReply> info_replies_;
  std::unordered_map<uint64_t, proto::EventReply> event_replies_;

  std::vector<Waiter*> waiters_;
  int running_ = 0;
  uint64_t received_ = 0;
  bool idle_due_ = true;  // something happened since the last IDLE
  uint64_t idle_deadline_ns_ = 0;

  std::deque<Op*> executable_;
  std::vector<Op*> executing_;  // at most one per thread that runs bodies
  std::condition_variable executable_changed_;
};

// Never destroyed: its threads outlive main().
Runtime& runtime();

// The state of one thread of the program.
struct ThreadState {
  bool known = false;
  bool outside = false;             // between softgpu_wait_begin and _end
  bool per_thread_default = false;  // inside a _ptsz or _ptds call
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t polled_op = 0, polled_since_ns = 0;  // the newest unsuccessful query
  std::vector<Context*> stack;
  struct DefaultStream {
    Context* context;
    Stream* stream;
  };
  std::vector<DefaultStream> default_streams;  // the thread's own default stream in each context
};
// The main thread's state also exists while exit handlers run.
ThreadState& this_thread();
extern thread_local bool t_in_body;  // this thread runs bodies: driver calls are not permitted

// One driver call: takes the mutex and finds the current context.
class Call {
 public:
  // kUnsafe: needs a context, and that no stream capture is active that forbids calls it cannot
  // see. kClock: no CUDA call; a checkpoint's lock does not hold it back.
  enum Need { kNothing, kContext, kUnsafe, kClock };
  explicit Call(Need need);
  ~Call();
  Runtime& rt;
  Lock lock;
  Context* context = nullptr;
  // Set if the current context is a green context's view; `context` is its primary one.
  GreenContext* green = nullptr;
  CUresult error;

 private:
  bool counted_ = false;
};

// The stream that a handle means, including 0, 1 and 2; null if it means none.
Stream* resolve_stream(const Call& call, CUstream handle);
Stream* make_stream(Runtime& rt, Context* context, unsigned flags, int priority);
// The object is deleted with its last operation.
void destroy_stream(Runtime& rt, Stream* stream);
constexpr int kGreatestPriority = -5;
constexpr int clamp_priority(int priority) {  // 0 is the least urgent
  return priority > 0 ? 0 : priority < kGreatestPriority ? kGreatestPriority : priority;
}

// Unmaps the pages of a range. Its ledger entry is up to the caller.
void unmap_range(Range& range);

// A driver call on a stream.
struct StreamCall {
  Call call{Call::kContext};
  Stream* stream = nullptr;
  CUresult find(CUstream handle);
  // For calls that enqueue: also waits until there is room for one more operation, which releases
  // the mutex. What the caller looks up afterwards stays valid until it enqueues.
  CUresult find_with_room(CUstream handle);
  // For calls that wait for the stream or query its progress.
  CUresult find_idle(CUstream handle);
  CUresult refuse_blocking();  // the second half of find_idle, for a stream already found
  // All work that a program asks for enters a stream here. A capturing stream adds a node to its
  // graph instead; `operation` is then 0.
  CUresult enqueue(const Work& work, uint64_t* operation = nullptr);
  CUresult enqueue_batch(const std::vector<Work>& batch);  // one node, if captured
  // Refuses a call that cannot be captured, and invalidates the capture.
  CUresult refuse_in_capture(CUresult error);
};

// The live range that contains all of [address, address + bytes), or null.
Range* find_range(Runtime& rt, uintptr_t address, size_t bytes);

template <class T>
T* checked(const std::unordered_set<const void*>& known, const void* handle) {
  return known.count(handle) ? static_cast<T*>(const_cast<void*>(handle)) : nullptr;
}

}  // namespace softgpu
