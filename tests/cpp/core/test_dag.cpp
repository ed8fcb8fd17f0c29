#include <random>
#include <vector>

#include "../../fuzz/dag_bodies.h"
#include "check.h"
#include "dag/builder.h"

using namespace tandem::dag;

namespace {

constexpr NodeId kBelowTheLimitOf32Bits = (NodeId{1} << 32) - 1000;

// A thread that launches on three streams, which now and then wait for each other.
class Job {
 public:
  explicit Job(uint64_t most_nodes = Graph::kMostNodes, NodeId first = 0)
      : builder(most_nodes, first) {
    const uint32_t context = builder.order().add_context();
    thread = builder.order().add_thread(context);
    for (uint32_t& stream : streams)
      stream = builder.order().add_stream(context, StreamKind::kBlocking);
  }

  NodeId add(Kind kind, uint32_t stream, uint64_t object, const Access& access) {
    Operation op;
    op.kind = kind;
    op.thread = thread;
    op.stream = stream;
    op.object = object;
    return builder.add(op, &access, 1);
  }

  NodeId launch(uint64_t turn) {
    const uint32_t stream = streams[turn % 3];
    if (turn % 7 == 0) add(Kind::kEventRecord, stream, turn % 5, {});
    if (turn % 11 == 0) add(Kind::kEventWait, stream, turn % 5, {});
    if (turn % 100 == 0) add(Kind::kSyncContext, kNone, 0, {});
    return add(Kind::kLaunch, stream, 0, {turn * 37 % 64, 8, turn % 2 == 0});
  }

  Builder builder;
  uint32_t thread;
  uint32_t streams[3];
};

std::vector<uint64_t> edges_back(const Graph& graph, NodeId id) {
  std::vector<uint64_t> out;
  graph.each_edge(id, [&](NodeId from, EdgeKind) { out.push_back(id - from); });
  graph.each_data_edge(id, [&](NodeId from, EdgeKind) { out.push_back(id - from); });
  return out;
}

}  // namespace

TEST(numbers_of_more_than_32_bits_change_nothing) {
  Job job, later(Graph::kMostNodes, kBelowTheLimitOf32Bits);
  for (uint64_t turn = 0; turn < 3000; ++turn) {
    job.launch(turn);
    later.launch(turn);
    if (turn % 100 != 0) continue;
    const Graph& graph = job.builder.graph();
    const Graph& other = later.builder.graph();
    CHECK_EQ(graph.size(), other.size());
    for (NodeId id = graph.begin(); id < graph.end(); ++id) {
      CHECK(edges_back(graph, id) == edges_back(other, id + kBelowTheLimitOf32Bits));
      CHECK_EQ(graph.before(graph.begin(), id),
               other.before(other.begin(), id + kBelowTheLimitOf32Bits));
    }
    job.builder.retire(graph.end() - graph.size() / 2);
    later.builder.retire(other.end() - other.size() / 2);
  }
  CHECK(later.builder.graph().begin() > UINT32_MAX);
}

TEST(a_full_window_takes_nothing_and_remembers_that_it_did_not) {
  Job job(10);
  NodeId last = 0;
  for (uint64_t turn = 1; last != kNoNode; ++turn) last = job.launch(turn);
  CHECK_EQ(job.builder.graph().size(), 10u);

  job.builder.retire(8);
  const NodeId after = job.add(Kind::kLaunch, job.streams[0], 0, {1000, 8, false});
  const NodeId wait = job.add(Kind::kEventWait, job.streams[1], 2, {});
  CHECK_EQ(after, 10u);
  CHECK(job.builder.graph().node(wait).op.flags & kUnknownOrder);
  CHECK(!job.builder.graph().independent(9, after));
}

TEST(what_names_no_stream_or_thread_counts_as_missing) {
  Job job;
  const Access none{};
  const NodeId first = job.add(Kind::kLaunch, job.streams[0], 0, none);
  CHECK_EQ(job.add(Kind::kLaunch, kNone, 0, none), kNoNode);
  CHECK_EQ(job.add(Kind::kLaunch, job.thread, 0, none), kNoNode);
  job.builder.order().end(job.streams[2]);
  CHECK_EQ(job.add(Kind::kLaunch, job.streams[2], 0, none), kNoNode);
  const NodeId second = job.add(Kind::kLaunch, job.streams[1], 0, none);

  CHECK_EQ(second, first + 1);
  CHECK(!job.builder.graph().independent(first, second));
  CHECK_EQ(job.builder.order().add_stream(99, StreamKind::kBlocking), kNone);
  CHECK_EQ(job.builder.order().add_thread(kNone), kNone);
}

TEST(an_iteration_of_a_million_nodes_is_taken_and_its_memory_given_back) {
  Job job;
  for (uint64_t turn = 0; turn < 900'000; ++turn) job.launch(turn);
  const Graph& graph = job.builder.graph();
  CHECK(graph.size() > 1'000'000);
  CHECK(job.builder.bytes() < 200 * graph.size());
  CHECK(graph.before(graph.begin(), graph.end() - 1));

  job.builder.retire(graph.end());
  CHECK(job.builder.bytes() < 1 << 20);
}

TEST(any_operations_leave_the_graph_whole) {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::vector<uint8_t> bytes(8 * (random() % 400));
    // Small numbers name streams and threads that exist.
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() % (random() % 2 ? 12 : 256));
    fuzz::Dag dag(i % 2 ? kBelowTheLimitOf32Bits + 900 : 0);
    dag.run(bytes.data(), bytes.size());
  }
}
