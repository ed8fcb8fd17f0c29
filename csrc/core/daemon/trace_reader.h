// The tracer's end of a trace of calls: makes the memory, collects what the traced threads wrote.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/shared.h"
#include "trace_layout.h"

namespace tandem::daemon {

// Belongs to one thread. Copies records as they are: who reads them checks them.
class TraceReader {
 public:
  TraceReader() = default;
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;
  ~TraceReader();

  Failure open(bool device_times, uint32_t wait_ms, uint64_t key);

  [[nodiscard]] int descriptor() const { return fd_; }

  // Appends to `out` what is new, a kChunk record before each thread's, and frees the rings of
  // threads that are done. `look_for_dead`: also of those that were killed. False: nothing was new.
  bool drain(bool look_for_dead, std::string* out);

  // Threads that may still write.
  [[nodiscard]] uint32_t threads() const;

  // Calls that were not written, for want of room or of a ring, so far.
  [[nodiscard]] uint64_t lost() const;

 private:
  bool drain_ring(uint32_t index, std::string* out);
  void finish_ring(uint32_t index, std::string* out);
  [[nodiscard]] trace::TraceHeader& header() const;
  [[nodiscard]] trace::TraceRing& ring(uint32_t index) const;
  [[nodiscard]] const shm::Record* data(uint32_t index) const;

  int fd_ = -1;
  Mapping map_;
  uint64_t lost_ = 0;                           // told by rings so far
  uint64_t lost_seen_[trace::kTraceRings] = {};  // of each
};

}  // namespace tandem::daemon
