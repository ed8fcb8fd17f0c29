// Telemetry on its way from the rings to whoever asked for it. Bounded, and empty while nobody
// asks: the memory is allocated at the first request and freed when requests cease.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shm_layout.h"

namespace tandem::daemon {

class RecordBuffer {
 public:
  static constexpr size_t kCapacity = 65536;              // 4 MiB
  static constexpr uint64_t kInterestNs = 5'000'000'000;  // how long a request lasts
  static constexpr uint32_t kAllKinds = UINT32_MAX;

  struct Run {
    uint64_t process_id;
    std::vector<shm::Record> records;
  };

  // Somebody asked at `now_ns` for the kinds of records whose bits are set; 0 ends the interest.
  void want(uint64_t now_ns, uint32_t kinds);
  // Tells whether anybody is still interested; frees everything if not.
  bool wanted(uint64_t now_ns);

  bool wants(uint8_t kind) const { return kind < 32 && (kinds_ >> kind & 1) != 0; }

  // end() is where to put up to room() further records; append() then says how many, and whose.
  size_t room() const { return records_.size() - used_; }
  shm::Record* end() { return records_.data() + used_; }
  void append(uint64_t process_id, size_t count);

  // Removes and returns the oldest `limit` records.
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
