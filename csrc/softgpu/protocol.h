// Messages between a client process (libcuda.so.1 or libnvidia-ml.so.1 of the software GPU) and the
// device process `tandem-softgpu`, over SOCK_SEQPACKET. A packet holds one or more messages, each a
// Header followed by the rest of its struct. The connection is the lease: when it closes,
// everything the client holds is freed.
//
// The device process owns the clock, the memory ledger, the order of work and the timeline. Memory
// contents and kernel bodies stay in the client: the device sends START when an operation begins on
// the modelled GPU, the client executes it and answers BODY, and the device sends DONE when the
// operation has ended.
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
// busy from HELLO on, and again whenever the device sends it anything. It sends IDLE when all of
// its known threads wait and it has processed everything it received. `received` counts the packets
// received so far; the device ignores an IDLE whose count is behind. `deadline_ns` is the earliest
// time at which one of the client's threads wants to wake (kNever if none); the device sends TIME
// at that time. Ties go to the device's own operations first, then to the lowest client id.
//
// The device requests the bodies of a stream's kernels, copies and memsets ahead, many in one
// packet: a START may come before the DONEs of the operations in front of it in the stream, but
// never past anything that involves the rest of the process (dependencies, host functions, stream
// memory operations). When a body fails, the client answers for those after it in the stream
// without executing them.
//
// A thread that polls memory which others write need not poll while nobody is at work. IDLE
// requests this with `look_step_ns`: once some client has been at work since the last look, the
// device sends TIME with `look` set, but not before `look_step_ns` have passed since that look. An
// IDLE with `only_looked` says that its client was not at work.
//
// While nothing is on a GPU and no client waits for time alone (`for_time`), only the timers of
// polling threads are left: time then advances at most kPace times as fast as real time, and no
// faster than real time while only observers are connected.
//
// Observers (the daemon) take part the same way, but one that is silent for more than
// kObserverPatienceMs of real time is left behind until it speaks again: a stopped daemon must not
// stop the world.
#pragma once

#include <cstdint>

namespace tandem::softgpu {

inline constexpr uint32_t kProtocol = 4;
inline constexpr uint32_t kMaxPacketBytes = 60 * 1024;
inline constexpr uint32_t kMaxDevices = 8;
inline constexpr uint32_t kMaxGpus = kMaxDevices * 7;  // with MIG instances on all of them
inline constexpr uint32_t kMaxDeps = 24;
inline constexpr uint32_t kMaxAwaited = 4;
inline constexpr uint32_t kMaxLiveOps = 262'144;  // a client with more is disconnected
inline constexpr uint32_t kNameBytes = 64;
inline constexpr uint32_t kMaxSms = 256;
inline constexpr uint64_t kNever = UINT64_MAX;
inline constexpr uint32_t kNone32 = UINT32_MAX;
inline constexpr uint32_t kObserverPatienceMs = 2000;
inline constexpr uint32_t kPace = 8;
// An observer waits for virtual time at most this long in real time.
inline constexpr uint32_t kObserverNapMs = 250;

enum class Type : uint16_t {
  kHello = 1,
  kWelcome,
  kContextCreate,
  kContextDestroy,
  kStreamCreate,
  kStreamDestroy,
  kMemReserve,
  kMemReply,
  kMemRelease,
  kMemInfo,
  kMemInfoReply,
  kSubmit,
  kStart,
  kBody,
  kDone,
  kIdle,
  kTime,
  kQuery,
  kQueryReply,
  kFault,
  kSyncTime,
  kStreamConfine,
  kJoinMps,
  kJoinReply,
  kMpsTerminate,
  kDeviceEvent,
  kCheckpoint,
  kCheckpointReply,
  kFreeze,
  kFrozen,
  kMemRetain,
  kEventShare,
  kEventOpen,
  kEventRelease,
  kEventWatch,
  kEventReply,
  kMigChange,
  kMigReply,
};

struct Header {
  uint16_t type;
  uint16_t size;  // of the message, header included; multiple of 8
  uint32_t reserved;
};

enum class ClockKind : uint32_t { kReal = 0, kVirtual = 1 };
enum class Mode : uint32_t { kTime = 0, kMps = 1 };
enum HelloFlags : uint32_t {
  kObserver = 1,   // takes part in the clock, submits nothing (the daemon)
  kQueryOnly = 2,  // NVML, status: no part in the clock; does not keep the device alive
  kMpsServer = 4,  // no part in the clock; the MPS server lives as long as this connection
};

struct Hello {
  Header header;
  uint32_t protocol;
  uint32_t flags;
  char name[kNameBytes];  // for the timeline and status: argv[0]
};

// Something that contexts can be created on: a device of the profile or, with MIG, each of its
// instances, which share nothing. Everywhere else in this protocol `device` is the `gpu` number
// here.
struct DeviceInfo {
  char name[kNameBytes];
  uint8_t uuid[16];
  uint8_t device_uuid[16];  // of the device that this is or is part of
  uint32_t sm_count;
  uint32_t clock_mhz;
  uint32_t compute_major, compute_minor;
  uint32_t max_threads_per_sm, max_blocks_per_sm;
  uint32_t l2_bytes;
  uint32_t gpu;                        // its number, also in the timeline
  uint32_t index;                      // of the device that this is or is part of
  uint32_t gpu_instance;               // from 1; 0: the whole device, without MIG
  uint32_t mig_profile_id, mig_start;  // with MIG: the profile, and the first memory slice
  uint32_t has_mig_on;                 // whether the device that this is or is part of has MIG on
  uint32_t is_usable;  // 0: a device with MIG on, or an instance without a compute instance
  uint64_t memory_bytes;
  double flops_per_s;       // whole device, FP32
  double bytes_per_s;       // device memory bandwidth
  double copy_bytes_per_s;  // each copy engine, each way
};

struct Welcome {
  Header header;
  uint32_t protocol;
  uint32_t client_id;  // 0: refused, wrong protocol version
  uint32_t clock;      // ClockKind
  uint32_t mode;       // Mode
  uint64_t now_ns;
  uint32_t device_count;
  uint32_t reserved;
  DeviceInfo device[kMaxGpus];
};

// First message of a client under MPS: its contexts then share the GPU in space with those of the
// server's other clients. Server 0 stands for a device that is in `mps` mode as a whole.
struct JoinMps {
  Header header;
  uint32_t server;                           // client_id in the server's WELCOME
  uint32_t priority;                         // 0 normal, 1 below normal
  uint64_t memory_limit_bytes[kMaxDevices];  // by DeviceInfo::index; kNever: none
};
struct JoinReply {
  Header header;
  uint32_t status;  // CUresult
  uint32_t reserved;
};
struct MpsTerminate {  // server -> device: terminate the work of one of the server's clients
  Header header;
  uint32_t pid, reserved;
};

struct ContextCreate {
  Header header;
  uint64_t context;  // chosen by the client, unique within it
  uint32_t device;
  uint32_t sm_percent;  // MPS active thread percentage, 100 = all
};
struct ContextDestroy {
  Header header;
  uint64_t context;
};
struct StreamCreate {
  Header header;
  uint64_t context, stream;  // stream: chosen by the client, unique within it
  int32_t priority;          // lower number = more urgent, as in CUDA
  uint32_t reserved;
};
struct StreamConfine {  // for a stream of a green context: its kernels use only these SMs
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
  uint64_t request, allocation;  // allocation: chosen by the device; 0: refused
  uint32_t status;               // CUresult
  uint32_t unmappable;           // injected fault: cuMemMap must refuse it
};
struct MemRelease {
  Header header;
  uint64_t allocation;
};
// Retains memory of another client that this one has mapped: it stays in the ledger until the last
// holder releases it. Answered by MemReply, with INVALID_VALUE if nobody holds it any more.
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
  kKernel = 0,
  kCopyHtoD,
  kCopyDtoH,
  kCopyDtoD,
  kMemset,
  kHostFunc,
  kEvent,
  kMemOpWrite,
  kMemOpWait,
};
// Submit::needs_body. A kernel whose cost is known only by executing it gets its SMs and START at
// once; its duration is decided when BODY has told the cost.
enum NeedsBody : uint32_t { kNoBody = 0, kBody = 1, kBodyTellsCost = 2 };
enum SubmitFlags : uint32_t { kOwnPriority = 1 };
// An operation runs after the previous one of its stream and after all of `dep`. Dependencies carry
// what CUDA orders across streams: event waits, legacy default stream barriers. A dependency on an
// operation that has ended, or that never existed, is satisfied.
//
// A dependency with kSharedEventBit names a shared event: it is on the last operation that recorded
// it.
inline constexpr uint64_t kSharedEventBit = uint64_t{1} << 63;
struct Submit {
  Header header;
  uint64_t op;  // chosen by the client, strictly increasing
  uint64_t context, stream;
  uint32_t kind;         // OpKind
  uint32_t needs_body;   // NeedsBody: if not 0, the device sends START and awaits BODY
  uint64_t grid_blocks;  // kernels; kEvent with kSharedEventBit: the shared event it records
  uint32_t block_threads;
  uint32_t dep_count;
  double flops_per_block, bytes_per_block;  // kernels
  uint64_t bytes;                           // copies, memsets
  uint32_t flags;                           // SubmitFlags
  int32_t priority;                         // with kOwnPriority: replaces the stream's
  uint32_t blocks_per_sm;  // limit by registers and shared memory; 0: only threads limit it
  uint32_t least_sms;      // waits until this many are free at once: cooperative grids, clusters
  char name[kNameBytes];
  uint64_t dep[kMaxDeps];
};
struct Start {
  Header header;
  uint64_t op, now_ns;
  // SMs that a kernel begins on, as in StreamConfine; all 0: not known yet
  uint64_t sms[kMaxSms / 64];
};
struct Body {
  Header header;
  uint64_t op;
  uint32_t status;  // CUresult of the execution; not 0: poisons the context as on a GPU
  uint32_t reserved;
  uint64_t wait;  // kMemOpWait: 1: not satisfied yet, the device sends START again later
  double flops = 0, bytes = 0;  // kBodyTellsCost: of the whole kernel
  double asleep_ns = 0;         // kBodyTellsCost: the kernel lasts at least this long
};
struct Done {
  Header header;
  uint64_t op, start_ns, end_ns;
  uint32_t status;  // CUresult; 0 unless the operation or its context failed
  uint32_t reserved;
};

// Interprocess events. The device process knows which operation last recorded an event, so a wait
// in one client is ordered after work of another without either trusting the other. Only clients
// that created (SHARE) or opened an event may use it; an opener must know `cookie`, chosen by its
// creator.
struct EventShare {  // op: the newest record so far, 0: none
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
  uint32_t status;  // CUresult; for a watch NOT_READY while the newest record has not ended
  uint32_t reserved;
};

struct Idle {
  Header header;
  uint64_t received, deadline_ns;
  // The fields from here on may be left out and are then 0. No thread needs a DONE before
  // `patience` of them have come, or before one of `awaited` (0: none); the device may hold DONEs
  // back until then, or until it has anything else to say. It always reports failures and
  // kMemOpWrite at once.
  uint64_t patience = 0;
  uint64_t awaited[kMaxAwaited] = {};
  uint64_t look_step_ns = 0;  // 0: no thread polls
  uint32_t only_looked = 0;
  uint32_t for_time = 0;  // the thread with `deadline_ns` waits for nothing else
};
struct Time {
  Header header;
  uint64_t now_ns;
  uint32_t look = 0, reserved = 0;
};
// Client -> device: a thread was woken by something other than the device (a futex, a socket). The
// client is busy from here on, as after any message but IDLE, and gets TIME at once.
struct SyncTime {
  Header header;
};

struct Query {  // what: 0 = status as JSON, 1 = NVML figures as JSON, 2 = send DEVICE_EVENTs
  Header header;
  uint64_t request;
  uint32_t what, reserved;
};
struct QueryReply {  // `text_bytes` of text follow, padded to a multiple of 8
  Header header;
  uint64_t request;
  uint32_t text_bytes, reserved;
};
// Changes how a device is partitioned. All GPUs are renumbered, so no client may be at work.
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
  uint32_t gpu_instance;  // the one created
};
enum class CheckpointVerb : uint32_t { kGetState = 0, kLock, kCheckpoint, kRestore, kUnlock };
struct Checkpoint {  // acts on the process `pid`; any client may send it
  Header header;
  uint64_t request;
  uint32_t pid, verb;
  uint64_t timeout_ns;  // kLock: on the device's clock; 0: none
};
struct CheckpointReply {
  Header header;
  uint64_t request;
  uint32_t status, state;  // CUresult, CUprocessState
};
// Device -> client: hold back calls that begin from now on (or release them). The client answers
// FROZEN once the calls already under way have returned; what they submitted comes before it.
struct Freeze {
  Header header;
  uint32_t on, reserved;
};
struct Frozen {
  Header header;
};
struct DeviceEvent {  // to query connections that asked for them; the numbers are NVML's
  Header header;
  uint64_t type, data;
  uint32_t device, reserved;
};
struct Fault {  // device -> client: from now on, calls in this context return `status`
  Header header;
  uint64_t context;
  uint32_t status, reserved;
};

static_assert(sizeof(Submit) % 8 == 0 && sizeof(Welcome) % 8 == 0 && sizeof(Hello) % 8 == 0);

}  // namespace tandem::softgpu
