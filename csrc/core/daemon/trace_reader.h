// The tracer's end of a trace of calls: creates the memory and collects what the traced threads
// wrote.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/shared.h"
#include "trace_layout.h"

namespace tandem::daemon {

// Used by one thread. Copies records unchecked: whoever reads them checks them.
class TraceReader {
 public:
  TraceReader() = default;
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;
  ~TraceReader();

  Failure open(bool device_times, uint32_t wait_ms, uint64_t key);

  [[nodiscard]] int descriptor() const { return fd_; }

  // Appends new records to `out`, those of each thread after a kChunk record, and frees the rings
  // of threads that have ended; with `look_for_dead` also of threads that were killed. Returns
  // false if nothing was new.
  bool drain(bool look_for_dead, std::string* out);

  // Threads that may still write.
  [[nodiscard]] uint32_t threads() const;

  // How many calls so far were not written, for lack of room or of a ring.
  [[nodiscard]] uint64_t lost() const;

 private:
  bool drain_ring(uint32_t index, std::string* out);
  void finish_ring(uint32_t index, std::string* out);
  [[nodiscard]] trace::TraceHeader& header() const;
  [[nodiscard]] trace::TraceRing& ring(uint32_t index) const;
  [[nodiscard]] const shm::Record* data(uint32_t index) const;

  int fd_ = -1;
  Mapping map_;
  uint64_t lost_ = 0;                            // reported by the rings so far
  uint64_t lost_seen_[trace::kTraceRings] = {};  // of each ring
};

}  // namespace tandem::daemon
