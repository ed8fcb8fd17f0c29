// MPS servers as the device process sees them: sharing, limits, and the effect of an end.
#include "check.h"
#include "simulation.h"

using namespace tandem::softgpu;

namespace {

constexpr uint64_t kMs = 1'000'000;

uint32_t serve(Simulation& s) {
  const uint32_t server = s.greet(1, kMpsServer);
  s.peers[server].goes_idle = false;
  return server;
}

// Makes a worker that has joined that server (0: the device's own mode) but has no context yet.
uint32_t enter(Simulation& s, int32_t pid, uint32_t server, uint64_t limit = kNever,
               uint32_t priority = 0) {
  const uint32_t client = s.greet(pid, 0);
  JoinMps join{};
  join.server = server ? s.peers[server].id : 0;
  join.priority = priority;
  for (uint64_t& bytes : join.memory_limit_bytes) bytes = limit;
  s.send(client, Type::kJoinMps, join);
  return client;
}
uint32_t join_server(Simulation& s, int32_t pid, uint32_t server) {
  const uint32_t client = enter(s, pid, server);
  CHECK_EQ(s.peers[client].joins.back().status, uint32_t{kSuccess});
  s.context(client, 1);
  s.stream(client, 1);
  return client;
}

}  // namespace

TEST(clients_of_one_server_overlap_and_others_take_turns_with_them) {
  Simulation s;
  const uint32_t server = serve(s);
  const uint32_t a = join_server(s, 1, server), b = join_server(s, 2, server);
  const uint32_t alone = s.join(3);
  const uint64_t on_a = s.submit(a, kernel(kMs, "k", 1, 4));
  const uint64_t on_b = s.submit(b, kernel(kMs, "k", 1, 4));
  const uint64_t other = s.submit(alone, kernel(kMs, "k", 1, 4));
  s.run();
  CHECK_EQ(s.done(a, on_a).start_ns, s.done(b, on_b).start_ns);
  const bool before = s.done(alone, other).end_ns <= s.done(a, on_a).start_ns;
  const bool after = s.done(alone, other).start_ns >= s.done(a, on_a).end_ns;
  CHECK(before || after);
}

TEST(a_server_that_goes_takes_its_clients_along_and_no_others) {
  Simulation s;
  const uint32_t server = serve(s), second = serve(s);
  const uint32_t a = join_server(s, 1, server), b = join_server(s, 2, second);
  const uint64_t cut = s.submit(a, kernel(kMs)), kept = s.submit(b, kernel(kMs));
  s.close(server);
  s.run();
  CHECK_EQ(s.done(a, cut).status, uint32_t{kMpsRpcFailure});
  CHECK_EQ(s.done(b, kept).status, 0u);
  s.context(a, 2);
  CHECK_EQ(s.peers[a].faults.back().status, uint32_t{kMpsRpcFailure});
  CHECK_EQ(s.engine.lease_count(), 3u);  // the other server and both workers
}

TEST(a_client_is_ended_only_by_its_own_server) {
  Simulation s;
  const uint32_t server = serve(s), foreign = serve(s);
  const uint32_t a = join_server(s, 7, server);
  s.send(foreign, Type::kMpsTerminate, MpsTerminate{{}, 7, 0});
  CHECK(s.peers[a].faults.empty());
  s.send(server, Type::kMpsTerminate, MpsTerminate{{}, 7, 0});
  CHECK_EQ(s.peers[a].faults.back().status, uint32_t{kMpsClientTerminated});
}

TEST(a_fault_closes_the_server_until_its_clients_have_gone) {
  Simulation s;
  const uint32_t server = serve(s);
  const uint32_t a = join_server(s, 1, server), b = join_server(s, 2, server);
  s.peers[a].body_status = kLaunchFailed;
  Work work = kernel(kMs);
  work.needs_body = true;
  s.submit(a, work);
  s.run();
  CHECK_EQ(s.peers[b].faults.back().status, uint32_t{kLaunchFailed});
  CHECK_EQ(s.peers[enter(s, 3, server)].joins.back().status, uint32_t{kMpsServerNotReady});
  s.close(a);
  s.close(b);
  CHECK_EQ(s.peers[server].faults.back().status, uint32_t{kSuccess});
  CHECK_EQ(s.peers[enter(s, 4, server)].joins.back().status, uint32_t{kSuccess});
}

TEST(limits_and_numbers_that_do_not_exist_are_refused) {
  Simulation s;
  const uint32_t server = serve(s);
  CHECK_EQ(s.peers[enter(s, 1, 0)].joins.back().status, uint32_t{kMpsConnectionFailed});
  const uint32_t a = enter(s, 2, server, 1000);
  s.send(a, Type::kMemReserve, MemReserve{{}, 1, 1000, 0, 0});
  s.send(a, Type::kMemReserve, MemReserve{{}, 2, 1, 0, 0});
  CHECK_EQ(s.peers[a].memory[0].status, 0u);
  CHECK_EQ(s.peers[a].memory[1].status, uint32_t{kOutOfMemory});
  const uint32_t late = join_server(s, 3, server);
  s.send(late, Type::kJoinMps, JoinMps{});
  CHECK(s.peers[late].closed);
  s.send(server, Type::kSyncTime, SyncTime{});
  CHECK(s.peers[server].closed);
}
