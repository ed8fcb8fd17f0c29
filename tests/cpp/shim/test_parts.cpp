// Durations, settings, memory, rings and presence: the small parts, one by one.
#include <unistd.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "check.h"
#include "durations.h"
#include "pages.h"
#include "presence.h"
#include "ring_writer.h"
#include "settings.h"

using namespace pages;

TEST(sizes_are_read_as_people_write_them) {
  uint64_t bytes = 0;
  CHECK(parse_bytes("20GiB", &bytes) && bytes == 20ull << 30);
  CHECK(parse_bytes("8g", &bytes) && bytes == 8ull << 30);
  CHECK(parse_bytes("1.5 kb", &bytes) && bytes == 1500);
  CHECK(parse_bytes("4096", &bytes) && bytes == 4096);
  for (const char* wrong : {"", "12XB", "GiB", "-1", "1 2", "99999999999999999999", "20000000TiB"})
    CHECK(!parse_bytes(wrong, &bytes));
}

TEST(times_shares_and_job_ids_are_read) {
  uint64_t value = 0;
  uint32_t percent = 0;
  CHECK(parse_duration_ns("50ms", &value) && value == 50'000'000);
  CHECK(!parse_duration_ns("50", &value));
  CHECK(parse_percent("40%", &percent) && percent == 40);
  CHECK(!parse_percent("0%", &percent) && !parse_percent("101%", &percent));
  CHECK(parse_job_id("j-7f3a", &value) && value == 0x7f3a);
  CHECK(!parse_job_id("j-", &value) && !parse_job_id("j-xyz", &value));
}

TEST(the_socket_is_where_the_environment_says) {
  unsetenv("TANDEM_SOCKET");
  setenv("TANDEM_RUNTIME_DIR", "/somewhere", 1);
  CHECK(std::strcmp(read_settings().socket_path, "/somewhere/attach.sock") == 0);
  setenv("TANDEM_SOCKET", "/else/where.sock", 1);
  CHECK(std::strcmp(read_settings().socket_path, "/else/where.sock") == 0);
  unsetenv("TANDEM_SOCKET");
  unsetenv("TANDEM_RUNTIME_DIR");
}

TEST(a_function_is_known_by_the_smallest_of_five_measurements_and_follows_later_ones) {
  Duration* duration = g_durations.find(DurationTable::key_of(0x10, 64));
  for (const uint64_t ns : {9'000u, 5'000u, 70'000u, 6'000u, 70'000u})
    DurationTable::measured(*duration, ns, duration->age);
  CHECK_EQ(duration->ns.load(), 5'000u);
  DurationTable::measured(*duration, 9'000, 0);
  CHECK_EQ(duration->ns.load(), 6'000u);
  DurationTable::measured(*duration, 10'000'000, 0);  // another job's turn: its effect is bounded
  CHECK(duration->ns.load() < 12'000u);
  CHECK(g_durations.find(DurationTable::key_of(0x10, 65'000)) != duration);
  CHECK(g_durations.find(DurationTable::key_of(0x10, 100)) == duration);
}

TEST(on_other_sms_what_was_measured_is_a_guess_that_the_next_measurement_replaces) {
  Duration* duration = g_durations.find(DurationTable::key_of(0x20, 64));
  const auto measure = [&](uint64_t ns, uint32_t age) {
    DurationTable::measured(*duration, ns, age);
  };
  g_durations.make_stale();
  CHECK(!duration->is_stale());  // nothing is known of it
  const uint32_t before = duration->age;
  for (int i = 0; i < 3; ++i) measure(9'000, before);
  duration->seen = 3;

  g_durations.make_stale();
  CHECK(duration->is_stale());
  CHECK_EQ(duration->seen.load(), 0u);
  measure(9'000, before);  // from an earlier launch
  CHECK(duration->is_stale());
  CHECK_EQ(duration->ns.load(), 9'000u);
  measure(80'000, duration->age);
  CHECK(!duration->is_stale());
  CHECK_EQ(duration->ns.load(), 80'000u);
}

TEST(a_full_table_says_so_instead_of_growing) {
  int missing = 0;
  for (uint64_t function = 1; function <= 20'000; ++function)
    missing += g_durations.find(DurationTable::key_of(function << 12, 1)) == nullptr;
  CHECK(missing > 0);
}

TEST(sixteen_threads_get_rings_and_the_next_share_one) {
  Channel* channel = make_channel();
  std::vector<RingWriter> writers(19);
  shm::Record record{};
  for (uint32_t i = 0; i < 19; ++i) {
    writers[i].claim(channel->state, i + 1);
    record.value = i;
    writers[i].put(record);
  }
  auto* headers = reinterpret_cast<shm::RingHeader*>(reinterpret_cast<char*>(channel->state) +
                                                     shm::kRingHeadersOffset);
  for (uint32_t i = 0; i < 16; ++i) CHECK_EQ(headers[i].head.load(), 1u);
  CHECK_EQ(headers[16].head.load(), 3u);
  writers[4].release();
  RingWriter next;
  next.claim(channel->state, 99);
  next.put(record);
  CHECK_EQ(headers[4].head.load(), 2u);  // it continues, so the reader never goes back
}

TEST(the_shared_ring_loses_nothing_while_it_is_not_crowded) {
  Channel* channel = make_channel();
  std::vector<RingWriter> taken(16);
  for (uint32_t i = 0; i < 16; ++i) taken[i].claim(channel->state, i + 1);
  std::thread threads[2];
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      RingWriter writer;
      writer.claim(channel->state, 50);
      for (int i = 0; i < 1000; ++i) writer.put(shm::Record{});
    });
  }
  for (std::thread& thread : threads) thread.join();
  auto* headers = reinterpret_cast<shm::RingHeader*>(reinterpret_cast<char*>(channel->state) +
                                                     shm::kRingHeadersOffset);
  CHECK(headers[16].head.load() <= 2000u && headers[16].head.load() >= 1000u);
}

TEST(a_latency_job_is_busy_while_it_works_and_lingers_after) {
  Channel* channel = make_channel();
  auto& until = channel->presence->busy_until_ns;
  show_busy(*channel, 1'000);
  CHECK_EQ(until.load(), 0u);  // not of the latency class, so nobody looks
  command_of(channel).gate.job_class = static_cast<uint32_t>(shm::JobClass::kLatency);
  command_of(channel).gate.linger_ns = 300'000;
  show_busy(*channel, 1'000);
  const uint64_t ahead = until;
  CHECK(ahead > 500'000'000);
  show_busy(*channel, 2'000);
  CHECK_EQ(until.load(), ahead);  // one store serves many launches
  channel->gate.slot_end = 1;
  channel->slots[0].open = 1;
  show_idle_if_so(*channel, 3'000);
  CHECK_EQ(until.load(), ahead);
  channel->slots[0].open = 0;
  show_idle_if_so(*channel, 4'000);
  CHECK_EQ(until.load(), 304'000u);
  show_idle_if_so(*channel, 9'000'000);  // later looks do not prolong it
  CHECK_EQ(until.load(), 304'000u);
}

TEST(a_request_that_is_kept_waiting_keeps_nobody_away) {
  Channel* channel = make_channel();
  auto& until = channel->presence->busy_until_ns;
  auto& waits = channel->state->waits;
  command_of(channel).gate.job_class = static_cast<uint32_t>(shm::JobClass::kLatency);
  command_of(channel).gate.linger_ns = 300'000;
  count_request(channel, 1);
  const uint64_t begin_ns = g_clock.now_ns();
  for (const shm::WaitReason reason : {shm::WaitReason::kGate, shm::WaitReason::kMemory}) {
    waits.reason.store(static_cast<uint32_t>(reason));
    waits.waiting_threads.store(1);
    channel->gate.slot_end = 1;
    channel->slots[0].open = 1;
    show_idle_if_so(*channel, begin_ns);
    CHECK(until.load() > begin_ns + 300'000);  // its own work is still there
    channel->slots[0].open = 0;
    show_idle_if_so(*channel, begin_ns);
    CHECK_EQ(until.load(), begin_ns + 300'000);
    waits.waiting_threads.store(0);
    show_idle_if_so(*channel, begin_ns);
    CHECK(until.load() > begin_ns + 500'000'000);  // the request continues
  }
  channel->state->memory.wait_ticket.store(1);  // it waits in line for more memory
  show_idle_if_so(*channel, begin_ns);
  CHECK_EQ(until.load(), begin_ns + 300'000);
  channel->state->memory.wait_ticket.store(0);
  waits.reason.store(static_cast<uint32_t>(shm::WaitReason::kWindow));
  waits.waiting_threads.store(1);
  show_idle_if_so(*channel, begin_ns);
  CHECK(until.load() > begin_ns + 500'000'000);
  waits.waiting_threads.store(0);
  count_request(channel, -1);
}

TEST(a_latency_job_lingers_as_its_own_gaps_call_for) {
  Channel* channel = make_channel();
  auto& until = channel->presence->busy_until_ns;
  command_of(channel).gate.job_class = static_cast<uint32_t>(shm::JobClass::kLatency);
  command_of(channel).gate.linger_ns = 300'000;
  command_of(channel).gate.linger_limit_ns = 2'000'000;
  uint64_t now = 1'000'000'000;
  for (int request = 0; request < 100; ++request) {
    show_busy(*channel, now);
    now += 8'000'000;
    show_idle_if_so(*channel, now);
    now += 700'000;
  }
  CHECK_EQ(until.load(), now - 700'000 + 300'000);  // until the helper has tuned it
  tune_linger(*channel);
  show_busy(*channel, now);
  show_idle_if_so(*channel, now);
  CHECK(until.load() >= now + 700'000);
  CHECK(until.load() <= now + 2'000'000);
  command_of(channel).gate.linger_limit_ns = 0;
  tune_linger(*channel);
  show_busy(*channel, now);
  show_idle_if_so(*channel, now);
  CHECK_EQ(until.load(), now + 300'000);
}

TEST(a_request_keeps_a_latency_job_busy_without_work) {
  Channel* channel = make_channel();
  command_of(channel).gate.job_class = static_cast<uint32_t>(shm::JobClass::kLatency);
  count_request(channel, 1);
  const uint64_t now = g_clock.now_ns();
  show_idle_if_so(*channel, now);
  CHECK(channel->presence->busy_until_ns > now + 400'000'000);
  count_request(channel, -1);
  CHECK(channel->presence->busy_until_ns <= g_clock.now_ns());
  count_request(channel, -1);  // one end too many has no effect
  show_idle_if_so(*channel, g_clock.now_ns());
  CHECK(channel->presence->busy_until_ns <= g_clock.now_ns());
}

// All attempts to read both clocks but one are interrupted, after the first or the second read.
TEST(clocks_are_read_at_one_moment_however_often_a_thread_is_set_aside) {
  constexpr uint64_t kAway = 1'000'000;
  for (const int whole : {0, 2, 4}) {
    for (const bool early : {false, true}) {
      uint64_t time = 1000;
      int tries = 0;
      const auto advance = [&](bool broken) { time += broken && tries != whole ? kAway : 10; };
      bool first = true;
      const auto ticks = [&] {
        const uint64_t now = time;
        if (first) {
          advance(early);
        } else {
          ++tries;
        }
        first = !first;
        return now;
      };
      const auto ns = [&] {
        const uint64_t now = time;
        advance(!early);
        return now;
      };
      const ClockPair pair = read_at_once(ticks, ns);
      CHECK_EQ(pair.ticks, pair.ns);
    }
  }
}

TEST(the_clock_agrees_with_the_systems) {
  Clock clock;
  clock.start_real();
  usleep(20'000);
  clock.refine();
  const uint64_t before = monotonic_ns();
  const uint64_t ours = clock.now_ns();
  const uint64_t after = monotonic_ns();
  constexpr uint64_t kRateErrorNs = 100'000;  // of 20 ms: 0.5 %
  CHECK(ours + kRateErrorNs >= before && ours <= after + kRateErrorNs);
}
