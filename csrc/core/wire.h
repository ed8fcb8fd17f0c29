// Messages on the attach socket (SOCK_SEQPACKET, one message a packet). Fixed-size structs, host
// byte order (both ends are one machine). Identity never comes from here: the daemon reads
// SO_PEERCRED and opens a pidfd.
//
//   shim                                daemon
//    | HELLO  ------------------------->  |   clamps the requests by uid
//    | <---- WELCOME + 3 fds  (or REFUSED)|   command, state, presence memfds
//    | MAPPED ------------------------->  |   now presence can be sealed and shown to peers
//    | <---------------- PRESENCE + 1 fd  |   a peer to look at; PRESENCE_GONE takes it away
//    | SHARED, USES ------------------->  |   if WELCOME said that the daemon understands them
//    | <--------------- HOST_POOL + 1 fd  |   where swapped pages go; only to who asked to be swappable
//    | <---------------------------- SWAP |   look at the target in the command page
//    | <--------------- HOST_FILE + 1 fd  |   what is in a host pool is in this file, too
//    | <----------------------- HOST_BACK |   give a host pool back that has nothing in it
//    |  ... the connection is the lease: closing it releases everything ...
//
//   tandem run                          daemon
//    | REGISTER ----------------------->  |   pid from SO_PEERCRED; survives the exec
//    | <------------ REGISTERED / REFUSED |
//
// Versions: `size` is that of the sender's struct. A receiver accepts any size >= the v1 size of the
// type, reads what it knows and ignores the rest; a sender of a newer struct zero-fills nothing away.
// HELLO names the oldest and newest layout it can serve; the daemon picks one or refuses.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::wire {

inline constexpr uint32_t kMagic = 0x4d444e54;  // "TNDM"
inline constexpr uint16_t kProtocolVersion = 1;
inline constexpr uint32_t kMaxMessageBytes = 4096;
inline constexpr uint32_t kNameBytes = 64;     // NUL-terminated UTF-8, truncated
inline constexpr uint32_t kCommandBytes = 256;
inline constexpr uint32_t kEnvironmentBytes = 512;
inline constexpr uint32_t kReasonBytes = 512;
inline constexpr uint32_t kMaxDevices = 16;

enum class Type : uint16_t {
  kHello = 1, kWelcome = 2, kMapped = 3, kPresence = 4, kPresenceGone = 5, kRefused = 6,
  kRegister = 7, kRegistered = 8, kShared = 9, kUses = 10, kHostPool = 12, kSwap = 13,
  kHostFile = 14, kHostBack = 15,
};

enum class ClockKind : uint32_t { kMonotonic = 0, kSoftGpuVirtual = 1 };

enum class RefusalCode : uint32_t {
  kProtocol = 1, kMalformed = 2,
  kIdentity = 3,  // who it is cannot be known: the daemon is in a PID namespace that it is not in
  kNoRoom = 4, kUnknownJob = 5, kShuttingDown = 6,
  kUnfit = 7,   // no GPU that is meant can ever do what is asked
  kNotYet = 8,  // what to say depends on what is found out in a moment: only to who asks again
};

// How a job is to be kept apart from others. Numbers are those of tandem.v1.Mode.
enum class Isolation : uint32_t { kNotSaid = 0, kTime = 1, kMps = 2, kMpsGreen = 3, kMig = 4 };

// What a daemon understands beyond the first version; a shim says nothing else to it.
inline constexpr uint64_t kFeatureShared = 1, kFeatureUses = 2;
// Records with both halves of `value`, sources of copies, and queries that succeeded.
inline constexpr uint64_t kFeatureOrder = 4;
inline constexpr uint64_t kFeatureSamples = 8;  // the state pages end with the sample ring
inline constexpr uint64_t kFeatureSwap = 32;    // of this process memory is moved out and back

// What a shim understands beyond the first version; a daemon says nothing else to it.
inline constexpr uint32_t kAbilityHostFile = 1;
inline constexpr uint32_t kAbilityHostBack = 2;
// And of the process itself: it was attached before, and stays on the SMs that it was told then.
inline constexpr uint32_t kAbilityHasSet = 4;

struct Header {
  uint32_t magic;
  uint16_t version;
  uint16_t type;
  uint32_t size;  // of the whole message, header included
  uint32_t reserved;
};

// What a process or `tandem run` asks for. Zero / kNoLimit mean "not said".
struct Request {
  uint32_t job_class;  // shm::JobClass
  uint32_t sm_percent;
  uint64_t memory_bytes;
  uint64_t memory_min_bytes;
  uint64_t slo_p99_ns;
  uint32_t preemptible;  // 0 not said, 1 yes, 2 no
  uint8_t memory_percent;  // of the device, where memory_bytes is not said; REGISTER only
  uint8_t swappable;       // 0 not said, 1 yes, 2 no, 3 as a whole, by the driver's checkpoints
  uint16_t wait_memory_s;  // how long an allocation may wait for memory
  char name[kNameBytes];
  char group[kNameBytes];
};

// What its whole life and each of its iterations need of device memory, where it says so: both 0 = not
// said. Behind the messages of the first version, which end before it.
struct Promise {
  uint64_t persistent_bytes;  // for as long as it is there
  uint64_t ephemeral_bytes;   // at most, besides, within an iteration
};

// What it asks of the SMs. Behind the promise, which older senders end with.
struct Space {
  uint32_t sm_count;   // instead of Request::sm_percent; 0 = not said
  uint32_t isolation;  // Isolation
};

// Of the SMs that a client of MPS may use at most, as its environment says: all, or fewer.
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
  uint32_t abilities;  // kAbility..: 0 from shims older than they
  uint8_t device_uuid[kMaxDevices][16];
  Promise promise;
  Space space;
  uint32_t mps_sms;  // in thousandths of a percent, at most kAllSms; 0 from shims that do not say it
  uint32_t idle_release_s;  // idle for so long it gives its memory up; 0 = not said
};

struct Welcome {
  Header header;
  uint32_t layout_version;
  uint32_t clock;  // ClockKind of every *_ns in the shared pages
  uint64_t process_id;
  uint64_t job_id;
  uint64_t state_bytes;
  uint64_t features;  // kFeature..: 0 from daemons older than they
  uint64_t reserved[3];
};

struct Mapped {
  Header header;
};

// The process exported or imported something on the GPU. `key` is the same for all that have the same
// thing, whatever it is: those processes may wait for each other and belong together.
struct Shared {
  Header header;
  uint64_t key;  // never 0
};

// The process uses this GPU, too.
struct Uses {
  Header header;
  uint8_t device_uuid[16];
};

struct Presence {  // also PRESENCE_GONE, without an fd
  Header header;
  uint32_t index;  // < shm::kPresenceMax
  uint32_t job_class;
};

// A sealed memfd, of which `bytes` (a multiple of 2 MiB) are the process's own to keep pages in. Adds
// to those sent before.
struct HostPool {
  Header header;
  uint64_t bytes;
};

// The file holds what was in a pool while the order `since` was the newest one. If it still is, the pool's
// memory goes back, and what is in it is read from the file. Ends as an order does, in StateSwap::done.
struct HostFile {
  Header header;
  uint32_t order;  // its own number
  uint32_t since;
  uint64_t pool;  // counted from 1 as they were sent on this connection
};

// The pool's memory goes back if nothing is in it and `since` is the newest order still. Ends as an order does.
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
  char reason[kReasonBytes];  // NUL-terminated UTF-8, cut between characters; older ones have 160
};

inline constexpr uint32_t kRegisterNoWait = 1;  // refuse it where it would have to stand in line
inline constexpr uint32_t kRegisterAsksAgain = 2;  // it may be refused with kNotYet
inline constexpr uint32_t kRegisterOnlyAsks = 4;  // there is to be no job: REGISTERED with job 0, or REFUSED

struct Register {
  Header header;
  Request request;
  char command[kCommandBytes];
  Promise promise;
  Space space;
  char gpu[kNameBytes];  // index or UUID of the one it is bound to; empty = not said
  uint32_t flags;        // kRegister..; unknown ones mean nothing
  uint32_t idle_release_s;  // as in Hello
};

struct Registered {
  Header header;
  uint64_t job_id;
  uint32_t job_class;  // what it got, which may be less than it asked for; 0: an older daemon's
  uint32_t reserved[3];
  // Lines NAME=VALUE that the job has to have in its environment; older daemons end before it.
  char environment[kEnvironmentBytes];
  // What of the request has no effect, and why: a line each, cut as a reason. Older daemons end before it.
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
