// What the fuzzers do with their bytes. libFuzzer drives these bodies (tests/fuzz/*_fuzzer.cpp),
// and the ordinary C++ tests drive the same ones from a fixed seed. A violated promise traps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "daemon/codec.h"
#include "daemon/ring_reader.h"
#include "daemon/snapshot.h"
#include "daemon/utf8.h"

namespace fuzz {

namespace daemon = tandem::daemon;
namespace shm = tandem::shm;
namespace wire = tandem::wire;

constexpr auto kMostIsolation = static_cast<uint32_t>(wire::Isolation::kMig);

inline void require(bool promise) {
  if (!promise) __builtin_trap();
}

inline bool is_text(const char* text, size_t bytes) {
  const size_t length = strnlen(text, bytes);
  return length < bytes && daemon::valid_utf8_bytes(text, length) == length;
}

inline void check_request(const wire::Request& request) {
  require(request.job_class <= 3 && request.sm_percent <= 100 && request.preemptible <= 2 &&
          request.swappable <= 3);
  require(is_text(request.name, sizeof(request.name)));
  require(is_text(request.group, sizeof(request.group)));
}

// A packet is either refused with a reason, or everything in it is within bounds.
inline void codec(const uint8_t* bytes, size_t size) {
  daemon::Message message;
  const daemon::Problem problem = daemon::decode(bytes, size, &message);
  if (problem) {
    require(strnlen(problem.text, sizeof(problem.text)) < sizeof(problem.text));
    return;
  }
  require(size <= wire::kMaxMessageBytes);
  if (message.type == wire::Type::kHello) {
    check_request(message.hello.request);
    require(message.hello.device_count <= wire::kMaxDevices);
    require(message.hello.layout_min <= message.hello.layout_max && message.hello.clock <= 1);
    require(message.hello.space.isolation <= kMostIsolation);
  } else if (message.type == wire::Type::kRegister) {
    check_request(message.request.request);
    require(is_text(message.request.command, sizeof(message.request.command)));
    require(is_text(message.request.gpu, sizeof(message.request.gpu)));
    require(message.request.space.isolation <= kMostIsolation);
  } else if (message.type == wire::Type::kShared) {
    require(message.shared.key != 0);
  } else {
    require(message.type == wire::Type::kMapped || message.type == wire::Type::kUses);
  }
}

// A packet that is valid except for the given bytes, which random bytes alone would never produce.
inline void codec_from_valid(uint16_t type, const uint8_t* edits, size_t size) {
  uint8_t packet[sizeof(wire::Hello) + sizeof(wire::Register)] = {};  // of either type
  size_t bytes = sizeof(wire::Mapped);
  if (type == static_cast<uint16_t>(wire::Type::kHello)) bytes = sizeof(wire::Hello);
  if (type == static_cast<uint16_t>(wire::Type::kRegister)) bytes = sizeof(wire::Register);
  const wire::Header header{wire::kMagic, wire::kProtocolVersion, type,
                            static_cast<uint32_t>(bytes), 0};
  std::memcpy(packet, &header, sizeof(header));
  for (size_t i = 0; i + 2 < size; i += 3) {
    packet[(size_t{edits[i]} << 8 | edits[i + 1]) % bytes] = edits[i + 2];
  }
  codec(packet, bytes);
}

// A channel whose job writes anything anywhere, and which the daemon reads round after round.
class State {
 public:
  State() {
    daemon::Failure failure;
    channel_ = daemon::Channel::create(1, 1, &failure);
    if (!channel_ || job_.map(channel_->state_fd(), shm::kStateBytes, true)) std::abort();
    out_.resize(shm::kRingRecords);
  }

  // Each 11 bytes are one write: where, what, and whether the daemon reads afterwards.
  void run(const uint8_t* bytes, size_t size) {
    written_.clear();
    snapshot_ = {};
    looker_ = {};
    for (daemon::RingReader& reader : readers_) reader = {};
    now_ns_ = 1'000'000;
    for (; size >= kStep; bytes += kStep, size -= kStep) {
      uint64_t value;
      std::memcpy(&value, bytes + 2, sizeof(value));
      write(size_t{bytes[0]} | size_t{bytes[1]} << 8, value);
      if (bytes[10] % 4 == 0) look(bytes[10] / 4u);
    }
    look(64);
    for (const size_t word : written_) words()[word].store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kStep = 11;
  // All pages before the rings, and the beginning of the first ring.
  static constexpr size_t kWords = shm::kRingsOffset / 8 + 64 * 8;

  std::atomic<uint64_t>* words() { return static_cast<std::atomic<uint64_t>*>(job_.base()); }

  void write(size_t word, uint64_t value) {
    word %= kWords;
    words()[word].store(value, std::memory_order_relaxed);
    written_.push_back(word);
  }

  void look(size_t room) {
    const daemon::Snapshot before = snapshot_;
    now_ns_ += 1000;
    looker_.look(*channel_->pages(), now_ns_, &snapshot_);
    check(before, snapshot_);
    const daemon::TickClock clock = daemon::tick_clock(*channel_->pages());
    for (uint32_t i = 0; i < shm::kRingCount; ++i) {
      const auto result = readers_[i].read(channel_->pages()->ring_headers()[i],
                                           channel_->pages()->ring(i), out_.data(), room);
      require(result.copied <= room);
      for (size_t r = 0; r < result.copied; ++r) {
        require(out_[r].kind > 0 && out_[r].kind < shm::kRecordKindCount);
        require(clock.to_ns(out_[r].ticks, now_ns_) <= now_ns_);
      }
    }
  }

  void check(const daemon::Snapshot& before, const daemon::Snapshot& after) const {
    constexpr uint64_t kMax = INT64_MAX;
    require(after.live_slots <= shm::kSlotCount && after.open_segments <= kMax);
    require(after.busy == (after.open_segments != 0));
    require(!after.busy || after.live_slots != 0);
    require(after.steps >= before.steps && after.steps <= kMax);
    require(after.launches >= before.launches && after.launches <= kMax);
    require(after.refused_count >= before.refused_count && after.refused_count <= kMax);
    for (uint32_t i = 0; i < shm::kRefusalCount; ++i)
      require(after.refused_by[i] >= before.refused_by[i] && after.refused_by[i] <= kMax);
    require(after.iteration_end_bytes >= before.iteration_end_bytes &&
            after.iteration_end_bytes <= after.iteration_peak_bytes &&
            after.iteration_peak_bytes <= kMax);
    require(after.device_bytes <= after.peak_bytes && after.peak_bytes <= kMax);
    require(after.memory_ticket <= kMax && after.memory_wanted_bytes <= kMax);
    require(after.memory_ticket != 0 || (after.memory_wanted_bytes == 0 && !after.memory_round &&
                                         !after.memory_of_quota && !after.memory_alone));
    require(static_cast<uint32_t>(after.wait_reason) < shm::kWaitReasonCount);
    require(after.waiting_threads != 0 ||
            (after.wait_reason == shm::WaitReason::kNone && after.wait_since_ns == 0));
    for (uint32_t i = 0; i < shm::kWaitReasonCount; ++i) {
      require(after.wait_total_ns[i] >= before.wait_total_ns[i] && after.wait_total_ns[i] <= kMax);
    }
    for (const uint64_t past_ns : {after.wait_since_ns, after.last_step_ns, after.helper_tick_ns}) {
      require(past_ns <= now_ns_);
    }
  }

  std::unique_ptr<daemon::Channel> channel_;
  daemon::Mapping job_;
  daemon::Snapshot snapshot_;
  daemon::Looker looker_;
  daemon::RingReader readers_[shm::kRingCount];
  std::vector<shm::Record> out_;
  std::vector<size_t> written_;
  uint64_t now_ns_ = 0;
};

}  // namespace fuzz
