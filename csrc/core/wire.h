// Messages on the attach socket (SOCK_SEQPACKET, one message per packet). Fixed-size structs in
// host byte order, since both ends are on one machine. Identity never comes from a message: the
// daemon reads SO_PEERCRED and opens a pidfd.
//
//   shim                                daemon
//    | HELLO  ------------------------->  |   clamps the requests by uid
//    | <---- WELCOME + 3 fds  (or REFUSED)|   command, state, presence memfds
//    | MAPPED ------------------------->  |   now presence can be sealed and shown to peers
//    | <---------------- PRESENCE + 1 fd  |   a peer to watch; PRESENCE_GONE takes it away
//    | SHARED, USES ------------------->  |   if WELCOME said that the daemon understands them
//    | <--------------- HOST_POOL + 1 fd  |   where swapped pages go; only for swappable processes
//    | <---------------------------- SWAP |   read the target in the command page
//    | <--------------- HOST_FILE + 1 fd  |   this file holds a copy of a host pool's contents
//    | <----------------------- HOST_BACK |   give back a host pool that is empty
//    |  ... the connection is the lease: closing it releases everything ...
//
//   tandem run                          daemon
//    | REGISTER ----------------------->  |   pid from SO_PEERCRED; survives the exec
//    | <------------ REGISTERED / REFUSED |
//
// Versions: `size` is the size of the sender's struct. A receiver accepts any size of at least the
// v1 size of the type, reads the fields it knows and ignores the rest; a sender of a newer struct
// blanks no fields for older receivers. HELLO names the oldest and newest layout that the shim can
// serve; the daemon picks one or refuses.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::wire {

inline constexpr uint32_t kMagic = 0x4d444e54;  // "TNDM"
inline constexpr uint16_t kProtocolVersion = 1;
inline constexpr uint32_t kMaxMessageBytes = 4096;
inline constexpr uint32_t kNameBytes = 64;  // NUL-terminated UTF-8, truncated
inline constexpr uint32_t kCommandBytes = 256;
inline constexpr uint32_t kEnvironmentBytes = 512;
inline constexpr uint32_t kReasonBytes = 512;
inline constexpr uint32_t kMaxDevices = 16;

enum class Type : uint16_t {
  kHello = 1,
  kWelcome = 2,
  kMapped = 3,
  kPresence = 4,
  kPresenceGone = 5,
  kRefused = 6,
  kRegister = 7,
  kRegistered = 8,
  kShared = 9,
  kUses = 10,
  kHostPool = 12,
  kSwap = 13,
  kHostFile = 14,
  kHostBack = 15,
};

enum class ClockKind : uint32_t { kMonotonic = 0, kSoftGpuVirtual = 1 };

enum class RefusalCode : uint32_t {
  kProtocol = 1,
  kMalformed = 2,
  // The daemon cannot identify the process, which is outside the daemon's PID namespace.
  kIdentity = 3,
  kNoRoom = 4,
  kUnknownJob = 5,
  kShuttingDown = 6,
  kUnfit = 7,  // none of the GPUs in question can ever meet the request
  // The answer depends on something that will be known in a moment; sent only to those who ask
  // again.
  kNotYet = 8,
};

// How a job is to be isolated from others. The numbers are those of tandem.v1.Mode.
enum class Isolation : uint32_t { kNotSaid = 0, kTime = 1, kMps = 2, kMpsGreen = 3, kMig = 4 };

// What a daemon understands beyond the first version. A shim sends it nothing else.
inline constexpr uint64_t kFeatureShared = 1, kFeatureUses = 2;
// Records with both halves of `value`, sources of copies, and successful queries.
inline constexpr uint64_t kFeatureOrder = 4;
inline constexpr uint64_t kFeatureSamples = 8;  // the state pages end with the sample ring
inline constexpr uint64_t kFeatureSwap = 32;    // this process's memory is moved out and back

// What a shim understands beyond the first version. A daemon sends it nothing else.
inline constexpr uint32_t kAbilityHostFile = 1;
inline constexpr uint32_t kAbilityHostBack = 2;
// About the process itself: it was attached before, and stays on the SMs that it was told then.
inline constexpr uint32_t kAbilityHasSet = 4;

struct Header {
  uint32_t magic;
  uint16_t version;
  uint16_t type;
  uint32_t size;  // of the whole message, header included
  uint32_t reserved;
};

// What a process or `tandem run` asks for. Zero and kNoLimit mean "not said".
struct Request {
  uint32_t job_class;  // shm::JobClass
  uint32_t sm_percent;
  uint64_t memory_bytes;
  uint64_t memory_min_bytes;
  uint64_t slo_p99_ns;
  uint32_t preemptible;    // 0 not said, 1 yes, 2 no
  uint8_t memory_percent;  // of the device, if memory_bytes is not said; REGISTER only
  uint8_t swappable;       // 0 not said, 1 yes, 2 no, 3 as a whole, by the driver's checkpoints
  uint16_t wait_memory_s;  // how long an allocation may wait for memory
  char name[kNameBytes];
  char group[kNameBytes];
};

// The device memory that a process needs for its lifetime and in each iteration, where it says so;
// both 0 = not said. Appended to the messages of the first version, which end before it.
struct Promise {
  uint64_t persistent_bytes;  // for its lifetime
  uint64_t ephemeral_bytes;   // at most, in addition, within an iteration
};

// What a process asks of the SMs. Appended after the promise, where older senders' messages end.
struct Space {
  uint32_t sm_count;   // instead of Request::sm_percent; 0 = not said
  uint32_t isolation;  // Isolation
};

// The share of the SMs that an MPS client may use at most, according to its environment: all, or
// fewer.
inline constexpr uint32_t kAllSms = 100'000;

struct Hello {
  Header header;
  uint32_t layout_min;
  uint32_t layout_max;
  uint32_t shim_version;  // major<<16 | minor<<8 | patch
  uint32_t clock;         // ClockKind the process can use
  uint64_t job_id;        // TANDEM_JOB_ID, 0 = none
  Request request;
  uint32_t device_count;
  uint32_t abilities;  // kAbility..; 0 from shims that predate it
  uint8_t device_uuid[kMaxDevices][16];
  Promise promise;
  Space space;
  uint32_t mps_sms;  // in thousandths of a percent, at most kAllSms; 0 from shims that do not say
  uint32_t idle_release_s;  // idle for this long, it gives up its memory; 0 = not said
};

struct Welcome {
  Header header;
  uint32_t layout_version;
  uint32_t clock;  // ClockKind of every *_ns in the shared pages
  uint64_t process_id;
  uint64_t job_id;
  uint64_t state_bytes;
  uint64_t features;  // kFeature..; 0 from daemons that predate it
  uint64_t reserved[3];
};

struct Mapped {
  Header header;
};

// The process exported or imported something on the GPU. `key` is the same for all processes that
// have the same object, whatever it is: they may wait for each other and belong together.
struct Shared {
  Header header;
  uint64_t key;  // never 0
};

// The process uses this GPU as well.
struct Uses {
  Header header;
  uint8_t device_uuid[16];
};

struct Presence {  // also PRESENCE_GONE, without an fd
  Header header;
  uint32_t index;  // < shm::kPresenceMax
  uint32_t job_class;
};

// A sealed memfd in which the process keeps swapped pages; `bytes` of it (a multiple of 2 MiB) are
// its own. Adds to the pools sent before.
struct HostPool {
  Header header;
  uint64_t bytes;
};

// The file holds what was in a pool while the order `since` was the newest. If it still is, the
// shim gives the pool's memory back and later reads the contents from the file. Ends as an order
// does, in StateSwap::done.
struct HostFile {
  Header header;
  uint32_t order;  // its own order number
  uint32_t since;
  uint64_t pool;  // pools are counted from 1, in the order in which this connection sent them
};

// The shim gives the pool's memory back if the pool is empty and `since` is still the newest order.
// Ends as an order does.
struct HostBack {
  Header header;
  uint32_t order;
  uint32_t since;
  uint64_t pool;  // as for HostFile
};

struct Swap {
  Header header;
};

struct Refused {
  Header header;
  uint32_t code;  // RefusalCode
  uint32_t reserved;
  char reason[kReasonBytes];  // NUL-terminated UTF-8, cut between characters; 160 bytes in older
                              // ones
};

inline constexpr uint32_t kRegisterNoWait = 1;     // refuse it if it would have to wait in line
inline constexpr uint32_t kRegisterAsksAgain = 2;  // it may be refused with kNotYet
// Creates no job: the answer is REGISTERED with job 0, or REFUSED.
inline constexpr uint32_t kRegisterOnlyAsks = 4;

struct Register {
  Header header;
  Request request;
  char command[kCommandBytes];
  Promise promise;
  Space space;
  char gpu[kNameBytes];     // index or UUID of the GPU that the job is bound to; empty = not said
  uint32_t flags;           // kRegister..; unknown ones mean nothing
  uint32_t idle_release_s;  // as in Hello
};

struct Registered {
  Header header;
  uint64_t job_id;
  uint32_t job_class;  // what it got, possibly less than it asked for; 0 from an older daemon
  uint32_t reserved[3];
  // Lines NAME=VALUE that must be in the job's environment. Messages of older daemons end before
  // it.
  char environment[kEnvironmentBytes];
  // The parts of the request that have no effect, and why: one line each, cut like a reason.
  // Messages of older daemons end before it.
  char told[kReasonBytes];
};

static_assert(sizeof(Header) == 16 && sizeof(Request) == 168);
static_assert(sizeof(Hello) == 16 + 24 + 168 + 8 + 256 + 16 + 8 + 8 && sizeof(Promise) == 16);
static_assert(sizeof(Welcome) == 80 && sizeof(Mapped) == 16 && sizeof(Presence) == 24);
static_assert(sizeof(Shared) == 24 && sizeof(Uses) == 32 && sizeof(HostPool) == 24);
static_assert(sizeof(Space) == 8 && sizeof(HostFile) == 32 && sizeof(HostBack) == 32);
static_assert(offsetof(Hello, abilities) == 212);
static_assert(sizeof(Refused) == 536 && sizeof(Register) == 536 && sizeof(Registered) == 1064);

}  // namespace tandem::wire
