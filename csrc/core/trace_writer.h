// One thread's end of a trace: claims a ring and writes events into it, without heap or lock.
#pragma once

#include <cstdint>

#include "event_writer.h"
#include "trace_layout.h"

namespace tandem::trace {

// A traced process's view of the trace: the header and the ring headers. Null until opened.
class TraceMap {
 public:
  // `place` is "PATH:KEY" with the key in hexadecimal. Returns false and changes nothing if that is
  // not a trace of this version.
  bool open(const char* place);

  [[nodiscard]] bool is_open() const { return header_ != nullptr; }
  [[nodiscard]] bool device_times() const { return header_->device_times != 0; }
  [[nodiscard]] TraceHeader& header() const { return *header_; }
  [[nodiscard]] TraceRing& ring(uint32_t index) const { return rings_[index]; }
  [[nodiscard]] int descriptor() const { return fd_; }

 private:
  TraceHeader* header_ = nullptr;
  TraceRing* rings_ = nullptr;
  int fd_ = -1;
};

class TraceWriter {
 public:
  // Takes a free ring; if `patient`, waits for one as long as `put` waits for room. False: none
  // became free.
  bool claim(const TraceMap& map, uint32_t pid, uint32_t tid, bool patient = true);
  [[nodiscard]] bool has_ring() const { return ring_ != nullptr; }

  // Notes the current call, so that the reader of a process that dies in it knows.
  void enter(uint64_t call, uint64_t number, uint64_t now_ns);
  void leave();

  // Writes a whole event, or counts a loss and returns false.
  bool put(const shm::Record& head, const uint64_t* words, const char* text);

  void give_back();  // thread exit
  void forget();     // in the child of a fork: the ring is the parent's

 private:
  bool wait_for_room(uint64_t records);

  TraceRing* ring_ = nullptr;
  shm::Record* data_ = nullptr;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;  // as last read
  uint32_t wait_ms_ = 0;
  bool is_stalled_ = false;  // no progress of the reader for wait_ms: drop, do not wait
};

}  // namespace tandem::trace
