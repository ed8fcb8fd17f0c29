// Messages between a client process (libcuda.so.1, libnvidia-ml.so.1 of the software GPU) and the
// device process `tandem-softgpu`. SOCK_SEQPACKET; a packet holds one or more messages, each a Header
// and its struct. The connection is the lease: when it closes, everything of that client is freed.
//
// The device process owns the clock, the memory ledger, the order of work and the timeline. Memory
// contents and kernel bodies stay in the client: the device says START when an operation begins on
// the modelled GPU, the client executes it and answers BODY, the device says DONE when it has ended.
//
//   client                                device process
//    | HELLO --------------------------->  |
//    | <-------------------------- WELCOME |
//    | SUBMIT* ------------------------->  |  queued per stream; runs when its deps are DONE
//    | <---------------------------- START |  only for operations with needs_body
//    | BODY ---------------------------->  |  never before START
//    | <----------------------------- DONE |  at the modelled end (real clock: not before BODY)
//    | IDLE / <--------------------- TIME  |  virtual clock only, see below
//
// Virtual clock. The device delivers one message batch to one client at a time and waits until that
// client is idle again, so a run is a discrete-event simulation and repeats exactly. A client is
// busy from HELLO, and again whenever the device sends it anything. It says IDLE when all of its
// known threads wait and everything received is processed; `received` counts the packets received so
// far, and an IDLE whose count is behind is ignored. `deadline_ns` is the earliest time at which one
// of its threads wants to wake (kNever if none); the device answers TIME at that time. Ties go to the
// device's own operations first, then to the lowest client id.
// Bodies of a stream's kernels, copies and memsets are asked for ahead, many in one packet: a START
// may come before the DONEs of those in front of it in the stream, but never past anything that the
// rest of the process could have a hand in (dependencies, host functions, stream memory operations).
// When one fails, the client answers for those after it in the stream without executing them.
// Who only looks at what others write to memory need not look while nobody writes: IDLE says so by
// `look_step_ns`, and the device answers TIME, `look` set, once some client has been at work since the
// last look, that long after it or later. An IDLE with `only_looked` is of a client that was not.
// While nothing is on a GPU and no client waits for time alone (`for_time`), there are only timers of
// those who look: time then advances kPace times as fast as real time at most, and no faster than it
// while only observers are connected.
// Observers (the daemon) take part the same way, but one that is silent for more than
// kObserverPatienceMs of real time is left behind until it speaks again (a stopped daemon must not
// stop the world).
#pragma once

#include <cstdint>

namespace tandem::softgpu {

inline constexpr uint32_t kProtocol = 4;
inline constexpr uint32_t kMaxPacketBytes = 60 * 1024;
inline constexpr uint32_t kMaxDevices = 8;
inline constexpr uint32_t kMaxGpus = kMaxDevices * 7;  // with all of them cut into instances
inline constexpr uint32_t kMaxDeps = 24;
inline constexpr uint32_t kMaxAwaited = 4;
inline constexpr uint32_t kMaxLiveOps = 262'144;  // of one client, which is disconnected for more
inline constexpr uint32_t kNameBytes = 64;
inline constexpr uint32_t kMaxSms = 256;
inline constexpr uint64_t kNever = UINT64_MAX;
inline constexpr uint32_t kNone32 = UINT32_MAX;
inline constexpr uint32_t kObserverPatienceMs = 2000;
inline constexpr uint32_t kPace = 8;
inline constexpr uint32_t kObserverNapMs = 250;  // the most real time that one waits for virtual time

enum class Type : uint16_t {
  kHello = 1, kWelcome, kContextCreate, kContextDestroy, kStreamCreate, kStreamDestroy,
  kMemReserve, kMemReply, kMemRelease, kMemInfo, kMemInfoReply,
  kSubmit, kStart, kBody, kDone, kIdle, kTime, kQuery, kQueryReply, kFault, kSyncTime,
  kStreamConfine, kJoinMps, kJoinReply, kMpsTerminate, kDeviceEvent,
  kCheckpoint, kCheckpointReply, kFreeze, kFrozen,
  kMemRetain, kEventShare, kEventOpen, kEventRelease, kEventWatch, kEventReply,
  kMigChange, kMigReply,
};

struct Header {
  uint16_t type;
  uint16_t size;  // of the message, header included; a multiple of 8
  uint32_t reserved;
};

enum class ClockKind : uint32_t { kReal = 0, kVirtual = 1 };
enum class Mode : uint32_t { kTime = 0, kMps = 1 };
enum HelloFlags : uint32_t {
  kObserver = 1,   // takes part in the clock, submits nothing (the daemon)
  kQueryOnly = 2,  // NVML, status: no part in the clock, does not keep the device alive
  kMpsServer = 4,  // no part in the clock; its connection is the life of an MPS server
};

struct Hello {
  Header header;
  uint32_t protocol;
  uint32_t flags;
  char name[kNameBytes];  // for the timeline and status: argv[0]
};

// What contexts can be on: a device, from the profile, or with MIG each of its instances, which
// share nothing. Everywhere else in this protocol a `device` is the number `gpu` of one of them.
struct DeviceInfo {
  char name[kNameBytes];
  uint8_t uuid[16];
  uint8_t device_uuid[16];  // of the device that it is, or is part of
  uint32_t sm_count;
  uint32_t clock_mhz;
  uint32_t compute_major, compute_minor;
  uint32_t max_threads_per_sm, max_blocks_per_sm;
  uint32_t l2_bytes;
  uint32_t gpu;           // its number, also in the timeline
  uint32_t index;         // of the device that it is, or is part of
  uint32_t gpu_instance;  // from 1; 0: the whole device, without MIG
  uint32_t mig_profile_id, mig_start;  // with MIG: which profile, and its first memory slice
  uint32_t has_mig_on;  // the device that it is, or is part of
  uint32_t is_usable;   // 0: a device with MIG on, or an instance without a compute instance
  uint64_t memory_bytes;
  double flops_per_s;        // whole device, FP32
  double bytes_per_s;        // device memory bandwidth
  double copy_bytes_per_s;   // each copy engine, each way
};

struct Welcome {
  Header header;
  uint32_t protocol;
  uint32_t client_id;  // 0 = refused: wrong protocol
  uint32_t clock;      // ClockKind
  uint32_t mode;       // Mode
  uint64_t now_ns;
  uint32_t device_count;
  uint32_t reserved;
  DeviceInfo device[kMaxGpus];
};

// The first message of a client under MPS: from then on its contexts share the GPU in space with
// those of the server's other clients. Server 0 stands for a device that is in `mps` mode as a whole.
struct JoinMps {
  Header header;
  uint32_t server;    // client_id that the server was welcomed with
  uint32_t priority;  // 0 normal, 1 below normal
  uint64_t memory_limit_bytes[kMaxDevices];  // of this client by DeviceInfo::index; kNever: none
};
struct JoinReply {
  Header header;
  uint32_t status;  // CUresult
  uint32_t reserved;
};
struct MpsTerminate {  // server -> device: end the work of one of its clients
  Header header;
  uint32_t pid, reserved;
};

struct ContextCreate {
  Header header;
  uint64_t context;  // client's number, unique in the client
  uint32_t device;
  uint32_t sm_percent;  // MPS active thread percentage, 100 = all
};
struct ContextDestroy {
  Header header;
  uint64_t context;
};
struct StreamCreate {
  Header header;
  uint64_t context, stream;  // stream: client's number, unique in the client
  int32_t priority;          // lower number = more urgent, as in CUDA
  uint32_t reserved;
};
struct StreamConfine {  // its kernels use these SMs only: a green context's stream
  Header header;
  uint64_t stream;
  uint64_t sms[kMaxSms / 64];  // bit i % 64 of word i / 64 is SM i
};
struct StreamDestroy {
  Header header;
  uint64_t stream;
};

enum class MemKind : uint32_t { kLinear = 0, kVmm = 1, kContext = 2 };
struct MemReserve {
  Header header;
  uint64_t request, bytes;
  uint32_t device, kind;
};
struct MemReply {
  Header header;
  uint64_t request, allocation;  // allocation: device's number, 0 when refused
  uint32_t status;               // CUresult
  uint32_t unmappable;           // a fault: cuMemMap is to refuse it
};
struct MemRelease {
  Header header;
  uint64_t allocation;
};
// Memory of another client that this one has mapped: it stays in the ledger until the last holder
// releases it. Answered by MemReply, INVALID_VALUE where nobody holds it any more.
struct MemRetain {
  Header header;
  uint64_t request, allocation;
};
struct MemInfo {
  Header header;
  uint64_t request;
  uint32_t device, reserved;
};
struct MemInfoReply {
  Header header;
  uint64_t request, free_bytes, total_bytes;
};

enum class OpKind : uint32_t {
  kKernel = 0, kCopyHtoD, kCopyDtoH, kCopyDtoD, kMemset, kHostFunc, kEvent, kMemOpWrite, kMemOpWait,
};
// Submit::needs_body. A kernel whose cost shows only while it is executed gets its SMs and START
// at once; how long it lasts is decided when BODY has told the cost.
enum NeedsBody : uint32_t { kNoBody = 0, kBody = 1, kBodyTellsCost = 2 };
enum SubmitFlags : uint32_t { kOwnPriority = 1 };
// An operation runs after the previous one of its stream and after all of `dep`. Dependencies carry
// what CUDA orders across streams: event waits, legacy default stream barriers. A dependency on an
// operation that has ended, or that never was, is satisfied.
//
// A dependency with kSharedEventBit is on the operation that recorded that shared event last.
inline constexpr uint64_t kSharedEventBit = uint64_t{1} << 63;
struct Submit {
  Header header;
  uint64_t op;  // client's number, strictly increasing
  uint64_t context, stream;
  uint32_t kind;         // OpKind
  uint32_t needs_body;   // NeedsBody: client executes something, START is sent and BODY awaited
  uint64_t grid_blocks;  // kernels. kEvent: with kSharedEventBit the shared event it records
  uint32_t block_threads;
  uint32_t dep_count;
  double flops_per_block, bytes_per_block;  // kernels
  uint64_t bytes;                           // copies, memsets
  uint32_t flags;          // SubmitFlags
  int32_t priority;        // with kOwnPriority: instead of the stream's
  uint32_t blocks_per_sm;  // that fit by registers and shared memory; 0 = as many as threads allow
  uint32_t least_sms;      // runs on no fewer at once: cooperative grids, clusters
  char name[kNameBytes];
  uint64_t dep[kMaxDeps];
};
struct Start {
  Header header;
  uint64_t op, now_ns;
  uint64_t sms[kMaxSms / 64];  // as in StreamConfine: that a kernel begins on. None: not known yet
};
struct Body {
  Header header;
  uint64_t op;
  uint32_t status;   // CUresult of the execution; not 0 poisons the context as on a GPU
  uint32_t reserved;
  uint64_t wait;     // kMemOpWait: 1 = not satisfied yet, ask again (device: START later)
  double flops = 0, bytes = 0;  // kBodyTellsCost: of the whole kernel
  double asleep_ns = 0;         // the same: it lasts as long at least
};
struct Done {
  Header header;
  uint64_t op, start_ns, end_ns;
  uint32_t status;  // CUresult; 0 unless the operation or its context failed
  uint32_t reserved;
};

// Interprocess events. The device process knows which operation recorded one last, so a wait in one
// client is ordered after work of another without either believing the other. Only those who made
// (SHARE) or opened one may use it; `cookie`, chosen by its maker, is what an opener has to know.
struct EventShare {  // op: the newest record so far, 0 = none
  Header header;
  uint64_t request, op, cookie;
};
struct EventOpen {
  Header header;
  uint64_t request, event, cookie;
};
struct EventRelease {
  Header header;
  uint64_t event;
};
struct EventWatch {  // patient: answer only once the newest record has ended
  Header header;
  uint64_t request, event;
  uint32_t patient, reserved;
};
struct EventReply {
  Header header;
  uint64_t request, event;
  uint32_t status;  // CUresult; of a watch NOT_READY while the newest record has not ended
  uint32_t reserved;
};

struct Idle {
  Header header;
  uint64_t received, deadline_ns;
  // May be left out, and is then 0. No thread wants to hear of a DONE before `patience` of them have
  // come, or one of `awaited` (0: none) is among them; the device may keep others back until then,
  // or until it has anything else to say. What failed, and kMemOpWrite, is always said at once.
  uint64_t patience = 0;
  uint64_t awaited[kMaxAwaited] = {};
  uint64_t look_step_ns = 0;  // 0: nobody looks
  uint32_t only_looked = 0;
  uint32_t for_time = 0;  // `deadline_ns` is of a thread that waits for nothing else
};
struct Time {
  Header header;
  uint64_t now_ns;
  uint32_t look = 0, reserved = 0;
};
// Client -> device: a thread went on that nobody of the device's had woken (a futex, a socket). The
// client is busy from here on, as after any message but IDLE, and gets TIME at once.
struct SyncTime {
  Header header;
};

struct Query {  // what: 0 = status as JSON, 1 = NVML figures as JSON, 2 = send DEVICE_EVENTs
  Header header;
  uint64_t request;
  uint32_t what, reserved;
};
struct QueryReply {  // text follows, `text_bytes` of it, padded to 8
  Header header;
  uint64_t request;
  uint32_t text_bytes, reserved;
};
// Changes how a device is cut. Numbers of GPUs are given out anew, so no client may be at work.
enum class MigVerb : uint32_t {
  kSetMode = 0,     // value: 0 off, 1 on
  kCreate,          // value: a profile's id; start: its first memory slice, or kNone32
  kDestroy,         // value: a GPU instance
  kCreateCompute,   // value: the GPU instance, all of which it gets
  kDestroyCompute,  // value: the GPU instance
};
enum class MigStatus : uint32_t { kDone = 0, kNoMig, kInUse, kNoRoom, kNotFound, kNotPermitted };
struct MigChange {
  Header header;
  uint64_t request;
  uint32_t device;  // DeviceInfo::index
  uint32_t verb;    // MigVerb
  uint32_t value, start;
};
struct MigReply {
  Header header;
  uint64_t request;
  uint32_t status;        // MigStatus
  uint32_t gpu_instance;  // that was created
};
enum class CheckpointVerb : uint32_t { kGetState = 0, kLock, kCheckpoint, kRestore, kUnlock };
struct Checkpoint {  // of the process `pid`, by whoever may connect
  Header header;
  uint64_t request;
  uint32_t pid, verb;
  uint64_t timeout_ns;  // kLock: of the device's time; 0 = none
};
struct CheckpointReply {
  Header header;
  uint64_t request;
  uint32_t status, state;  // CUresult, CUprocessState
};
// Device -> client: hold back calls that begin from now on (or let go of them). The client answers
// FROZEN once those under way have returned; what they submitted comes before it.
struct Freeze {
  Header header;
  uint32_t on, reserved;
};
struct Frozen {
  Header header;
};
struct DeviceEvent {  // to query connections that asked; the numbers are NVML's
  Header header;
  uint64_t type, data;
  uint32_t device, reserved;
};
struct Fault {  // device -> client: from now on calls in this context return `status`
  Header header;
  uint64_t context;
  uint32_t status, reserved;
};

static_assert(sizeof(Submit) % 8 == 0 && sizeof(Welcome) % 8 == 0 && sizeof(Hello) % 8 == 0);

}  // namespace tandem::softgpu
