// What the device process knows about its clients: plain values, owned and changed by the engine.
#pragma once

#include <array>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "faults.h"
#include "outbox.h"
#include "pending.h"
#include "protocol.h"
#include "roofline.h"
#include "sm_set.h"

namespace tandem::softgpu {

// CUresult values that the device returns; the numbers are the driver API's.
enum Status : uint32_t {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kDeviceUnavailable = 46,
  kInvalidDevice = 101,
  kEccUncorrectableError = 214,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotReady = 600,
  kContextIsDestroyed = 709,
  kIllegalAddress = 700,
  kLaunchFailed = 719,
  kNotPermitted = 800,
  kMpsConnectionFailed = 805,
  kMpsRpcFailure = 806,
  kMpsServerNotReady = 807,
  kMpsMaxClientsReached = 808,
  kMpsClientTerminated = 810,
  kUnknown = 999,
};

inline std::string name_of(const char (&field)[kNameBytes]) {
  return std::string(field, strnlen(field, kNameBytes));
}

struct Client;
struct Op;

// An interprocess event.
struct SharedEvent {
  uint64_t cookie = 0;
  OpRef recorded;                        // the newest record
  std::map<uint32_t, uint32_t> holders;  // connection -> how often it created or opened the event
};

struct Watch {  // a client wants to hear when an operation ends
  uint32_t connection;
  uint64_t request, event;
};

struct Context {
  Client* client = nullptr;
  uint64_t number = 0;  // chosen by the client
  uint32_t gpu = 0;
  uint32_t sm_percent = 100;
  uint32_t poison = kSuccess;  // after a failed operation: the status of everything in the context
};

struct Stream {
  Context* context = nullptr;
  uint64_t number = 0;
  int32_t priority = 0;
  bool closing = false;   // destroyed by the client; goes when its last operation has ended
  bool confined = false;  // to `sms`: belongs to a green context
  SmSet sms;
  Pending* first = nullptr;  // submitted and not done, in order
  Pending* last = nullptr;
  Op* op = nullptr;               // the first one, once nothing holds it back
  bool waits = false;             // for another stream's operation; this stream is its waiter
  Stream* next_waiter = nullptr;  // waiter of the same operation
};

// An operation that nothing holds back any more. Until it is done it is with the Gpu (kernels,
// copies, memsets) or with the engine (everything that takes no device time).
struct Op {
  uint64_t id = 0;
  Client* client = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OpKind kind = OpKind::kEvent;
  int32_t priority = 0;  // the launch's own, or the stream's
  std::string name;
  KernelShape kernel;
  uint64_t bytes = 0;  // moved in total, kernels included
  FaultKind fault = FaultKind::kNone;
  uint64_t slowness = 1;  // a copy lasts this many times as long

  Pending* submitted = nullptr;
  bool started = false;
  bool needs_body = false;
  bool body_done = false;
  bool cost_pending = false;  // BODY will tell the cost; until then the operation holds its SMs
  uint32_t status = kSuccess;
  uint64_t ready_ns = 0, start_ns = 0;
  uint64_t retry_ns = kNever;  // unsatisfied kMemOpWait: when to ask the client again

  // Progress, kept by the Gpu. `duration_ns` is for the whole operation at its present share.
  double remaining = 1;  // fraction of the whole
  double duration_ns = 0;
  uint64_t since_ns = 0;       // when `remaining` was right
  uint64_t end_ns = kNever;    // valid while it progresses
  SmSet sm_set;                // where a kernel runs at present
  uint32_t sms = 0;            // number of SMs in `sm_set`
  uint64_t part_start_ns = 0;  // start of the timeline line being written
  double part_remaining = 1;
  uint64_t held_ns = 0;  // how long it held SMs while its cost was unknown
  uint32_t part = 0;

  void leave_sms() {
    sm_set.reset();
    sms = 0;
  }
};

// Order among operations that are ready: by stream priority, then first come, first served. Ties
// are broken by numbers that repeat from run to run, never by the order in which packets arrived.
struct RunsBefore {
  bool operator()(const Op* a, const Op* b) const;
};

// CUprocessState, as far as it is used here.
enum class ProcessState : uint32_t { kRunning = 0, kLocked = 1, kCheckpointed = 2 };

// A lock that was requested and is not in effect yet.
struct PendingLock {
  uint32_t requester = 0;  // connection; 0: no request
  uint64_t request = 0;
  uint64_t deadline_ns = kNever;
  bool frozen = false;  // no call is under way any more
};

enum class Role : uint8_t { kUnknown, kWorker, kObserver, kQuery, kMpsServer };

// Virtual clock: which of its events a client must hear of at once. A DONE that none of its threads
// waits for is kept and sent with a later one; see Idle.
struct Attention {
  uint64_t patience = 0;  // how many DONEs make it due
  uint64_t awaited[kMaxAwaited] = {};
  uint64_t kept = 0;
  bool due = false;  // some event cannot wait
};

struct Client {
  uint32_t connection = 0;
  uint32_t id = 0;  // from HELLO on
  int32_t pid = 0;
  uint32_t uid = 0;  // 0: root, or the owner of the device
  Role role = Role::kUnknown;
  std::string name;
  uint32_t mps_server = 0;    // the server whose client this is; 0: none
  uint32_t mps_priority = 0;  // larger is less urgent; ranks above all stream priorities
  bool mps_fault = false;     // for a server: set until the clients that a fault hit have gone
  ProcessState state = ProcessState::kRunning;
  PendingLock pending_lock;
  bool watches_events = false;  // for a query connection: it is sent XIDs and ECC errors
  uint32_t fate = kSuccess;     // the status of every context of this client
  std::array<uint64_t, kMaxDevices> memory_limit_bytes;  // kNever: none
  bool condemned = false;  // misbehaved: the edge is about to close it

  // Virtual clock.
  bool busy = false;
  bool left_behind = false;  // an observer that was silent for too long
  uint64_t deadline_ns = kNever;
  uint64_t look_step_ns = 0;  // 0: no thread polls
  uint64_t looked_ns = 0;     // when it was last told to look
  bool for_time = false;      // the thread with deadline_ns waits for time alone
  uint64_t changes_seen = 0;  // Engine::changes_ at that time
  uint64_t spoke_real_ns = 0;

  Outbox replies;  // answers to requests: sent at once
  Outbox events;   // START, DONE, TIME, FAULT: on the virtual clock, sent in this client's turn
  Attention attention;
  uint64_t sent_packets = 0;

  std::map<uint64_t, Context> contexts;
  std::map<uint64_t, Stream> streams;
  OpTable ops;
  uint64_t last_op = 0;
  size_t allocations = 0;  // how many it holds
  uint64_t ops_done = 0;

  bool takes_part() const { return role == Role::kWorker || role == Role::kObserver; }
};

inline bool RunsBefore::operator()(const Op* a, const Op* b) const {
  const auto key = [](const Op* op) {
    return std::make_tuple(op->client->mps_priority, op->priority, op->ready_ns, op->client->id,
                           op->id);
  };
  return key(a) < key(b);
}

}  // namespace tandem::softgpu
