#include "daemon/record_buffer.h"

#include <algorithm>

namespace tandem::daemon {

void RecordBuffer::want(uint64_t now_ns, uint32_t kinds) {
  kinds_ = kinds;
  wanted_until_ns_ = kinds != 0 ? now_ns + kInterestNs : 0;
  if (kinds != 0) records_.resize(kCapacity);
}

bool RecordBuffer::wanted(uint64_t now_ns) {
  if (now_ns < wanted_until_ns_) return true;
  if (!records_.empty()) {
    std::vector<shm::Record>().swap(records_);
    std::vector<Span>().swap(spans_);
    used_ = 0;
  }
  return false;
}

void RecordBuffer::append(uint64_t process_id, size_t count) {
  if (count == 0) return;
  used_ += count;
  if (!spans_.empty() && spans_.back().process_id == process_id) {
    spans_.back().count += count;
  } else {
    spans_.push_back({process_id, count});
  }
}

std::vector<RecordBuffer::Run> RecordBuffer::take(size_t limit) {
  std::vector<Run> runs;
  size_t taken = 0;
  size_t whole_spans = 0;
  for (Span& span : spans_) {
    const size_t count = std::min(span.count, limit - taken);
    if (count == 0) break;
    const shm::Record* begin = records_.data() + taken;
    runs.push_back({span.process_id, std::vector<shm::Record>(begin, begin + count)});
    taken += count;
    span.count -= count;
    if (span.count == 0) ++whole_spans;
  }
  spans_.erase(spans_.begin(), spans_.begin() + static_cast<std::ptrdiff_t>(whole_spans));
  std::copy(records_.data() + taken, records_.data() + used_, records_.data());
  used_ -= taken;
  return runs;
}

}  // namespace tandem::daemon
