// What the device process knows of its clients: plain values, owned and changed by the engine.
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

// CUresult values the device hands out; the driver API's own numbers.
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
  std::map<uint32_t, uint32_t> holders;  // connection -> how often it made or opened it
};

struct Watch {  // somebody wants to hear of an operation's end
  uint32_t connection;
  uint64_t request, event;
};

struct Context {
  Client* client = nullptr;
  uint64_t number = 0;  // the client's
  uint32_t gpu = 0;
  uint32_t sm_percent = 100;
  uint32_t poison = kSuccess;  // after a failed operation everything in the context has this status
};

struct Stream {
  Context* context = nullptr;
  uint64_t number = 0;
  int32_t priority = 0;
  bool closing = false;   // destroyed by the client; goes when its last operation has ended
  bool confined = false;  // to `sms`: a green context's
  SmSet sms;
  Pending* first = nullptr;  // what was submitted and is not done, in order
  Pending* last = nullptr;
  Op* op = nullptr;               // the first one, once nothing holds it back
  bool waits = false;             // the first one comes after another stream's, whose waiter this is
  Stream* next_waiter = nullptr;  // of the same operation
};

// An operation that nothing holds back any more: the Gpu (kernels, copies, memsets) or the engine
// (everything that takes no device time) has it until it is done.
struct Op {
  uint64_t id = 0;
  Client* client = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OpKind kind = OpKind::kEvent;
  int32_t priority = 0;  // the launch's own, or its stream's
  std::string name;
  KernelShape kernel;
  uint64_t bytes = 0;  // moved in total, kernels included
  FaultKind fault = FaultKind::kNone;
  uint64_t slowness = 1;  // a copy lasts so many times as long

  Pending* submitted = nullptr;
  bool started = false;
  bool needs_body = false;
  bool body_done = false;
  bool cost_pending = false;  // its BODY will tell; until then it holds its SMs
  uint32_t status = kSuccess;
  uint64_t ready_ns = 0, start_ns = 0;
  uint64_t retry_ns = kNever;  // unsatisfied kMemOpWait: when to ask the client again

  // Progress, kept by the Gpu. `duration_ns` is that of the whole operation at the present share.
  double remaining = 1;  // of the whole
  double duration_ns = 0;
  uint64_t since_ns = 0;       // `remaining` was right then
  uint64_t end_ns = kNever;    // while it progresses
  SmSet sm_set;                // a kernel's present place
  uint32_t sms = 0;            // how many these are
  uint64_t part_start_ns = 0;  // of the timeline line being written
  double part_remaining = 1;
  uint64_t held_ns = 0;        // with SMs, while its cost was not known
  uint32_t part = 0;

  void leave_sms() {
    sm_set.reset();
    sms = 0;
  }
};

// Order among operations that are ready: urgent streams, then first come; ties are broken by
// numbers that repeat from run to run, never by the order in which packets happened to arrive.
struct RunsBefore {
  bool operator()(const Op* a, const Op* b) const;
};

// CUprocessState, as far as it is used.
enum class ProcessState : uint32_t { kRunning = 0, kLocked = 1, kCheckpointed = 2 };

// A lock that somebody asked for and that the client has not reached yet.
struct PendingLock {
  uint32_t requester = 0;  // connection; 0: nobody asks
  uint64_t request = 0;
  uint64_t deadline_ns = kNever;
  bool frozen = false;  // no call is under way any more
};

enum class Role : uint8_t { kUnknown, kWorker, kObserver, kQuery, kMpsServer };

// Virtual clock: which of its events a client has to hear of at once. DONEs that none of its threads
// waits for are kept for later company; see Idle.
struct Attention {
  uint64_t patience = 0;  // so many of them
  uint64_t awaited[kMaxAwaited] = {};
  uint64_t kept = 0;
  bool due = false;  // something among the events cannot wait
};

struct Client {
  uint32_t connection = 0;
  uint32_t id = 0;  // from HELLO on
  int32_t pid = 0;
  uint32_t uid = 0;  // 0: root, or whose device this is
  Role role = Role::kUnknown;
  std::string name;
  uint32_t mps_server = 0;    // whose client it is; 0: none's
  uint32_t mps_priority = 0;  // larger is less urgent, before all stream priorities
  bool mps_fault = false;     // of a server: until the clients that a fault hit have gone
  ProcessState state = ProcessState::kRunning;
  PendingLock pending_lock;
  bool watches_events = false;  // of a query connection: hears of XIDs and ECC errors
  uint32_t fate = kSuccess;   // what every context of it has come to
  std::array<uint64_t, kMaxDevices> memory_limit_bytes;  // kNever: none
  bool condemned = false;   // misbehaved: the edge is about to close it

  // Virtual clock.
  bool busy = false;
  bool left_behind = false;     // an observer that was silent for too long
  uint64_t deadline_ns = kNever;
  uint64_t look_step_ns = 0;   // 0: it does not look
  uint64_t looked_ns = 0;      // when it was last told to
  bool for_time = false;       // deadline_ns is not of one who looks
  uint64_t changes_seen = 0;   // of Engine::changes_, by then
  uint64_t spoke_real_ns = 0;

  Outbox replies;  // answers to requests: sent at once
  Outbox events;   // START, DONE, TIME, FAULT: on the virtual clock sent in this client's turn
  Attention attention;
  uint64_t sent_packets = 0;

  std::map<uint64_t, Context> contexts;
  std::map<uint64_t, Stream> streams;
  OpTable ops;
  uint64_t last_op = 0;
  size_t allocations = 0;  // held
  uint64_t ops_done = 0;

  bool takes_part() const { return role == Role::kWorker || role == Role::kObserver; }
};

inline bool RunsBefore::operator()(const Op* a, const Op* b) const {
  const auto key = [](const Op* op) {
    return std::make_tuple(op->client->mps_priority, op->priority, op->ready_ns,
                           op->client->id, op->id);
  };
  return key(a) < key(b);
}

}  // namespace tandem::softgpu
