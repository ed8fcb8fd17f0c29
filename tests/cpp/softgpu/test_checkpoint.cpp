// Checkpoints as the device process sees them: states, waits, timeouts, and ends at any moment.
#include "check.h"
#include "simulation.h"

using namespace tandem::softgpu;

namespace {

constexpr uint64_t kMs = 1'000'000;

uint32_t asker(Simulation& s) {
  const uint32_t connection = s.greet(1, kQueryOnly);
  s.peers[connection].goes_idle = false;
  return connection;
}
uint32_t ask(Simulation& s, uint32_t from, uint32_t pid, CheckpointVerb verb,
             uint64_t timeout_ns = 0) {
  const size_t before = s.peers[from].checkpoints.size();
  s.send(from, Type::kCheckpoint, Checkpoint{{}, 1, pid, static_cast<uint32_t>(verb), timeout_ns});
  if (s.peers[from].checkpoints.size() == before) return UINT32_MAX;  // not answered yet
  return s.peers[from].checkpoints.back().status;
}
void freeze(Simulation& s, uint32_t client) { s.send(client, Type::kFrozen, Frozen{}); }

}  // namespace

TEST(a_lock_ends_when_the_calls_have_returned_and_the_work_has_ended) {
  Simulation s;
  const uint32_t who = asker(s), a = s.join(7);
  const uint64_t op = s.submit(a, kernel(kMs));
  CHECK_EQ(ask(s, who, 7, CheckpointVerb::kLock), UINT32_MAX);
  CHECK_EQ(s.peers[a].freezes.back().on, 1u);
  freeze(s, a);
  CHECK(s.peers[who].checkpoints.empty());
  s.run();
  CHECK_EQ(s.done(a, op).end_ns, kMs);
  CHECK_EQ(s.peers[who].checkpoints.back().status, 0u);
  CHECK_EQ(s.peers[who].checkpoints.back().state, 1u);
}

TEST(a_lock_that_is_not_reached_in_time_is_undone) {
  Simulation s;
  const uint32_t who = asker(s), a = s.join(7);
  s.submit(a, kernel(10 * kMs));
  // The client becomes idle as soon as it hears of the lock, so that time passes at once.
  CHECK_EQ(ask(s, who, 7, CheckpointVerb::kLock, 2 * kMs), uint32_t{kNotReady});
  CHECK_EQ(s.peers[who].checkpoints.back().state, 0u);
  CHECK_EQ(s.peers[a].freezes.back().on, 0u);
}

TEST(a_process_is_its_users_and_roots) {
  Simulation s;
  const uint32_t root = asker(s), own = s.greet(2, kQueryOnly, 1000);
  const uint32_t other = s.greet(3, kQueryOnly, 1001);
  s.greet(7, 0, 1000);
  CHECK_EQ(ask(s, other, 7, CheckpointVerb::kGetState), uint32_t{kNotPermitted});
  CHECK_EQ(ask(s, other, 7, CheckpointVerb::kLock), uint32_t{kNotPermitted});
  CHECK_EQ(ask(s, own, 7, CheckpointVerb::kGetState), 0u);
  CHECK_EQ(ask(s, root, 7, CheckpointVerb::kGetState), 0u);
}

TEST(memory_goes_and_comes_back_if_there_is_room) {
  Simulation s;
  const uint32_t who = asker(s), a = s.join(7), b = s.join(8);
  s.send(a, Type::kMemReserve, MemReserve{{}, 1, 600 << 20, 0, 0});
  CHECK_EQ(ask(s, who, 7, CheckpointVerb::kCheckpoint), uint32_t{kIllegalState});
  ask(s, who, 7, CheckpointVerb::kLock);
  freeze(s, a);
  s.run();
  CHECK_EQ(ask(s, who, 7, CheckpointVerb::kCheckpoint), 0u);
  s.send(b, Type::kMemReserve, MemReserve{{}, 2, 900 << 20, 0, 0});
  CHECK_EQ(s.peers[b].memory.back().status, 0u);
  CHECK_EQ(ask(s, who, 7, CheckpointVerb::kRestore), uint32_t{kOutOfMemory});
  CHECK_EQ(s.peers[who].checkpoints.back().state, 2u);
  s.send(b, Type::kMemRelease, MemRelease{{}, s.peers[b].memory.back().allocation});
  CHECK_EQ(ask(s, who, 7, CheckpointVerb::kRestore), 0u);
  CHECK_EQ(ask(s, who, 7, CheckpointVerb::kUnlock), 0u);
  CHECK_EQ(s.peers[a].freezes.back().on, 0u);
}

TEST(whoever_goes_harms_nobody) {
  Simulation s;
  const uint32_t who = asker(s), a = s.join(7), b = s.join(8);
  s.submit(a, kernel(kMs));
  ask(s, who, 7, CheckpointVerb::kLock);
  s.close(a);  // the target, before it is locked
  CHECK_EQ(s.peers[who].checkpoints.back().status, uint32_t{kInvalidValue});
  CHECK_EQ(ask(s, who, 7, CheckpointVerb::kGetState), uint32_t{kInvalidValue});
  s.submit(b, kernel(kMs));
  ask(s, who, 8, CheckpointVerb::kLock);
  s.close(who);  // the one who asked
  freeze(s, b);
  s.run();
  const uint32_t other = asker(s);
  CHECK_EQ(ask(s, other, 8, CheckpointVerb::kUnlock), 0u);
}

TEST(an_unknown_verb_ends_the_connection) {
  Simulation s;
  const uint32_t who = asker(s);
  s.join(7);
  ask(s, who, 7, static_cast<CheckpointVerb>(99));
  CHECK(s.peers[who].closed);
}
