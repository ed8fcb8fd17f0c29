// Telemetry on its way from the rings to whoever asked for it. Bounded, and nothing at all while
// nobody asks: the memory comes with the first request and goes when requests stay away.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shm_layout.h"

namespace tandem::daemon {

class RecordBuffer {
 public:
  static constexpr size_t kCapacity = 65536;                // 4 MiB
  static constexpr uint64_t kInterestNs = 5'000'000'000;    // a request is good for that long
  static constexpr uint32_t kAllKinds = UINT32_MAX;

  struct Run {
    uint64_t process_id;
    std::vector<shm::Record> records;
  };

  // Somebody asked at `now_ns`, for records of these kinds, a bit each; of none: nobody does.
  void want(uint64_t now_ns, uint32_t kinds);
  // Is anybody interested still? Frees everything when not.
  bool wanted(uint64_t now_ns);

  bool wants(uint8_t kind) const { return kind < 32 && (kinds_ >> kind & 1) != 0; }

  // Where to put up to room() further records; then append says how many there were, and whose.
  size_t room() const { return records_.size() - used_; }
  shm::Record* end() { return records_.data() + used_; }
  void append(uint64_t process_id, size_t count);

  // Takes out the oldest `limit` records.
  std::vector<Run> take(size_t limit);

 private:
  struct Span {
    uint64_t process_id;
    size_t count;
  };

  std::vector<shm::Record> records_;
  std::vector<Span> spans_;
  size_t used_ = 0;
  uint64_t wanted_until_ns_ = 0;
  uint32_t kinds_ = 0;
};

}  // namespace tandem::daemon
