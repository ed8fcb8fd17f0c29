// What the fuzzer of the software GPU's device process does with its bytes: a story of several
// connections that send anything in any order, beside one that keeps to the protocol. libFuzzer
// drives it (device_fuzzer.cpp), and the ordinary C++ tests drive it from fixed seeds.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "engine.h"

namespace fuzz {

using namespace tandem::softgpu;

class DeviceStory {
 public:
  DeviceStory(const uint8_t* bytes, size_t size)
      : bytes_(bytes), end_(bytes + size), engine_(settings(byte() & 3), now_ns_) {}

  void run() {
    const uint32_t good = join();
    while (bytes_ < end_) step();
    for (const uint32_t connection : bad_) engine_.close(connection, now_ns_);
    bad_.clear();
    drain();
    // The connection that kept to the protocol lives, and a new one is served whatever happened
    // before.
    require(!closed_good_);
    if (mode_ == Mode::kTime) expect_service(good);
    const uint32_t late = join();
    expect_service(late);
    engine_.close(late, now_ns_);
    engine_.close(good, now_ns_);
    require(engine_.lease_count() == 0);
    const std::string status = engine_.status_json();
    require(status.find("\"used_bytes\":0") != std::string::npos);
    require(status.size() < kMaxPacketBytes);
  }

 private:
  static constexpr size_t kMostBad = 6;
  static constexpr size_t kMostOutputBytes = 8 << 20;  // for one input packet, whatever it asks
  static constexpr uint64_t kWild[] = {UINT64_MAX,         uint64_t{1} << 63,  uint64_t{1} << 40,
                                       0x7ff8000000000000, 0x7ff0000000000000, 0xbff0000000000000};

  static void require(bool promise) {
    if (!promise) __builtin_trap();
  }

  Settings settings(uint8_t choice) {
    Settings settings;
    settings.profile = find_profile("tiny");
    settings.clock = choice & 1 ? ClockKind::kVirtual : ClockKind::kReal;
    mode_ = settings.arbitration.mode = choice & 2 ? Mode::kMps : Mode::kTime;
    settings.timeline_path = "kept here";
    is_virtual_ = choice & 1;
    return settings;
  }

  uint8_t byte() { return bytes_ < end_ ? *bytes_++ : uint8_t{0}; }

  // Returns mostly small numbers, so that some of them name things that exist.
  uint64_t word() {
    const uint8_t how = byte();
    if (how < 200) return how % 8;
    if (how < 240) return kWild[how % std::size(kWild)];
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }

  void step() {
    const uint8_t what = byte();
    if (what % 8 == 0 && bad_.size() < kMostBad) {
      bad_.push_back(engine_.open(7, now_ns_));
    } else if (what % 8 == 1) {
      now_ns_ += word() % 3'000'000'000;
      engine_.advance(now_ns_);
    } else if (!bad_.empty()) {
      const size_t which = byte() % bad_.size();
      if (what % 16 == 2) {
        engine_.close(bad_[which], now_ns_);
        bad_.erase(bad_.begin() + static_cast<std::ptrdiff_t>(which));
      } else {
        const std::vector<uint8_t> packet = what % 8 == 3 ? garbage() : messages();
        engine_.handle(bad_[which], packet.data(), packet.size(), now_ns_);
      }
    }
    drain();
  }

  std::vector<uint8_t> garbage() {
    std::vector<uint8_t> packet(byte());
    for (uint8_t& one : packet) one = byte();
    return packet;
  }

  // Returns messages, all but an eighth of them of the right size, with values of all kinds.
  std::vector<uint8_t> messages() {
    std::vector<uint8_t> packet;
    for (int left = 1 + byte() % 6; left > 0; --left) {
      const uint8_t choice = byte();
      const Type type = static_cast<Type>(1 + choice % static_cast<int>(Type::kMpsTerminate));
      append(&packet, type, size_of(type) + (choice > 224 ? byte() % 4 * 4 : 0));
    }
    return packet;
  }

  void append(std::vector<uint8_t>* packet, Type type, size_t size) {
    const size_t at = packet->size();
    packet->resize(at + size);
    for (size_t i = sizeof(Header); i + 8 <= size; i += 8) {
      const uint64_t value = word();
      std::memcpy(packet->data() + at + i, &value, sizeof value);
    }
    const Header header{static_cast<uint16_t>(type), static_cast<uint16_t>(size), 0};
    std::memcpy(packet->data() + at, &header, sizeof header);
    if (type == Type::kHello) {
      std::memcpy(packet->data() + at + offsetof(Hello, protocol), &kProtocol, sizeof kProtocol);
    }
    // Operation numbers must rise, else nearly every SUBMIT would be refused for that alone.
    if (type == Type::kSubmit && byte() > 8) {
      const uint64_t op = ++last_op_;
      std::memcpy(packet->data() + at + offsetof(Submit, op), &op, sizeof op);
    }
  }

  static size_t size_of(Type type) {
    switch (type) {
      case Type::kHello: return sizeof(Hello);
      case Type::kContextCreate: return sizeof(ContextCreate);
      case Type::kContextDestroy: return sizeof(ContextDestroy);
      case Type::kStreamCreate: return sizeof(StreamCreate);
      case Type::kStreamConfine: return sizeof(StreamConfine);
      case Type::kStreamDestroy: return sizeof(StreamDestroy);
      case Type::kMemReserve: return sizeof(MemReserve);
      case Type::kMemRelease: return sizeof(MemRelease);
      case Type::kMemInfo: return sizeof(MemInfo);
      case Type::kSubmit: return sizeof(Submit);
      case Type::kBody: return sizeof(Body);
      case Type::kIdle: return sizeof(Idle);
      case Type::kQuery: return sizeof(Query);
      case Type::kJoinMps: return sizeof(JoinMps);
      case Type::kMpsTerminate: return sizeof(MpsTerminate);
      default: return sizeof(Header);
    }
  }

  template <typename Message>
  void send(uint32_t connection, Type type, Message message) {
    message.header = {static_cast<uint16_t>(type), sizeof message, 0};
    engine_.handle(connection, reinterpret_cast<const uint8_t*>(&message), sizeof message, now_ns_);
    drain();
  }

  uint32_t join() {
    const uint32_t connection = engine_.open(1, now_ns_);
    good_.push_back(connection);
    received_.resize(connection + 1);
    Hello hello{};
    hello.protocol = kProtocol;
    send(connection, Type::kHello, hello);
    send(connection, Type::kContextCreate, ContextCreate{{}, 1, 0, 100});
    send(connection, Type::kStreamCreate, StreamCreate{{}, 1, 1, 0, 0});
    if (is_virtual_) idle(connection);
    return connection;
  }

  void idle(uint32_t connection) {
    send(connection, Type::kIdle, Idle{{}, received_[connection], kNever});
  }

  void expect_service(uint32_t connection) {
    done_ = false;
    Submit submit{};
    submit.op = 1'000'000 + connection;
    submit.context = submit.stream = 1;
    submit.grid_blocks = 8;
    submit.block_threads = 256;
    submit.flops_per_block = 1000;
    send(connection, Type::kSubmit, submit);
    for (int turn = 0; turn < 8 && !done_; ++turn) {
      for (const uint32_t one : good_) {
        if (is_virtual_) idle(one);
      }
      now_ns_ += 1'000'000'000;
      engine_.advance(now_ns_);
      drain();
    }
    require(done_);
  }

  // Takes the output as the server does, and checks it.
  void drain() {
    Output output = engine_.take_output();
    size_t bytes = output.timeline.size();
    for (const Output::Packet& packet : output.packets) {
      bytes += packet.bytes.size();
      require(packet.bytes.size() <= kMaxPacketBytes);
      for (const uint32_t one : good_) {
        if (one == packet.connection) look_at(one, packet.bytes);
      }
    }
    require(bytes <= kMostOutputBytes);
    for (const uint32_t connection : output.to_close) {
      for (const uint32_t one : good_) closed_good_ = closed_good_ || one == connection;
      engine_.close(connection, now_ns_);
      for (size_t i = 0; i < bad_.size(); ++i) {
        if (bad_[i] == connection) bad_.erase(bad_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    if (!output.to_close.empty()) drain();
  }

  void look_at(uint32_t connection, const Bytes& packet) {
    ++received_[connection];
    for (size_t at = 0; at < packet.size();) {
      Header header;
      require(packet.size() - at >= sizeof header);
      std::memcpy(&header, packet.data() + at, sizeof header);
      require(header.size >= sizeof header && header.size <= packet.size() - at);
      if (static_cast<Type>(header.type) == Type::kDone) {
        Done done;
        std::memcpy(&done, packet.data() + at, sizeof done);
        done_ = done_ || (done.op == 1'000'000 + connection && done.status == kSuccess);
      }
      at += header.size;
    }
  }

  const uint8_t* bytes_;
  const uint8_t* end_;
  Mode mode_ = Mode::kTime;
  bool is_virtual_ = false;
  uint64_t now_ns_ = 1;
  Engine engine_;
  std::vector<uint32_t> bad_, good_;
  std::vector<uint64_t> received_;  // packets for each connection
  uint64_t last_op_ = 0;
  bool closed_good_ = false, done_ = false;
};

inline void device(const uint8_t* bytes, size_t size) { DeviceStory(bytes, size).run(); }

}  // namespace fuzz
