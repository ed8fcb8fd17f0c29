// The job's side of a Channel, for tests: maps the state and presence pages writable.
#pragma once

#include <cstdlib>

#include "daemon/shared.h"

class FakeShim {
 public:
  explicit FakeShim(const tandem::daemon::Channel& channel) {
    namespace shm = tandem::shm;
    if (state_.map(channel.state_fd(), shm::kStateBytes, true) ||
        presence_.map(channel.presence_fd(), shm::kPresenceBytes, true)) {
      std::abort();
    }
  }

  tandem::shm::StatePage& state() { return *static_cast<tandem::shm::StatePage*>(state_.base()); }
  tandem::shm::Slot& slot(uint32_t i) {
    return at<tandem::shm::Slot>(tandem::shm::kSlotsOffset)[i];
  }
  tandem::shm::RingHeader& ring_header(uint32_t i) {
    return at<tandem::shm::RingHeader>(tandem::shm::kRingHeadersOffset)[i];
  }
  tandem::shm::Record* ring(uint32_t i) {
    return at<tandem::shm::Record>(tandem::shm::kRingsOffset + i * tandem::shm::kRingBytes);
  }
  tandem::shm::PresencePage& presence() {
    return *static_cast<tandem::shm::PresencePage*>(presence_.base());
  }

  void set_slot(uint32_t i, uint64_t issued, uint64_t done) {
    slot(i).state.store(static_cast<uint32_t>(tandem::shm::SlotState::kLive));
    slot(i).done.store(done);
    slot(i).issued.store(issued);
  }

 private:
  template <typename T>
  T* at(size_t offset) {
    return reinterpret_cast<T*>(static_cast<char*>(state_.base()) + offset);
  }

  tandem::daemon::Mapping state_;
  tandem::daemon::Mapping presence_;
};

// Writes a record by the contract, with word stores that a reader may race with. They are release
// stores, so a reader that sees a word also sees the head before it, as with plain stores on x86.
inline void write_record(tandem::shm::RingHeader& header, tandem::shm::Record* ring,
                         const tandem::shm::Record& record) {
  constexpr size_t kWords = sizeof(record) / sizeof(uint64_t);
  uint64_t words[kWords];
  __builtin_memcpy(words, &record, sizeof(record));
  const uint64_t head = header.head.load(std::memory_order_relaxed);
  auto* place = reinterpret_cast<uint64_t*>(ring + head % tandem::shm::kRingRecords);
  for (size_t i = 0; i < kWords; ++i) __atomic_store_n(place + i, words[i], __ATOMIC_RELEASE);
  header.head.store(head + 1, std::memory_order_release);  // pairs with the reader's acquire
}

inline std::unique_ptr<tandem::daemon::Channel> make_channel(uint64_t process_id = 7,
                                                             uint64_t job_id = 3) {
  tandem::daemon::Failure failure;
  auto channel = tandem::daemon::Channel::create(process_id, job_id, &failure);
  if (!channel) std::abort();
  return channel;
}
