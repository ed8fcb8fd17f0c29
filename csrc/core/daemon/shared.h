// The three memfds of one attached process, which the daemon creates, initialises, maps and seals.
//
//   memfd      daemon's map   seals at creation                   after seal_presence
//   command    read-write     SHRINK GROW FUTURE_WRITE SEAL
//   state      read-only      SHRINK GROW SEAL
//   presence   read-only      SHRINK GROW                         + FUTURE_WRITE SEAL
//
// FUTURE_WRITE spares existing maps: the daemon's own of command, the job's own of presence. SEAL
// comes last, since nothing can be added after it. Presence lacks SEAL until the job has mapped it,
// so a job could add SEAL itself; then seal_presence fails and peers must not see the page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "shm_layout.h"

namespace tandem::daemon {

// Which system call failed, and its errno; empty on success.
struct [[nodiscard]] Failure {
  int error = 0;
  const char* call = "";
  explicit operator bool() const { return error != 0; }
};

// One mmap, unmapped with the object.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  Failure map(int fd, size_t bytes, bool writable);
  void* base() const { return base_; }

 private:
  void* base_ = nullptr;
  size_t bytes_ = 0;
};

// The mapped side. The poller keeps a reference, so closing a Channel never unmaps pages in use.
class Pages {
 public:
  Pages(uint64_t process_id) : process_id_(process_id) {}

  uint64_t process_id() const { return process_id_; }
  shm::CommandPage& command() const { return *static_cast<shm::CommandPage*>(command_.base()); }
  const shm::StatePage& state() const { return *static_cast<shm::StatePage*>(state_.base()); }
  const shm::Slot* slots() const { return at<shm::Slot>(shm::kSlotsOffset); }
  const shm::RingHeader* ring_headers() const {
    return at<shm::RingHeader>(shm::kRingHeadersOffset);
  }
  const shm::Record* ring(uint32_t index) const {
    return at<shm::Record>(shm::kRingsOffset + size_t{index} * shm::kRingBytes);
  }
  const shm::RingHeader& sample_header() const {
    return *at<shm::RingHeader>(shm::kSampleHeaderOffset);
  }
  const shm::Record* sample_ring() const { return at<shm::Record>(shm::kSampleRingOffset); }
  const shm::PresencePage& presence() const {
    return *static_cast<shm::PresencePage*>(presence_.base());
  }

  // Says that the daemon's core is alive at `tick_ns`. Safe from any thread.
  void stamp(uint64_t tick_ns) const;

  // From now until end_sample the process writes the parameters of its launches. Returns the
  // sample's number. One thread at a time.
  uint32_t begin_sample() const;
  void end_sample() const;

 private:
  friend class Channel;

  template <typename T>
  const T* at(size_t offset) const {
    return reinterpret_cast<const T*>(static_cast<const char*>(state_.base()) + offset);
  }

  uint64_t process_id_;
  Mapping command_;
  Mapping state_;
  Mapping presence_;
};

// The descriptors, and everything that the daemon tells the process. Used by one thread.
class Channel {
 public:
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel();

  // Returns null and fills `failure` if the kernel refuses.
  static std::unique_ptr<Channel> create(uint64_t process_id, uint64_t job_id, Failure* failure);

  const std::shared_ptr<Pages>& pages() const { return pages_; }
  int command_fd() const { return command_fd_; }
  int state_fd() const { return state_fd_; }
  int presence_fd() const { return presence_fd_; }

  Failure seal_presence();

  // Returns the new gate word. Wakes waiters, unless the gate was in that state already.
  uint32_t set_gate(bool hold);
  // Lets the process run until it has made this many marks of the kind; 0 = no limit.
  void set_mark_limit(shm::LimitKind kind, uint64_t number);
  // Tells a program that listens of a coming pause; holds nothing. 0 = there is none, or no longer.
  void set_pause(uint32_t number);
  void set_window(uint32_t segments, uint64_t segment_ns);
  void set_class(shm::JobClass job_class);
  void set_linger(uint64_t linger_ns, uint64_t limit_ns);
  void set_flags(uint32_t flags);
  void set_presence_mask(uint64_t mask);
  void set_memory_limit(uint64_t limit_bytes);
  void set_memory_lease(uint64_t lease_bytes);
  void set_memory_wait(uint64_t wait_ns);
  // `line` consists of shm::kLine* flags. Wakes those who wait for memory.
  void set_memory_place(uint64_t ticket, uint32_t round, uint32_t line);
  // The process reads it once it is told to (wire::Swap); `order` is never 0.
  void set_resident_target(uint64_t bytes, uint32_t order);
  // `lane` consists of shm::kLane* flags.
  void set_lane(uint32_t lane);
  void set_sms(const shm::SmSet& set, uint32_t turn);
  void set_stale(uint64_t stale_ns);

 private:
  explicit Channel(std::shared_ptr<Pages> pages) : pages_(std::move(pages)) {}

  Failure create_command(uint64_t job_id);
  Failure create_state();
  Failure create_presence();

  std::shared_ptr<Pages> pages_;
  int command_fd_ = -1;
  int state_fd_ = -1;
  int presence_fd_ = -1;
};

}  // namespace tandem::daemon
