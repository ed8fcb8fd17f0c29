// The same inputs give the same timeline; no input crashes the device or harms another client.
#include <random>

#include "check.h"
#include "simulation.h"

using namespace tandem::softgpu;

namespace {

constexpr uint64_t kSeed = 20240229;

// Runs a mixed load of several clients, from one seed.
std::string random_run(uint64_t seed, Mode mode) {
  std::mt19937_64 random(seed);
  Simulation s(tiny_settings(mode));
  const uint32_t count = 2 + static_cast<uint32_t>(random() % 3);
  for (uint32_t c = 1; c <= count; ++c) {
    s.join(static_cast<int32_t>(c));
    s.stream(c, 2, -1);
    s.stream(c, 3);
  }
  for (int i = 0; i < 60; ++i) {
    const auto c = 1 + static_cast<uint32_t>(random() % count);
    Work work =
        kernel(static_cast<double>(random() % 3'000'000), "k", 1 + random() % 3, 1 + random() % 40);
    work.kind = static_cast<OpKind>(random() % 8);  // all but memory operations that wait
    work.bytes = random() % 1'000'000;
    work.bytes_per_block = static_cast<double>(random() % 100'000);
    work.threads = 1 + static_cast<uint32_t>(random() % 1024);
    work.needs_body = random() % 2 == 0;
    if (s.peers[c].ops > 0) work.deps = {1 + random() % s.peers[c].ops};
    s.submit(c, work);
    if (random() % 10 == 0) s.run();
  }
  s.run();
  size_t done = 0, submitted = 0;
  for (const Peer& peer : s.peers) {
    done += peer.done.size();
    submitted += peer.ops;
  }
  CHECK_EQ(done, submitted);
  return s.timeline;
}

// Checks what must hold for every timeline, whatever the load.
void check_timeline(const std::vector<Line>& lines, Mode mode) {
  for (const Line& x : lines) {
    if (x.kind != "kernel" || x.start == x.end) continue;
    CHECK(x.sms >= 1 && x.sms <= 8);
    unsigned sms = 0;
    for (const Line& y : lines) {
      if (y.kind != "kernel" || y.start > x.start || y.end <= x.start) continue;
      sms += y.sms;
      if (mode == Mode::kTime) CHECK(x.client == y.client && x.context == y.context);
    }
    CHECK(sms <= 8);
  }
}

std::vector<Line> parse_all(const std::string& text) {
  std::vector<Line> lines;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    lines.push_back(parse_line(text.substr(at, text.find('\n', at) - at)));
  }
  return lines;
}

}  // namespace

TEST(the_same_run_gives_the_same_timeline_byte_for_byte) {
  for (uint64_t seed = kSeed; seed < kSeed + 40; ++seed) {
    for (const Mode mode : {Mode::kTime, Mode::kMps}) {
      const std::string first = random_run(seed, mode);
      CHECK(first == random_run(seed, mode));
      check_timeline(parse_all(first), mode);
    }
  }
}

TEST(bytes_of_the_parts_of_a_kernel_add_up) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  Work work = kernel(0, "long");
  work.bytes_per_block = 1'234'567;
  s.submit(a, work);
  for (int i = 0; i < 5; ++i) s.submit(b, kernel(777'777, "cuts"));
  s.run();
  uint64_t bytes = 0;
  unsigned parts = 0;
  for (const Line& line : s.lines_of("kernel")) {
    bytes += line.name == "long" ? line.bytes : 0;
    parts += line.name == "long" ? 1 : 0;
  }
  CHECK(parts > 1);
  CHECK_EQ(bytes, 8 * 1'234'567u);
}

TEST(garbage_disconnects_its_sender_and_nobody_else) {
  std::mt19937_64 random(kSeed);
  Simulation s;
  const uint32_t good = s.join(1);
  for (int round = 0; round < 3000; ++round) {
    const uint32_t bad = random() % 2 ? s.join(2) : s.greet(2, static_cast<uint32_t>(random() % 4));
    for (int i = 0; i < 4 && !s.peers[bad].closed; ++i) {
      std::vector<uint8_t> packet(random() % 700);
      for (uint8_t& byte : packet) byte = static_cast<uint8_t>(random());
      if (random() % 4 != 0 && packet.size() >= sizeof(Header)) {
        const Header header{static_cast<uint16_t>(random() % 24),
                            static_cast<uint16_t>(packet.size() / 8 * 8), 0};
        std::memcpy(packet.data(), &header, sizeof header);
        packet.resize(header.size);
      }
      // Small numbers, so that some of them name things that exist.
      for (size_t at = sizeof(Header); at + 8 <= packet.size(); at += 8) {
        const uint64_t small = random() % 5;
        if (random() % 4 != 0) std::memcpy(packet.data() + at, &small, sizeof small);
      }
      s.send_bytes(bad, packet.data(), packet.size());
    }
    if (!s.peers[bad].closed) s.close(bad);
  }
  const uint64_t op = s.submit(good, kernel(1000));
  s.run();
  CHECK_EQ(s.done(good, op).status, +kSuccess);
  CHECK(s.log.find("disconnecting it") != std::string::npos);
}

TEST(a_client_killed_at_any_instant_harms_nobody) {
  for (uint64_t seed = kSeed; seed < kSeed + 200; ++seed) {
    std::mt19937_64 random(seed);
    Simulation s(tiny_settings(seed % 2 ? Mode::kTime : Mode::kMps));
    const uint32_t victim = s.join(1), other = s.join(2), timer = s.join(3);
    s.stream(victim, 2);
    s.peers[victim].executes = seed % 3 != 0;
    for (uint64_t i = 0; i < 12; ++i) {
      Work work = kernel(static_cast<double>(random() % 900'000), "v", 1 + i % 2, 1 + i);
      work.kind = static_cast<OpKind>(random() % 9);
      work.needs_body = random() % 2 == 0;
      work.bytes = random() % 300'000;
      if (i > 2) work.deps = {i - 2};
      s.submit(victim, work);
      s.submit(other, kernel(200'000, "o"));
    }
    s.peers[timer].goes_idle = false;
    s.peers[timer].deadline_ns = random() % 5'000'000;
    s.idle(timer);
    s.run();
    s.close(victim);
    s.idle(timer);
    s.idle(timer);
    CHECK_EQ(s.peers[other].done.size(), 12u);
  }
}

TEST(clients_break_rules_in_every_documented_way_and_are_disconnected) {
  const auto closed_after = [](auto break_rule) {
    Simulation s;
    const uint32_t a = s.join();
    break_rule(&s, a);
    return s.peers[a].closed;
  };
  CHECK(closed_after([](Simulation* s, uint32_t a) { s->send(a, Type::kHello, Hello{}); }));
  CHECK(closed_after([](Simulation* s, uint32_t a) { s->context(a, 1); }));
  CHECK(closed_after([](Simulation* s, uint32_t a) { s->stream(a, 1); }));
  CHECK(closed_after([](Simulation* s, uint32_t a) { s->stream(a, 2, 0, 99); }));
  CHECK(closed_after([](Simulation* s, uint32_t a) { s->context(a, 2, 101); }));
  CHECK(closed_after([](Simulation* s, uint32_t a) {
    s->submit(a, kernel(1));
    s->peers[a].ops = 0;
    s->submit(a, kernel(1));
  }));
  CHECK(closed_after([](Simulation* s, uint32_t a) { s->submit(a, kernel(-1)); }));
  CHECK(closed_after([](Simulation* s, uint32_t a) { s->submit(a, kernel(1.0 / 0.0)); }));
  CHECK(closed_after([](Simulation* s, uint32_t a) {
    const uint64_t op = s->submit(a, kernel(1));
    s->send(a, Type::kBody, Body{{}, op, 0, 0, 0, 0, 0});
  }));
  CHECK(closed_after(
      [](Simulation* s, uint32_t a) { s->send(a, Type::kQuery, Query{{}, 1, 7, 0}); }));
  CHECK(closed_after([](Simulation* s, uint32_t a) { s->send_bytes(a, "", 0); }));
  CHECK(!closed_after([](Simulation* s, uint32_t a) { s->submit(a, kernel(1), 55); }));
}

TEST(another_protocol_is_told_so_and_disconnected) {
  Simulation s;
  const uint32_t connection = s.engine.open(5, 0);
  s.peers.resize(connection + 1);
  Hello hello{};
  hello.protocol = kProtocol + 1;
  s.peers[connection].connection = connection;
  s.peers[connection].id = 77;
  s.send(connection, Type::kHello, hello);
  CHECK_EQ(s.peers[connection].id, 0u);
  CHECK(s.peers[connection].closed);
}
