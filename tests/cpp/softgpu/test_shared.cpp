// Interprocess events, and memory that several clients hold.
#include "check.h"
#include "simulation.h"

using namespace tandem::softgpu;

namespace {

constexpr uint64_t kCookie = 77;

uint64_t share(Simulation* s, uint32_t client, uint64_t op = 0) {
  s->send(client, Type::kEventShare, EventShare{{}, 1, op, kCookie});
  return s->peers[client].event_replies.back().event;
}
uint32_t open(Simulation* s, uint32_t client, uint64_t event, uint64_t cookie = kCookie) {
  s->send(client, Type::kEventOpen, EventOpen{{}, 2, event, cookie});
  return s->peers[client].event_replies.back().status;
}
Work record(uint64_t event) {
  Work work = of_kind(OpKind::kEvent);
  work.blocks = kSharedEventBit | event;
  return work;
}
Work wait_for(uint64_t event) {
  Work work = of_kind(OpKind::kEvent);
  work.blocks = 0;
  work.deps = {kSharedEventBit | event};
  return work;
}
uint32_t watch(Simulation* s, uint32_t client, uint64_t event, uint32_t patient) {
  s->send(client, Type::kEventWatch, EventWatch{{}, 3, event, patient, 0});
  return s->peers[client].event_replies.back().status;
}
uint64_t used_bytes(Simulation* s, uint32_t client) {
  s->send(client, Type::kMemInfo, MemInfo{{}, 7, 0, 0});
  const MemInfoReply& info = s->peers[client].infos.back();
  return info.total_bytes - info.free_bytes;
}
uint64_t reserve(Simulation* s, uint32_t client, uint64_t bytes) {
  s->send(client, Type::kMemReserve, MemReserve{{}, 9, bytes, 0, 0});
  return s->peers[client].memory.back().allocation;
}
uint32_t retain(Simulation* s, uint32_t client, uint64_t allocation) {
  s->send(client, Type::kMemRetain, MemRetain{{}, 9, allocation});
  return s->peers[client].memory.back().status;
}

}  // namespace

TEST(a_wait_in_one_client_comes_after_the_record_in_another) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t event = share(&s, a);
  CHECK_EQ(open(&s, b, event), +kSuccess);
  s.submit(a, kernel(1000));
  s.submit(a, record(event));
  const uint64_t waiting = s.submit(b, wait_for(event));
  CHECK_EQ(watch(&s, b, event, 0), +kNotReady);
  s.run();
  CHECK_EQ(s.done(b, waiting).end_ns, 1000u);
  CHECK_EQ(watch(&s, b, event, 0), +kSuccess);
}

TEST(the_opener_can_record_and_the_maker_wait) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t event = share(&s, a);
  CHECK_EQ(open(&s, b, event), +kSuccess);
  s.submit(b, kernel(500));
  s.submit(b, record(event));
  const uint64_t waiting = s.submit(a, wait_for(event));
  s.run();
  CHECK_EQ(s.done(a, waiting).end_ns, 500u);
}

TEST(a_patient_watch_is_answered_when_the_record_ends) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t event = share(&s, a);
  open(&s, b, event);
  s.submit(a, kernel(1000));
  s.submit(a, record(event));
  const size_t before = s.peers[b].event_replies.size();
  s.send(b, Type::kEventWatch, EventWatch{{}, 3, event, 1, 0});
  CHECK_EQ(s.peers[b].event_replies.size(), before);
  s.run();
  CHECK_EQ(s.peers[b].event_replies.size(), before + 1);
  CHECK_EQ(s.peers[b].event_replies.back().status, +kSuccess);
}

TEST(a_dead_client_holds_up_nobody_who_waits_for_it) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t event = share(&s, a);
  open(&s, b, event);
  s.submit(a, kernel(1e12));
  s.submit(a, record(event));
  const uint64_t waiting = s.submit(b, wait_for(event));
  const size_t before = s.peers[b].event_replies.size();
  s.send(b, Type::kEventWatch, EventWatch{{}, 3, event, 1, 0});
  s.close(a);
  s.run();
  CHECK_EQ(s.done(b, waiting).status, +kSuccess);
  CHECK_EQ(s.peers[b].event_replies.size(), before + 1);
}

TEST(a_client_that_dies_waiting_is_forgotten) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t event = share(&s, a);
  open(&s, b, event);
  s.submit(a, kernel(1000));
  const uint64_t recorded = s.submit(a, record(event));
  s.submit(b, wait_for(event));
  s.submit(b, kernel(1000));
  s.send(b, Type::kEventWatch, EventWatch{{}, 3, event, 1, 0});
  s.close(b);
  s.run();
  CHECK_EQ(s.done(a, recorded).end_ns, 1000u);
}

TEST(a_wait_of_a_destroyed_context_is_forgotten_too) {
  Simulation s;
  const uint32_t a = s.join();
  s.context(a, 2);
  s.stream(a, 5, 0, 2);
  const uint64_t first = s.submit(a, kernel(1000));
  Work waits = kernel(10, "w", 5);
  waits.deps = {first};
  s.submit(a, waits, 2);
  s.send(a, Type::kContextDestroy, ContextDestroy{{}, 2});
  s.run();
  CHECK_EQ(s.done(a, first).end_ns, 1000u);
}

TEST(an_event_is_opened_only_with_its_cookie) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t event = share(&s, a);
  CHECK_EQ(open(&s, b, event, kCookie + 1), +kInvalidHandle);
  CHECK_EQ(open(&s, b, event + 1), +kInvalidHandle);
  s.submit(b, wait_for(event));  // it does not hold the event: a broken client
  CHECK(s.peers[b].closed);
  s.send(a, Type::kEventRelease, EventRelease{{}, event});
  const uint32_t c = s.join(3);
  CHECK_EQ(open(&s, c, event), +kInvalidHandle);
}

TEST(an_event_lives_until_its_last_holder_lets_go) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2), c = s.join(3);
  const uint64_t event = share(&s, a);
  open(&s, b, event);
  s.close(a);
  CHECK_EQ(open(&s, c, event), +kSuccess);
  s.send(b, Type::kEventRelease, EventRelease{{}, event});
  s.send(c, Type::kEventRelease, EventRelease{{}, event});
  CHECK_EQ(open(&s, b, event), +kInvalidHandle);
  s.send(c, Type::kEventRelease, EventRelease{{}, event});
  CHECK(s.peers[c].closed);
}

TEST(retained_memory_counts_once_and_until_the_last_holder_goes) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2), c = s.join(3);
  const uint64_t allocation = reserve(&s, a, 1000);
  CHECK_EQ(retain(&s, b, allocation), +kSuccess);
  CHECK_EQ(retain(&s, b, allocation), +kSuccess);
  CHECK_EQ(used_bytes(&s, c), 1000u);
  s.send(a, Type::kMemRelease, MemRelease{{}, allocation});
  CHECK_EQ(used_bytes(&s, c), 1000u);
  s.send(b, Type::kMemRelease, MemRelease{{}, allocation});
  CHECK_EQ(used_bytes(&s, c), 1000u);
  s.close(b);
  CHECK_EQ(used_bytes(&s, c), 0u);
  CHECK_EQ(retain(&s, c, allocation), +kInvalidValue);
}

TEST(only_a_holder_can_release_retained_memory) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2), c = s.join(3);
  const uint64_t allocation = reserve(&s, a, 1000);
  retain(&s, b, allocation);
  s.send(c, Type::kMemRelease, MemRelease{{}, allocation});
  s.close(a);
  CHECK_EQ(used_bytes(&s, c), 1000u);
  s.send(b, Type::kMemRelease, MemRelease{{}, allocation});
  CHECK_EQ(used_bytes(&s, c), 0u);
}
