// What records on one number of SMs say about another, checked against sums made by hand, and with
// records that claim anything.
#include "dag/analysis/scaling.h"

#include <random>

#include "check.h"
#include "dag/analysis/held.h"
#include "dag/builder.h"

using namespace tandem::dag;
using namespace tandem::dag::analysis;

namespace {

constexpr uint32_t kSms = 100;

// A job with one thread; times are in ns.
class Job {
 public:
  explicit Job(size_t streams = 2) : streams_(streams) {
    const uint32_t context = builder_.order().add_context();
    thread_ = builder_.order().add_thread(context);
    for (uint32_t& stream : streams_)
      stream = builder_.order().add_stream(context, StreamKind::kNonBlocking);
  }

  void launch(uint32_t blocks, uint64_t duration_ns, uint32_t stream = 0,
              uint16_t block_threads = 1024) {
    Operation op = at_now(Kind::kLaunch);
    op.stream = streams_[stream];
    op.blocks = blocks;
    op.block_threads = block_threads;
    op.duration_ns = duration_ns;
    builder_.add(op);
  }

  void copy(uint64_t duration_ns, uint8_t flags = 0) {
    Operation op = at_now(Kind::kCopy);
    op.flags = flags;
    op.stream = streams_[0];
    op.duration_ns = duration_ns;
    builder_.add(op);
  }

  void wait(uint64_t duration_ns) {
    Operation op = at_now(Kind::kSyncContext);
    op.duration_ns = duration_ns;
    builder_.add(op);
    now_ns_ += duration_ns;
  }

  void think(uint64_t ns) { now_ns_ += ns; }

  Scaling scaling(const std::vector<uint32_t>& sm_counts, double gamma = 0,
                  std::vector<Times> held = {}, uint64_t pause_ns = 0) const {
    const Graph& graph = builder_.graph();
    return analysis::scaling({graph, graph.begin(), graph.end()},
                             {1000, now_ns_, kSms, std::move(held), pause_ns}, sm_counts, gamma);
  }

 private:
  Operation at_now(Kind kind) const {
    Operation op;
    op.kind = kind;
    op.thread = thread_;
    op.submitted_ns = now_ns_;
    return op;
  }

  Builder builder_;
  uint32_t thread_;
  std::vector<uint32_t> streams_;
  uint64_t now_ns_ = 1000;
};

using Lengths = std::vector<uint64_t>;

bool are(const Lengths& found, const Lengths& expected) {
  if (found.size() != expected.size()) return false;
  for (size_t i = 0; i < found.size(); ++i) {
    const double off = static_cast<double>(found[i]) / static_cast<double>(expected[i]) - 1;
    if (off > 0.003 || off < -0.003) return false;
  }
  return true;
}

}  // namespace

TEST(a_large_grid_takes_as_long_as_its_busiest_sm) {
  Job job;
  job.launch(1000, 50000);
  job.wait(50000);

  CHECK(are(job.scaling({100, 50, 40, 10, 1}).length_ns, {50000, 100000, 125000, 500000, 5000000}));
}

TEST(a_grid_that_fewer_sms_hold_does_not_mind) {
  Job job;
  job.launch(60, 10000);  // two blocks fit on an SM: 30 SMs hold it
  job.wait(10000);

  CHECK(are(job.scaling({100, 30, 15, 200}).length_ns, {10000, 10000, 20000, 10000}));
}

TEST(what_the_host_and_copies_take_stays) {
  Job job;
  job.think(7000);
  job.copy(3000);
  job.launch(1000, 50000);
  job.wait(53000);

  CHECK(are(job.scaling({100, 50}).length_ns, {60000, 110000}));
}

TEST(a_host_that_runs_ahead_counts_only_where_it_is_slower) {
  Job job;  // never waits
  job.launch(1000, 20000);
  job.think(30000);

  CHECK(are(job.scaling({100, 50, 10}).length_ns, {30000, 40000, 200000}));
}

TEST(kernels_of_two_streams_share_the_sms) {
  Job job;
  job.launch(100, 10000, 0);  // 50 SMs each
  job.launch(100, 10000, 1);
  job.wait(10000);

  CHECK(are(job.scaling({100, 50, 25}).length_ns, {10000, 20000, 40000}));
  CHECK_EQ(job.scaling({100}).demand_ns, 10000.0);  // each has half of the SMs for 10 us
}

TEST(what_a_kernel_waited_for_sms_is_not_its_own) {
  Job job;
  job.launch(1000, 10000, 0);
  job.launch(1000, 20000, 1);  // it waited for half of that
  job.wait(20000);

  CHECK(are(job.scaling({100, 50}).length_ns, {20000, 40000}));
}

TEST(kernels_bound_by_memory_mind_less) {
  Job job;
  job.launch(1000, 50000);
  job.wait(50000);

  CHECK(are(job.scaling({100, 25}, 1).length_ns, {50000, 50000}));
  CHECK(are(job.scaling({100, 25}, 0.5).length_ns, {50000, 100000}));
}

TEST(averages_are_scaled_to_the_record_and_the_doubt_is_told) {
  Job job;
  job.launch(1000, 50000);
  job.wait(60000);

  const Scaling found = job.scaling({100, 50});
  CHECK_EQ(found.recorded_ns, 60000u);
  CHECK_EQ(found.reconstructed_ns, 50000u);
  CHECK(are(found.length_ns, {60000, 120000}));
}

TEST(time_in_which_it_was_held_does_not_count) {
  Job job;
  job.think(5000);
  job.launch(1000, 50000);
  job.wait(50000);

  const Scaling found = job.scaling({100, 50}, 0, {{2000, 5000}});
  CHECK_EQ(found.recorded_ns, 52000u);
  CHECK(are(found.length_ns, {52000, 102000}));
}

// As its full window holds it: this is how a job that takes turns waits for its own work.
TEST(time_in_which_it_was_held_while_its_own_work_ran_counts) {
  Job job;
  job.launch(1000, 50000);
  job.think(45000);
  job.launch(1000, 50000);
  job.wait(55000);

  const Scaling found = job.scaling({100, 50}, 0, {{1000, 46000}});
  CHECK_EQ(found.recorded_ns, 100000u);
  CHECK_EQ(found.reconstructed_ns, 100000u);
  CHECK(are(found.length_ns, {100000, 200000}));
}

// Another job's turn begins when this job's own work has ended.
TEST(of_time_in_which_it_was_held_only_what_is_behind_its_own_work_does_not_count) {
  Job job;
  job.launch(1000, 50000);
  job.think(80000);
  job.launch(1000, 50000);
  job.wait(50000);

  const Scaling found = job.scaling({100, 50}, 0, {{1000, 11000}, {21000, 81000}});
  CHECK_EQ(found.recorded_ns, 100000u);
  CHECK(are(found.length_ns, {100000, 200000}));
}

// Requests arrive at random, so how long the job was idle says nothing about it.
TEST(pauses_do_not_count_where_the_caller_says_how_long_they_are) {
  Job job;
  job.think(70000);
  job.launch(1000, 50000);
  job.wait(50000);
  job.think(4000);  // its own work
  job.launch(1000, 50000);
  job.wait(50000);
  job.think(5000);

  const Scaling whole = job.scaling({100, 50});
  CHECK_EQ(whole.recorded_ns, 179000u);
  CHECK(are(whole.length_ns, {179000, 279000}));
  const Scaling found = job.scaling({100, 50}, 0, {}, 5000);
  CHECK_EQ(found.recorded_ns, 104000u);
  CHECK_EQ(found.reconstructed_ns, 104000u);
  CHECK(are(found.length_ns, {104000, 204000}));
}

TEST(what_its_own_work_takes_is_no_pause) {
  Job job;
  job.launch(1000, 50000);
  job.think(80000);  // for 30 us after the kernel
  job.launch(1000, 50000);
  job.wait(50000);

  CHECK_EQ(job.scaling({100}, 0, {}, 30001).recorded_ns, 130000u);
  CHECK_EQ(job.scaling({100}, 0, {}, 30000).recorded_ns, 100000u);
}

// The copy is recorded when it has ended.
TEST(a_copy_that_the_host_waits_for_is_no_pause) {
  Job job;
  job.launch(1000, 50000);
  job.wait(50000);
  job.think(40000);
  job.copy(40000, kHostWaits);

  CHECK_EQ(job.scaling({100}, 0, {}, 10000).recorded_ns, 90000u);
}

TEST(a_pause_in_which_it_was_held_is_left_out_once) {
  Job job;
  job.think(70000);
  job.launch(1000, 50000);
  job.wait(50000);

  CHECK_EQ(job.scaling({100}, 0, {{40000, 71000}}, 10000).recorded_ns, 50000u);
}

TEST(what_lies_in_none_of_other_spans_is_cut_out_of_each) {
  const std::vector<Times> left =
      without({{0, 10}, {20, 30}, {40, 50}}, {{2, 4}, {6, 22}, {28, 60}});
  std::vector<uint64_t> ends;
  for (const auto& [start_ns, end_ns] : left) ends.insert(ends.end(), {start_ns, end_ns});
  CHECK(ends == (std::vector<uint64_t>{0, 2, 4, 6, 22, 28}));
}

TEST(a_kernel_without_a_grid_wants_all_sms) {
  Job job;
  job.launch(0, 50000);
  job.launch(1000, 10000);
  job.wait(60000);

  const Scaling found = job.scaling({100, 50});
  CHECK_EQ(found.kernel_ns, 60000u);
  CHECK_EQ(found.gridless_ns, 50000u);
  CHECK_EQ(found.demand_ns, 60000.0);
  CHECK(are(found.length_ns, {60000, 120000}));
}

TEST(so_many_kernels_at_once_tell_nothing) {
  for (const uint32_t streams : {32u, 33u}) {
    Job job(streams);
    for (uint32_t stream = 0; stream < streams; ++stream) job.launch(100, 10000, stream);
    job.wait(10000);

    const Scaling found = job.scaling({100});
    CHECK_EQ(found.is_crowded, streams > 32);
    CHECK_EQ(found.length_ns.size(), 1u);
    CHECK_EQ(found.kernel_ns, streams * 10000u);
  }
}

TEST(kernels_that_only_pile_up_on_few_sms_tell_nothing_of_these) {
  Job job(100);
  for (uint32_t stream = 0; stream < 100; ++stream) {
    job.launch(1000, 1000, stream);
    job.think(1000);
  }

  CHECK(!job.scaling({100, 95}).is_crowded);
  CHECK(job.scaling({100, 1}).is_crowded);
}

TEST(nothing_takes_no_time) {
  Job job;

  CHECK_EQ(job.scaling({1, 100}).length_ns[0], 0u);
}

TEST(records_may_claim_anything) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    Builder builder;
    const uint32_t context = builder.order().add_context();
    const uint32_t thread = builder.order().add_thread(context);
    const uint32_t stream = builder.order().add_stream(context, StreamKind::kBlocking);
    const auto number = [&] { return random() % 3 ? random() % 1000 : UINT64_MAX - random() % 3; };
    for (uint64_t i = random() % 50; i > 0; --i) {
      Operation op;
      op.kind = static_cast<Kind>(random() % kKindCount);
      op.flags = static_cast<uint8_t>(random() % 32);
      op.block_threads = static_cast<uint16_t>(number());
      op.thread = thread;
      op.stream = stream;
      op.blocks = static_cast<uint32_t>(number());
      op.submitted_ns = number();
      op.duration_ns = number();
      builder.add(op);
    }
    const Graph& graph = builder.graph();
    const Scaling found =
        scaling({graph, graph.begin(), graph.end()},
                {number(), number(), 1 + static_cast<uint32_t>(number() % 999), {}},
                {1, 7, UINT32_MAX}, static_cast<double>(seed % 11) / 10);
    CHECK_EQ(found.length_ns.size(), 3u);
  }
}
