// The shared-memory contract between a job process (shim) and the daemon. THE data-plane ABI.
//
// Each process has three memfds, created by the daemon, mode 0600, sealed SHRINK|GROW|SEAL:
//
//   command   daemon writes (maps first, then adds F_SEAL_FUTURE_WRITE), the shim reads
//   +--------+------+-----------+--------+
//   | header | gate | heartbeat | memory |                                     4 KiB
//   +--------+------+-----------+--------+
//
//   state     the shim and the GPU write, the daemon maps read-only and copies once
//   +--------+---------+-----+------+-----------+------------------+-----------------+
//   | header | control | ... | sets | slots 256 | ring headers 17  | rings 17*64 KiB |
//   +--------+---------+-----+------+-----------+------------------+-----------------+
//     page 0, StatePage                page 1..4   page 5             page 6..
//   +---------------+---------------------+
//   | sample header | sample ring 512 KiB |   if WELCOME has kFeatureSamples; unused unless asked
//   +---------------+---------------------+
//
//   presence  the job writes, then the daemon adds F_SEAL_FUTURE_WRITE; shims of the same GPU and
//             trust group read it
//   +---------------------------+
//   | busy_until, class         |                                               4 KiB, 64 B used
//   +---------------------------+
//
// Rules
// 1. Each side assumes that the other may write anything at any time: copy once, check bounds, use
//    the copy. Sizes and offsets come from this header, never from shared memory.
// 2. Explicitly sized types only. Offsets are ABI: append in reserved space only, and bump
//    kLayoutVersion when a reader of the previous version would go wrong.
// 3. Times are nanoseconds of the attach clock: CLOCK_MONOTONIC, or the software GPU's virtual
//    clock when WELCOME says so.
// 4. No locks in shared memory. A process may die at any instruction.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tandem::shm {

inline constexpr uint32_t kCommandMagic = 0x434d4454;   // "TDMC"
inline constexpr uint32_t kStateMagic = 0x534d4454;     // "TDMS"
inline constexpr uint32_t kPresenceMagic = 0x504d4454;  // "TDMP"
inline constexpr uint32_t kLayoutVersion = 1;

inline constexpr uint32_t kSlotCount = 256;
inline constexpr uint32_t kThreadRingCount = 16;
// All further threads share the last ring.
inline constexpr uint32_t kRingCount = kThreadRingCount + 1;
inline constexpr uint32_t kRingBytes = 64 * 1024;
inline constexpr uint32_t kPresenceMax = 64;
inline constexpr uint64_t kNoLimit = UINT64_MAX;
// The largest page size in use, that of many aarch64 kernels (RHEL 8, which NVIDIA recommends for
// Grace). Whatever is mapped over something else, or from the middle of a file, is aligned to it.
inline constexpr size_t kLargestPage = 64 * 1024;
// Host pools, and the pieces in them, are multiples of this.
inline constexpr uint64_t kSwapUnit = 2 << 20;

// Values are ABI; 0 means "not said".
enum class JobClass : uint32_t { kUnspecified = 0, kLatency = 1, kNormal = 2, kBatch = 3 };

// ---------------------------------------------------------------------------------- command

// Bit 0 of the gate word: 1 = HOLD. Bits 1..31: an epoch that the daemon increments on every
// change, so that the value a waiter passes to FUTEX_WAIT does not repeat within 2^31 changes.
inline constexpr uint32_t kGateHold = 1;

// CommandMemory::line
inline constexpr uint32_t kLineAhead = 1u << 0;    // others wait: line up before asking the driver
inline constexpr uint32_t kLineRefused = 1u << 1;  // the request of `line_ticket` can never be met

// The kinds of marks that CommandGate::mark_limit counts: ends of iterations, beginnings of phases.
enum class LimitKind : uint32_t { kStep = 0, kPhase = 1 };
inline constexpr uint32_t kLimitKindCount = 2;
constexpr LimitKind kind_of(uint64_t mark_limit) {
  return static_cast<LimitKind>(mark_limit >> 63);
}
constexpr uint64_t number_of(uint64_t mark_limit) { return mark_limit << 1 >> 1; }
constexpr uint64_t mark_limit_of(LimitKind kind, uint64_t number) {
  return number ? static_cast<uint64_t>(kind) << 63 | number_of(number) : 0;
}

// The SMs that a process is to use. The driver splits the device into groups of `group_sms` SMs;
// the set is `count` of these groups, starting at `first`. A count of 0 stands for the whole
// device.
struct SmSet {
  uint32_t first = 0;      // < 1024
  uint32_t count = 0;      // < 1024
  uint32_t group_sms = 0;  // < 4096, never 0
};
constexpr uint32_t word_of(const SmSet& set) {
  return (set.first & 0x3ff) | (set.count & 0x3ff) << 10 | (set.group_sms & 0xfff) << 20;
}
constexpr SmSet set_of(uint32_t word) { return {word & 0x3ff, word >> 10 & 0x3ff, word >> 20}; }

// CommandMemory::lane
inline constexpr uint32_t kLaneHolds = 1u << 0;  // a closed gate holds allocations, too

// CommandGate::flags
inline constexpr uint32_t kFlagHonourPresence = 1u << 0;  // yield to busy higher classes
inline constexpr uint32_t kFlagTelemetry = 1u << 1;       // write records
inline constexpr uint32_t kFlagReleased = 1u << 2;  // daemon is leaving: run ungated, keep limits
inline constexpr uint32_t kFlagSample = 1u << 3;    // write the parameters of launches, too

struct alignas(64) CommandHeader {  // daemon: once, before the fd is sent
  uint32_t magic;
  uint32_t layout_version;
  uint32_t page_bytes;
  uint32_t reserved0;
  uint64_t process_id;  // the daemon's number for this process, never reused while the daemon lives
  uint64_t job_id;
  uint64_t reserved[4];
};

struct alignas(64) CommandGate {
  std::atomic<uint32_t> gate;             // futex word; daemon: release store, shim: acquire load
  std::atomic<uint32_t> flags;            // kFlag*; relaxed, a hint read on every launch
  std::atomic<uint32_t> window_segments;  // segments that may be open at once; 0 = no limit
  std::atomic<uint32_t> job_class;        // JobClass as clamped by the daemon
  std::atomic<uint64_t> segment_ns;       // GPU time after which a marker closes a segment
  std::atomic<uint64_t> linger_ns;        // latency class: how long presence outlives activity
  std::atomic<uint64_t> presence_mask;    // bit i: check presence entry i before a launch
  std::atomic<uint64_t> linger_limit_ns;  // the shim may tune linger_ns up to this; 0 = it may not
  std::atomic<uint32_t> sample;           // number of the sample asked for, from 1. Relaxed
  std::atomic<uint32_t> pause;            // number of the next or current pause; 0 = none. Relaxed
  // The top bit is a LimitKind, the rest a number; 0 = no limit. The mark that brings the count of
  // that kind to the number or beyond stops the process: submissions and allocations wait, as at a
  // closed gate, as long as StateIterations::stopped of that kind is at least the number. A limit
  // that arrives late takes effect at the next mark. Relaxed: the daemon stores it before it stores
  // a new epoch in the gate word.
  std::atomic<uint64_t> mark_limit;
};

struct alignas(64) CommandHeartbeat {
  std::atomic<uint64_t> tick_ns;   // last tick of the daemon's core; daemon: release, shim: acquire
  std::atomic<uint64_t> stale_ns;  // if the tick is older than this, the daemon hangs: run ungated
  uint64_t reserved[6];
};

struct alignas(64) CommandMemory {
  std::atomic<uint64_t> limit_bytes;  // most device memory ever; kNoLimit = any
  // How much of the swappable memory may be on the device; kNoLimit = all of it.
  std::atomic<uint64_t> resident_target_bytes;
  std::atomic<uint32_t> sm_set;  // SmSet in one word; 0 = nothing said: stay where you are. Relaxed
  // Futex word. Daemon: release, after line_ticket and line, whenever one of them changes. A
  // request that may try does so once per value.
  std::atomic<uint32_t> line_round;
  std::atomic<uint64_t> wait_ns;      // how long an allocation may wait for memory; 0 = not at all
  std::atomic<uint64_t> line_ticket;  // of the request that may try, or is refused; 0 = none
  std::atomic<uint32_t> line;         // kLine*; kLineAhead is a hint that every allocation reads
  // Number of the order that set resident_target_bytes: different each time, never 0. Daemon:
  // release, after the target; shim: acquire.
  std::atomic<uint32_t> swap_order;
  // What the process may hold for now, beside others: set only where no allocation waits (wait_ns).
  // Void without a daemon; 0 and kNoLimit = as much as the limit allows.
  std::atomic<uint64_t> lease_bytes;
  std::atomic<uint32_t> lane;  // kLane*; a hint that every allocation reads
  // Number of the instruction that set sm_set: different each time, since a process may be told the
  // same set again; 0 from daemons that do not number them. Daemon: release, after sm_set; shim:
  // acquire.
  std::atomic<uint32_t> set_turn;
};

struct alignas(4096) CommandPage {
  CommandHeader header;
  CommandGate gate;
  CommandHeartbeat heartbeat;
  CommandMemory memory;
};

// ------------------------------------------------------------------------------------ state

struct alignas(64) StateHeader {  // daemon: once, before the fd is sent (then maps it read-only)
  uint32_t magic;
  uint32_t layout_version;
  uint64_t total_bytes;
  uint64_t reserved[6];
};

struct alignas(64) StateControl {
  std::atomic<uint32_t> doorbell;         // shim: incremented when something cannot wait for a poll
  std::atomic<uint32_t> gate_seen;        // last gate word a launching thread or the helper saw
  std::atomic<uint64_t> helper_tick_ns;   // last round of the shim's helper thread
  std::atomic<uint64_t> ns_per_tick_q32;  // record ticks to ns, 32.32 (1<<32 = ticks are ns)
  std::atomic<uint64_t> tick_base_ns;     // attach-clock time of tick_base
  std::atomic<uint64_t> tick_base;
  std::atomic<uint32_t> capturing;  // streams being captured now
  std::atomic<uint32_t> ungated;    // 1 while the shim runs fail-open
  std::atomic<uint64_t> linger_ns;  // latency class: the linger in use, as tuned
  uint64_t reserved[1];
};

struct alignas(64) StateMemory {  // shim: relaxed; display and audit, never trusted for a limit
  std::atomic<uint64_t> device_bytes;
  std::atomic<uint64_t> peak_bytes;
  std::atomic<uint64_t> alloc_count;
  // device_bytes, plus, before the driver is asked for more, the size of that request: never less
  // than the process holds. 0 = the shim does not report it.
  std::atomic<uint64_t> taken_bytes;
  std::atomic<uint64_t> refused_count;
  // The first thread in line for memory. The ticket is 0 while the other fields change and is
  // stored last, with release; the daemon loads it with acquire before and after it reads them.
  std::atomic<uint64_t> wait_ticket;  // counts from 1; 0 = nobody waits
  std::atomic<uint64_t> wait_bytes;
  std::atomic<uint32_t> wait_round;  // CommandMemory::line_round of its last attempt, which failed
  std::atomic<uint32_t> wait_flags;  // kWait*
};
inline constexpr uint32_t kWaitForQuota = 1u << 0;  // the limit is in the way, not the device
// Every thread of the process that uses the device waits for memory.
inline constexpr uint32_t kWaitsAlone = 1u << 1;

// How an order to move memory ended. No outcome loses a byte.
enum class SwapOutcome : uint32_t {
  kNone = 0,
  kReached = 1,     // target met, as closely as whole pieces allow; or the file was taken (wire.h)
  kNoHostRoom = 2,  // the host pool has no room for what should move: nothing was moved
  kNotDrained = 3,  // superseded before the work on the device had drained: nothing was moved
  // A driver call failed. What had been moved comes back; a file is not taken.
  kFailed = 4,
};
inline constexpr uint32_t kSwapOutcomeCount = 5;

enum class WaitReason : uint32_t { kNone = 0, kGate = 1, kWindow = 2, kPresence = 3, kMemory = 4 };
inline constexpr uint32_t kWaitReasonCount = 5;

struct alignas(64) StateWaits {  // written by the shim, on the slow path only
  std::atomic<uint32_t> waiting_threads;
  std::atomic<uint32_t> reason;                      // of the newest waiter
  std::atomic<uint64_t> since_ns;                    // when the newest waiter began
  std::atomic<uint64_t> total_ns[kWaitReasonCount];  // by WaitReason
  uint64_t reserved0;
};

struct alignas(64) StateMarks {  // written by tandem_mark_v1
  std::atomic<uint64_t> steps;   // iteration marks so far
  std::atomic<uint64_t> last_step_ns;
  std::atomic<uint64_t> phase_hash;  // FNV-1a of the phase name, 0 = none
  std::atomic<uint64_t> phase_since_ns;
  std::atomic<uint64_t> critical_until_ns;
  std::atomic<uint64_t> launches;      // flushed by the helper thread at a limited rate
  std::atomic<uint64_t> begun_phases;  // marks that begin a phase, so far
  std::atomic<uint32_t> listens;       // 1: the program wants to act before a pause
  std::atomic<uint32_t> pause_ready;   // newest CommandGate::pause it is ready for. Release
};

// One per stream. `issued` counts the markers handed to the driver; `done` is the value of the
// newest marker that the GPU has passed. Idle: issued == done and open == 0.
struct alignas(64) Slot {
  std::atomic<uint64_t> issued;            // shim: release, after the driver took the marker
  std::atomic<uint64_t> done;              // GPU (cuStreamWriteValue64) or helper (event fallback)
  std::atomic<uint64_t> stream;            // CUstream, as a number; display only
  std::atomic<uint32_t> generation;        // of the context; a stale generation retires the slot
  std::atomic<uint32_t> state;             // SlotState
  std::atomic<uint64_t> open;              // submissions since the last marker
  std::atomic<uint64_t> open_est_ns;       // predicted GPU time of those submissions
  std::atomic<uint64_t> predicted_end_ns;  // of the newest closed segment
  std::atomic<uint64_t> last_submit_ns;
};
enum class SlotState : uint32_t { kFree = 0, kLive = 1, kRetired = 2 };

// A ring holds kRingBytes / sizeof(Record) records and is never full: the writer overwrites, and
// the reader notices that it was lapped and counts the loss, so the daemon needs no write access.
// Writer: fill the record, then head.store(release). Reader: head.load(acquire), copy, fence, load
// head again, and discard whatever the writer may have reached meanwhile.
struct alignas(64) RingHeader {
  std::atomic<uint64_t> head;   // records ever written
  std::atomic<uint32_t> owner;  // tid of the writing thread, 0 = unused; last ring: 1 = in use
  uint32_t reserved0;
  uint64_t reserved[6];
};

enum class RecordKind : uint8_t {
  kNone = 0,
  kLaunch = 1,
  kCopy = 2,
  kMemset = 3,
  kAlloc = 4,
  kFree = 5,
  kSync = 6,
  kEventRecord = 7,
  kEventWait = 8,
  kMemOp = 9,
  kHostFunc = 10,
  kMark = 11,
  kSegment = 12,
  kGraph = 13,
  kWait = 14,
  // Only in traces of calls, never in a telemetry ring; trace_layout.h says what they hold.
  kCall = 15,
  kWords = 16,
  kText = 17,
  kFunction = 18,
  kProcess = 19,
  kDeviceTime = 20,
  kLost = 21,
  kChunk = 22,
  kEnd = 23,
  // In the sample ring, beside kFunction, kWords and kText.
  kParameters = 24,
};
inline constexpr uint8_t kRecordKindCount = 15;  // kinds in telemetry rings

// Record::flags; for a kMark, the field holds the kind of mark instead. docs/shared-memory.md says
// what can be concluded about the order of operations.
inline constexpr uint8_t kRecordNonBlocking = 1;    // its stream does not wait for the legacy one
inline constexpr uint8_t kRecordHostWaited = 2;     // the call returned when the work was done
inline constexpr uint8_t kRecordInOrder = 4;        // kAlloc, kFree: when `stream` gets there
inline constexpr uint8_t kRecordQueried = 8;        // kSync: nobody waited, the query found it done
inline constexpr uint8_t kRecordScattered = 16;     // touches addresses that the record does not
                                                    // name; an event: concerns all streams
inline constexpr uint8_t kRecordSampled = 32;       // kLaunch: parameters are in the sample ring
inline constexpr uint8_t kRecordProgrammatic = 64;  // may begin before its predecessor has ended
inline constexpr uint8_t kRecordStale = 128;  // kLaunch, kGraph: predicted from times on other SMs

// kSync: what was waited for. 0 = the wait failed, or the shim is too old to say.
enum class SyncOf : uint32_t { kUnknown = 0, kStream = 1, kEvent = 2, kContext = 3 };

struct Record {
  uint64_t ticks;          // see StateControl::ns_per_tick_q32
  uint8_t kind;            // RecordKind
  uint8_t flags;           // kRecord..
  uint16_t slot;           // index, 0xffff = none
  uint32_t thread;         // tid
  uint64_t stream;         // CUstream; 1 legacy, 2 default stream of `thread`: one per context each
  uint64_t object;         // function handle, device address, event or mark id
  uint64_t bytes;          // copies, memsets, allocations; else 0
  uint32_t grid_blocks;    // launches: saturating; copies: low half of the source, 0 = not said
  uint32_t block_threads;  // copies: high half of the source. kAlloc, kFree, kSync: both halves are
                           // the device memory that the process then held, 0 = nothing or not said
  uint64_t duration_ns;    // waits and syncs: measured; launches: predicted (0 = unknown)
  uint64_t value;  // kSegment: the marker; kMark: the value; kWait: WaitReason; else halves:
                   // low: direction of copies and memsets, SyncOf, a launch's sample number
                   // high: number of the context, 0 = not said
};
inline constexpr uint32_t kRingRecords = kRingBytes / sizeof(Record);

constexpr uint64_t source_of(const Record& copy) {
  return uint64_t{copy.block_threads} << 32 | copy.grid_blocks;
}
constexpr uint64_t held_at(const Record& record) {
  return uint64_t{record.block_threads} << 32 | record.grid_blocks;
}
constexpr bool is_launch(const Record& record) {
  const auto kind = static_cast<RecordKind>(record.kind);
  return kind == RecordKind::kLaunch || kind == RecordKind::kGraph;
}
constexpr uint32_t low_value(const Record& record) { return static_cast<uint32_t>(record.value); }
constexpr uint32_t context_of(const Record& record) {
  return static_cast<uint32_t>(record.value >> 32);
}

struct alignas(64) StateSwap {            // shim: relaxed; 0 from shims that do not swap
  std::atomic<uint64_t> swappable_bytes;  // part of device_bytes, whether on the device or not
  std::atomic<uint64_t> swapped_bytes;    // part of swappable_bytes that is on the host
  // Low half: the newest order that has ended; high half: SwapOutcome. Release, after its effects.
  std::atomic<uint64_t> done;
  // Bytes copied to the host and back so far, and the time the copies took. They only grow.
  std::atomic<uint64_t> out_bytes;
  std::atomic<uint64_t> out_ns;
  std::atomic<uint64_t> in_bytes;
  std::atomic<uint64_t> in_ns;
  std::atomic<uint64_t> filed_bytes;  // part of swapped_bytes that is in files
};

// Which check made a request for memory return CUDA_ERROR_OUT_OF_MEMORY.
enum class Refusal : uint32_t { kQuota = 0, kDevice = 1, kLine = 2 };
inline constexpr uint32_t kRefusalCount = 3;

struct alignas(64) StateRefusals {  // shim: relaxed; the sum is StateMemory::refused_count
  std::atomic<uint64_t> count[kRefusalCount];  // by Refusal; 0 from shims that do not say
  uint64_t reserved[5];
};

struct alignas(64) StateIterations {  // written by the shim; 0 from shims that do not report it
  std::atomic<uint64_t> peak_bytes;   // most held since the first marked iteration ended. Relaxed
  std::atomic<uint64_t> end_bytes;    // most held at the end of an iteration. Relaxed
  // By LimitKind: the count of marks when CommandGate::mark_limit last stopped the process; 0 =
  // never yet. Release, after the figures and the count; pairs with the daemon's acquire.
  std::atomic<uint64_t> stopped[kLimitKindCount];
  uint64_t reserved[4];
};

// Why a stream does not move to the set that the process was told.
enum class StayReason : uint32_t {
  kLegacy = 0,     // the default stream that others wait for
  kPerThread = 1,  // the default stream of a thread
  kBlocking = 2,   // created without CU_STREAM_NON_BLOCKING
  // Belongs to a context other than the primary one or to a green context of the job's own, or ran
  // a cooperative grid that needs more SMs.
  kElsewhere = 3,
  kCapturing = 4,  // captures, or may capture: what is in graphs cannot move
  kRefused = 5,    // the driver refused, or there are too many
};
inline constexpr uint32_t kStayReasonCount = 6;

struct alignas(64) StateSets {  // shim: relaxed; 0 from shims that know no sets
  // The newest CommandMemory::sm_set for which no stream that moves there has work anywhere else.
  // Release, after that work.
  std::atomic<uint32_t> in;
  std::atomic<uint32_t> following;                  // streams that move there
  std::atomic<uint32_t> staying[kStayReasonCount];  // streams that do not; by StayReason
  std::atomic<uint64_t> switches;                   // moves of streams between sets, so far
  std::atomic<uint32_t> graphs;  // 1 once a graph was launched: graphs never move
  // CommandMemory::set_turn of `in`; 0 from shims that do not report it. Release, after `in`.
  std::atomic<uint32_t> in_turn;
  uint64_t reserved[2];
};

struct alignas(4096) StatePage {
  StateHeader header;
  StateControl control;
  StateMemory memory;
  StateWaits waits;
  StateMarks marks;
  StateSwap swap;
  StateRefusals refusals;
  StateIterations iterations;
  StateSets sets;
};

inline constexpr size_t kSlotsOffset = sizeof(StatePage);
inline constexpr size_t kRingHeadersOffset = kSlotsOffset + kSlotCount * sizeof(Slot);
inline constexpr size_t kRingsOffset = kRingHeadersOffset + 4096;
// Version 1 ends here. What follows exists only where both sides know it.
inline constexpr size_t kStateBytesFirst = kRingsOffset + size_t{kRingCount} * kRingBytes;

// The sample ring: parameters of launches, as events of several records (trace_layout.h). It is
// lossy like the others. There is one per process, and one thread at a time writes it: a launch
// that finds it taken is not sampled. Its header is a RingHeader.
//
//   kind         flags  thread stream object    bytes    grid_blocks block_threads value
//   kFunction    cut           sample handle    number   words       text bytes
//   kParameters  cut    tid    sample function  number   words                     number of the launch
//
// A kFunction comes once per sample, before the launches that refer to its number. Its words are
// offset << 32 | bytes for each parameter, its text is the name. The words of kParameters are the
// values of the parameters, each starting at a new word. Numbers increase by one, from 1; the
// launch's number is in its telemetry record, too.
inline constexpr uint32_t kSampleRingBytes = 512 * 1024;
inline constexpr uint32_t kSampleRingRecords = kSampleRingBytes / sizeof(Record);
inline constexpr uint8_t kSampleCut = 1;  // there are more parameters, or words of them, than these
inline constexpr size_t kSampleHeaderOffset = kStateBytesFirst;
inline constexpr size_t kSampleRingOffset = kSampleHeaderOffset + 4096;
inline constexpr size_t kStateBytes = kSampleRingOffset + kSampleRingBytes;
inline constexpr size_t kCommandBytes = sizeof(CommandPage);

// --------------------------------------------------------------------------------- presence

struct alignas(4096) PresencePage {
  uint32_t magic;
  uint32_t layout_version;
  std::atomic<uint64_t> busy_until_ns;  // job: release; peers: acquire. kNoLimit = inside a request
  std::atomic<uint32_t> job_class;      // a hint; the daemon decides whose mask includes this entry
  uint32_t reserved0;
};
inline constexpr size_t kPresenceBytes = sizeof(PresencePage);

static_assert(sizeof(CommandPage) == 4096 && sizeof(StatePage) == 4096);
static_assert(sizeof(PresencePage) == 4096);
static_assert(sizeof(Slot) == 64 && sizeof(Record) == 64 && sizeof(RingHeader) == 64);
static_assert(offsetof(CommandPage, gate) == 64 && offsetof(CommandPage, heartbeat) == 128);
static_assert(offsetof(CommandPage, memory) == 192);
static_assert(sizeof(StateSwap) == 64 && offsetof(StateSwap, out_bytes) == 24);
static_assert(offsetof(StatePage, waits) == 192 && offsetof(StatePage, marks) == 256);
static_assert(kRingHeadersOffset == 5 * 4096 && kRingsOffset == 6 * 4096);
static_assert(kRingCount * sizeof(RingHeader) <= 4096);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::is_trivially_copyable_v<Record>);
static_assert(sizeof(CommandGate) == 64 && offsetof(CommandGate, mark_limit) == 56);
static_assert(sizeof(StateMarks) == 64 && offsetof(StateMarks, pause_ready) == 60);
static_assert(sizeof(CommandMemory) == 64 && offsetof(CommandMemory, lease_bytes) == 48);
static_assert(sizeof(StateMemory) == 64 && offsetof(StateMemory, wait_ticket) == 40);
static_assert(sizeof(StateSets) == 64 && offsetof(StatePage, sets) == 512);
static_assert(kStateBytesFirst == 6 * 4096 + 17 * 65536 && kSampleHeaderOffset % 4096 == 0);

}  // namespace tandem::shm
