// Whatever records claim, an analysis ends, stays within its window, and reports shares that are
// shares.
#include "dag/analysis/analysis.h"

#include <random>

#include "check.h"
#include "dag/builder.h"

using namespace tandem::dag;
using namespace tandem::dag::analysis;

namespace {

// Returns a number that is often 0, small, or as large as possible.
uint64_t number(std::mt19937_64& random) {
  switch (random() % 4) {
    case 0: return 0;
    case 1: return random() % 1000;
    case 2: return UINT64_MAX - random() % 3;
    default: return random();
  }
}

Operation operation(std::mt19937_64& random, uint32_t thread, uint32_t stream) {
  Operation op;
  op.kind = static_cast<Kind>(random() % kKindCount);
  op.flags = static_cast<uint8_t>(random() % 32);
  op.thread = thread;
  op.stream = stream;
  op.blocks = static_cast<uint32_t>(number(random));
  op.object = number(random);
  op.bytes = number(random);
  op.submitted_ns = number(random);
  op.duration_ns = number(random);
  return op;
}

void fill(Builder& builder, std::mt19937_64& random, size_t count) {
  const uint32_t context = builder.order().add_context();
  const uint32_t threads[] = {builder.order().add_thread(context),
                              builder.order().add_thread(context)};
  const uint32_t streams[] = {builder.order().add_stream(context, StreamKind::kBlocking),
                              builder.order().add_stream(context, StreamKind::kLegacy)};
  for (size_t i = 0; i < count; ++i) {
    const Access accesses[] = {{number(random), number(random), random() % 2 == 0},
                               {number(random), number(random), random() % 2 == 0}};
    if (random() % 20 == 0) builder.lose();
    builder.add(operation(random, threads[random() % 2], streams[random() % 2]),
                random() % 2 ? accesses : nullptr, random() % 3);
  }
}

Options options(std::mt19937_64& random, const Window& window, NodeId since) {
  Options out;
  out.since = since;
  for (size_t i = 0; i < window.size() && random() % 2; ++i) out.measured.push_back({0, 0});
  out.measured.resize(out.measured.empty() ? 0 : window.size(), {number(random), number(random)});
  out.device.sm_count = static_cast<uint32_t>(number(random));
  out.device.bandwidth_bytes_per_s = number(random);
  out.held = {{10, 500}, {1000, UINT64_MAX}};
  out.pause_ns = number(random);
  out.least_gap_ns = random() % 100;
  out.iterations = {window.first, window.first + window.size() / 2};
  out.periodic = random() % 2 == 0;
  return out;
}

bool is_share(double value) { return value >= 0 && value <= 1 + 1e-9; }

void check_shares(const Analysis& all) {
  CHECK(is_share(all.overlap.ct) && is_share(all.overlap.tc));
  CHECK(is_share(all.overlap.cc) && is_share(all.overlap.tot));
  CHECK(is_share(all.launch_bound.share) && is_share(all.launch_bound.idle_share));
  for (const double share : all.classes.share) CHECK(is_share(share));
  CHECK(all.width.mean <= all.width.most + 1e-9);
}

void check_nodes(const Window& window, const Analysis& all) {
  CHECK(all.slack_ns.size() == window.size() && all.classes.of.size() == window.size());
  for (const NodeId id : all.critical.nodes) CHECK(window.has(id));
  for (const NodeId id : all.gpu_critical.nodes) CHECK(window.has(id));
  for (const Wait& wait : all.waits) CHECK(window.has(wait.node));
  for (const auto& use : all.next_uses.uses)
    CHECK(use.node < window.size() && (use.next == kNoUse || use.next < all.next_uses.uses.size()));
}

void check_gaps(const Window& window, const Analysis& all) {
  uint64_t until_ns = 0;
  for (const Gap& gap : all.gaps) {
    CHECK(gap.start_ns >= until_ns && gap.start_ns < gap.end_ns);
    CHECK(gap.held_ns <= gap.length() && window.has(gap.next));
    until_ns = gap.end_ns;
  }
  for (const GapPlace& place : all.gap_places) {
    CHECK(place.count <= place.iterations && place.p50_ns <= place.p90_ns);
  }
}

}  // namespace

TEST(an_analysis_of_anything_is_sane) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    Builder builder;
    fill(builder, random, random() % 60);
    const Graph& graph = builder.graph();
    builder.retire(graph.size() / 4);
    const NodeId first = graph.begin() + random() % (graph.size() + 1);
    const Window window{graph, first, first + random() % (graph.end() - first + 1)};
    const Analysis all = analyse(window, options(random, window, graph.begin()));
    check_shares(all);
    check_nodes(window, all);
    check_gaps(window, all);
  }
}
