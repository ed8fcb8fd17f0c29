// The process-wide state of the software driver: the connection to the device process, the
// submitted operations, and who waits for what.
//
// One mutex protects all of it. Three kinds of threads take it: the program's own, inside driver
// calls; the connection thread, for every packet received; and the executors, one for device
// work and one for host functions, which run bodies without it and take it to hand in their results.
//
// Virtual time. `running_` counts known threads that are not waiting in here, plus packets and
// bodies being worked on. Whoever brings it to zero tells the device IDLE. Whoever satisfies a wait
// counts the woken thread as running before it lets go of the mutex, so IDLE is never said in
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

// Which DONEs a waiting thread is interested in: those of these operations, or so many of any. With
// neither it may be anything. The device tells of others when it suits it.
struct Interest {
  const std::vector<uint64_t>* ops = nullptr;
  uint64_t count = 1;
};
constexpr Interest kOnlyTime{nullptr, proto::kNever};

// Of a thread that waits for what others write to memory.
struct Look {
  uint64_t step_ns = 0;      // 0: it does not
  bool only_looked = false;  // nothing else since its last wait
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
  // Held while a body that touches device memory runs. Taken after `mutex`, by the executor and by
  // whoever must not be seen at work by a body; the executor then lets go of `mutex`.
  std::mutex bodies;
  bool hidden = false;  // a kernel runs, and what it has no right to is out of reach; see reach.h
  Life life = Life::kFresh;
  proto::Welcome device{};  // of it only the visible devices
  // The device process's number of a visible device.
  uint32_t gpu_of(CUdevice ordinal) const { return device.device[ordinal].gpu; }
  // The other way round; -1 for one that is not visible.
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
  bool locked = false;       // by a checkpoint: calls wait
  int calls_under_way = 0;   // those that began before
  void say_frozen_if_quiet();

  std::unordered_set<const void*> contexts, streams, events, modules, functions, libraries,
      kernels, links;
  std::vector<Context*> ended_contexts;  // never deleted: threads may have them on their stacks
  std::unordered_set<const void*> graphs, graph_nodes, user_objects;
  std::unordered_set<const void*> arrays, mipmapped_arrays;  // levels are arrays, too
  std::unordered_map<const void*, std::shared_ptr<GraphExec>> graph_execs;
  std::unordered_map<uint64_t, unsigned> condition_values;  // by CUgraphConditionalHandle
  std::vector<Capture*> captures;  // that have not ended
  std::map<int, GraphMemory> graph_memory;  // by device
  std::map<CUdeviceptr, GraphAllocation*> graph_allocations;  // every one there is
  std::map<CUdeviceptr, std::shared_ptr<GraphAllocation>> live_graph_memory;
  std::map<uintptr_t, Range> ranges;
  std::unordered_map<uint64_t, Physical*> physicals;
  std::vector<Pool*> pools;            // every one, with the destroyed ones that still hold memory
  std::map<int, Pool*> current_pools;  // by device, where it is not the default one
  std::vector<LateFree> late_frees;
  std::vector<Context*> primary;
  std::vector<uint32_t> primary_references;
  std::vector<unsigned> primary_flags;

  // Connect, starting the device process if need be. `flags` of Hello.
  CUresult start(uint32_t flags);
  // The child of a fork owns nothing of its parent's connection.
  void forget_after_fork();

  bool is_virtual() const {
    return device.clock == static_cast<uint32_t>(proto::ClockKind::kVirtual);
  }
  uint64_t now_ns() const;
  uint64_t next_number() { return ++last_number_; }

  // Append a message for the device; it leaves with the next flush.
  template <class Message>
  void post(proto::Type type, Message message) {
    message.header = {static_cast<uint16_t>(type), sizeof message, 0};
    append(&message, sizeof message);
  }
  void flush();
  // Post, then wait for the reply that carries `request`. False when the device is gone.
  bool ask_memory(Lock& lock, uint64_t bytes, int device_index, proto::MemKind kind,
                  proto::MemReply* reply);
  bool ask_retain(Lock& lock, uint64_t allocation, proto::MemReply* reply);
  bool ask_memory_info(Lock& lock, int device_index, proto::MemInfoReply* reply);

  // Hand work to the device, after what `stream` orders before it and after `after`. Returns the
  // operation's number. Driver calls do not come here but to StreamCall::enqueue.
  uint64_t submit(Stream* stream, const Work& work, std::vector<uint64_t> after = {});
  // The same for all but the first of many: without the barriers of the legacy default stream,
  // which the first one has, and without seeing to it that they leave soon (`kick`).
  uint64_t submit_unbarred(Stream* stream, const Work& work, const std::vector<uint64_t>& after);
  void kick();
  bool live(uint64_t op) const;
  bool has_room(const Context* context) const {
    return context->pending_ops < queue_limit_ && sent_pending_ < kMostPending;
  }
  // Wait until the context has room for one more operation, as a hardware queue does.
  void wait_for_room(Lock& lock, Context* context);
  void wait_for_ops(Lock& lock, const std::vector<uint64_t>& ops);
  // Ask about an interprocess event; the message carries `request`.
  template <class Message>
  bool ask_event(Lock& lock, proto::Type type, Message message, proto::EventReply* reply) {
    post(type, message);
    return await_reply(lock, message.request, &event_replies_, reply);
  }
  // What a host-side synchronisation with `stream` has to see done.
  std::vector<uint64_t> tail_of(const Stream* stream) const;
  // What the next operation of the stream would come after and is not done yet.
  std::vector<uint64_t> frontier_of(const Stream* stream) const;

  // Block until ready() holds, the clock passes the deadline, or the device is gone.
  template <class Ready>
  void wait(Lock& lock, Ready ready, uint64_t deadline_ns = proto::kNever, Interest interest = {}) {
    wait_erased(lock, [](void* f) { return (*static_cast<Ready*>(f))(); }, &ready, deadline_ns,
                interest, {});
  }
  // Until the deadline, or a look is due: softgpu_wait_for_change. False: a nap ended before.
  bool wait_for_change(Lock& lock, uint64_t step_ns, uint64_t deadline_ns, bool only_looked);
  void end_nap();  // softgpu_end_nap
  // A poll that would answer "not ready" gives virtual time a chance to pass, else a polling loop
  // would stop the clock that it polls.
  void let_time_pass(Lock& lock, uint64_t op);

  // The thread takes part from now on; on the virtual clock this learns the present time.
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
  int wake_fd_ = -1;  // tells the connection thread of a batch to flush (real clock)
  bool flush_armed_ = false;
  static constexpr uint64_t kMostPending = proto::kMaxLiveOps / 2;  // the rest is for big graphs
  uint32_t queue_limit_ = 1024;
  uint64_t last_number_ = 0;
  uint64_t last_time_ns_ = 0;  // virtual clock: newest time heard of
  bool frozen_said_ = false;   // since `locked`
  uint64_t times_heard_ = 0;   // TIME messages so far
  bool look_is_due_ = false;   // said the TIME that is being worked on
  bool only_looked_ = false;   // all that happened since the last IDLE

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
  std::vector<Op*> executing_;  // at most one for each thread that runs bodies
  std::condition_variable executable_changed_;
};

// Never destroyed: its threads outlive main().
Runtime& runtime();

// The state of one thread of the program.
struct ThreadState {
  bool known = false;
  bool outside = false;          // between softgpu_wait_begin and _end
  bool per_thread_default = false;  // inside a _ptsz or _ptds call
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t polled_op = 0, polled_since_ns = 0;  // the newest unsuccessful query
  std::vector<Context*> stack;
  struct DefaultStream {
    Context* context;
    Stream* stream;
  };
  std::vector<DefaultStream> default_streams;  // its per-thread stream in each context
};
// That of the main thread is there for exit handlers, too.
ThreadState& this_thread();
extern thread_local bool t_in_body;  // this thread runs bodies: driver calls are not permitted

// One driver call: takes the mutex and finds the current context.
class Call {
 public:
  // kUnsafe: a context, and no stream capture that forbids calls it would not see.
  // kClock: no CUDA call; not held back by a checkpoint's lock.
  enum Need { kNothing, kContext, kUnsafe, kClock };
  explicit Call(Need need);
  ~Call();
  Runtime& rt;
  Lock lock;
  Context* context = nullptr;
  GreenContext* green = nullptr;  // current is the view of that one, `context` its primary one
  CUresult error;

 private:
  bool counted_ = false;
};

// The stream a handle means, 0, 1 and 2 included; null when it is not one.
Stream* resolve_stream(const Call& call, CUstream handle);
Stream* make_stream(Runtime& rt, Context* context, unsigned flags, int priority);
// Its object goes with its last operation.
void destroy_stream(Runtime& rt, Stream* stream);
constexpr int kGreatestPriority = -5;
constexpr int clamp_priority(int priority) {  // 0 is the least urgent
  return priority > 0 ? 0 : priority < kGreatestPriority ? kGreatestPriority : priority;
}

// Give back the pages of a range (its ledger entry is the caller's).
void unmap_range(Range& range);

// A driver call on a stream.
struct StreamCall {
  Call call{Call::kContext};
  Stream* stream = nullptr;
  CUresult find(CUstream handle);
  // For calls that enqueue: also waits until there is room for one more operation, which lets go of
  // the mutex. Whatever the caller looks up afterwards stays valid until it enqueues.
  CUresult find_with_room(CUstream handle);
  // For calls that wait for the stream or ask how far it is.
  CUresult find_idle(CUstream handle);
  CUresult refuse_blocking();  // the second half of it, for a stream already found
  // The only door to a stream for what a program asks for. A capturing stream takes a node into its
  // graph instead; `operation` is 0 then.
  CUresult enqueue(const Work& work, uint64_t* operation = nullptr);
  CUresult enqueue_batch(const std::vector<Work>& batch);  // one node, if captured
  // What cannot be captured. Invalidates the capture.
  CUresult refuse_in_capture(CUresult error);
};

// The live range that holds all of [address, address + bytes), or null.
Range* find_range(Runtime& rt, uintptr_t address, size_t bytes);

template <class T>
T* checked(const std::unordered_set<const void*>& known, const void* handle) {
  return known.count(handle) ? static_cast<T*>(const_cast<void*>(handle)) : nullptr;
}

}  // namespace softgpu
