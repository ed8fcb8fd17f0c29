#include "daemon/live_memory.h"

#include <algorithm>
#include <iterator>

namespace tandem::daemon {
namespace {

bool is(const shm::Record& record, shm::RecordKind kind) {
  return record.kind == static_cast<uint8_t>(kind);
}

}  // namespace

void LiveMemory::take(const shm::Record* records, size_t count, uint64_t lost) {
  has_lost_ |= lost != 0;
  std::copy_if(records, records + count, std::back_inserter(taken_), [](const shm::Record& record) {
    return is(record, shm::RecordKind::kAlloc) || is(record, shm::RecordKind::kFree);
  });
}

void LiveMemory::settle() {
  if (has_lost_) {  // any allocation may have been freed meanwhile
    allocations_.clear();
    taken_.clear();
    has_lost_ = false;
  }
  std::stable_sort(taken_.begin(), taken_.end(),
                   [](const auto& a, const auto& b) { return a.ticks < b.ticks; });
  for (const shm::Record& record : taken_) apply(record);
  taken_.clear();
}

void LiveMemory::apply(const shm::Record& record) {
  if (is(record, shm::RecordKind::kAlloc)) allocations_.add({record.object, record.bytes});
  else allocations_.remove(record.object);
}

}  // namespace tandem::daemon
