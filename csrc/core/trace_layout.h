// Traces of driver calls: the memory from which `tandem trace calls` reads them, and the records
// that its files consist of (docs/tracing.md has the same table for people).
//
//   one memfd, created by the tracer and opened by each traced process as /proc/<tracer>/fd/<n>
//   +--------+-------+-----+-------+--------+-----+--------+
//   | header | ring 0| ... | ring n| data 0 | ... | data n |
//   +--------+-------+-----+-------+--------+-----+--------+
//     page 0  64 bytes times 4 each  kTraceRingBytes each, touched only when used
//
// Each traced thread owns one ring and is its only writer; the tracer is the only reader. Unlike
// telemetry rings, these lose nothing while somebody reads: a full ring makes its thread wait. A
// ring outlives its thread, so whatever a killed process wrote is read like everything else.
//
// An event is a head record, then ceil(words / 6) kWords and ceil(text bytes / 48) kText records.
// Events are committed whole. The fields of shm::Record by kind; those not named are 0:
//
//   kind         ticks   slot  thread stream   object   bytes    grid_blocks block_threads duration_ns value
//   kCall        start   call  tid    or none  number   context  words       text bytes    of the call CUresult
//   kWords       (48 bytes from `stream` on: six 64-bit words)
//   kText        (48 bytes from `stream` on: text, padded with NUL)
//   kFunction                  tid             handle            words       text bytes
//   kProcess     start         tid    parent   pid      clock    words       text bytes
//   kDeviceTime                tid             number                                      on the GPU
//   kLost                      tid                                                                     calls
//   kChunk                     tid             pid      records
//   kEnd                                       status   1 = known                                      calls lost
//
// `call` is the index among the calls that this shim interposes. `number` counts the calls of all
// threads from 1, in the order in which they began. Times are in ns. kFunction describes the handle
// for the following calls of the same thread: its words are the kernel's parameters, offset << 32 |
// bytes, its text is the name. The words of a kProcess, if any, are the number of multiprocessors
// and the memory bandwidth in bytes/s (0 = not known) of the device whose context is current in the
// thread. kChunk says which thread the next `records` records belong to. The tracer writes kChunk
// and kEnd, the traced thread all others.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm_layout.h"

namespace tandem::trace {

inline constexpr uint32_t kTraceMagic = 0x544d4454;  // "TDMT"
inline constexpr uint32_t kTraceVersion = 2;
inline constexpr uint32_t kTraceRings = 1024;  // threads traced at once
inline constexpr uint32_t kTraceRingBytes = 512 * 1024;
inline constexpr uint32_t kTraceRingRecords = kTraceRingBytes / sizeof(shm::Record);
inline constexpr uint32_t kWordsARecord = 6;
inline constexpr uint32_t kTextARecord = 48;
inline constexpr uint64_t kNoTraceStream = ~uint64_t{0};

// shm::Record::flags of a kCall.
// Ticks are CLOCK_MONOTONIC: no device clock was known yet.
inline constexpr uint8_t kCallHostTime = 1;
inline constexpr uint8_t kCallUnfinished = 2;    // the call never returned: no duration, no result
inline constexpr uint8_t kCallTimed = 4;         // a kDeviceTime may follow
inline constexpr uint8_t kCallCut = 8;           // the kernel has more parameters than are recorded
inline constexpr uint8_t kCallCaptured = 16;     // captured into a graph: it computed nothing
inline constexpr uint8_t kCallNonBlocking = 32;  // its stream does not wait for the legacy one

// kProcess::bytes
enum class TraceClock : uint64_t { kUnknown = 0, kMonotonic = 1, kVirtual = 2 };

struct alignas(4096) TraceHeader {  // written by the tracer once, before a traced process starts
  uint32_t magic;
  uint32_t version;
  uint64_t key;                // random, also in the environment: a descriptor number may be reused
  uint32_t device_times;       // 1: bracket launches with timing events
  uint32_t wait_ms;            // how long a writer waits for a reader that makes no progress
  std::atomic<uint64_t> lost;  // calls of threads that got no ring; traced processes add to it
  alignas(64) std::atomic<uint64_t> calls;  // calls begun so far; traced processes add to it
};

struct TraceRing {
  struct alignas(64) Writer {
    std::atomic<uint64_t> head;    // records ever written; release, pairs with the reader's acquire
    std::atomic<uint64_t> lost;    // calls for which there was no room
    std::atomic<uint64_t> inside;  // current call: index + 1, 0 = none; read once the thread ended
    std::atomic<uint64_t> inside_since;
    std::atomic<uint64_t> inside_number;
  } writer;
  struct alignas(64) Owner {
    std::atomic<uint64_t> owner;  // pid << 32 | tid, 0 = free. CAS by a claimer, 0 by the reader
    std::atomic<uint32_t> ended;  // the thread no longer uses it; release, pairs with the reader
  } owner;
  struct alignas(64) Reader {
    std::atomic<uint64_t> tail;  // records ever read; release, pairs with the writer's acquire
  } reader;
  uint64_t reserved[8];
};

inline constexpr size_t kTraceDataOffset =
    (sizeof(TraceHeader) + kTraceRings * sizeof(TraceRing) + shm::kLargestPage - 1) /
    shm::kLargestPage * shm::kLargestPage;
inline constexpr size_t kTraceBytes = kTraceDataOffset + size_t{kTraceRings} * kTraceRingBytes;

static_assert(sizeof(TraceHeader) == 4096 && sizeof(TraceRing) == 256);
static_assert(kTraceRingBytes % shm::kLargestPage == 0);
static_assert(offsetof(shm::Record, stream) == 16);
static_assert(16 + 8 * kWordsARecord == sizeof(shm::Record));

}  // namespace tandem::trace
