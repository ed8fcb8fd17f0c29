// Builds graphs of synthetic jobs as fast as it can, and analyses one. Prints JSON: for each case
// the CPU time in nanoseconds and the bytes per node, and the nanoseconds of the whole analysis per
// node.
#include <time.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <vector>

#include "dag/analysis/analysis.h"
#include "dag/builder.h"

using namespace tandem::dag;

namespace {

constexpr int kRounds = 2;
constexpr uint64_t kNodes = 1'000'000;
constexpr uint32_t kStreams = 16;
constexpr uint64_t kRetireEach = 10'000;  // nodes
constexpr uint64_t kAnalysed = 300'000;   // nodes
constexpr uint64_t kSubmitNs = 2'000, kKernelNs = 20'000;
constexpr uint32_t kBlocks = 256;
constexpr analysis::Device kDevice{132, 4'800'000'000'000};
constexpr uint64_t kBuffers = 512;
constexpr uint64_t kBufferBytes = 1 << 20;

// CPU time of this thread, which other programs affect only through the caches.
uint64_t now_ns() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// A thread that launches on 16 streams in turn. Every eighth launch is followed by an event that
// another stream waits for, every thousandth by a wait of the host for the whole context.
class Job {
 public:
  explicit Job(bool has_buffers) : has_buffers_(has_buffers) {
    const uint32_t context = builder_.order().add_context();
    op_.thread = builder_.order().add_thread(context);
    op_.blocks = kBlocks;
    for (uint32_t& stream : streams_)
      stream = builder_.order().add_stream(context, StreamKind::kNonBlocking);
  }

  void launch() {
    const uint64_t turn = launches_++;
    op_.submitted_ns += kSubmitNs;
    const uint32_t stream = streams_[turn % kStreams];
    if (has_buffers_) add_with_buffers(stream, turn);
    else add(Kind::kLaunch, stream, 0);
    if (turn % 8 == 0) {
      add(Kind::kEventRecord, stream, turn % 64);
      add(Kind::kEventWait, streams_[(turn + 5) % kStreams], turn % 64);
    }
    if (turn % 1000 == 0) add(Kind::kSyncContext, kNone, 0);
  }

  Builder& builder() { return builder_; }

 private:
  void add(Kind kind, uint32_t stream, uint64_t object) {
    op_.kind = kind;
    op_.stream = stream;
    op_.object = object;
    op_.duration_ns = kind == Kind::kLaunch ? kKernelNs : 0;
    builder_.add(op_);
  }

  // Reads two buffers and writes half of a third, like layers that share weights.
  void add_with_buffers(uint32_t stream, uint64_t turn) {
    const auto buffer = [](uint64_t number) { return (1 + number % kBuffers) * kBufferBytes; };
    const Access accesses[] = {
        {buffer(turn * 7), kBufferBytes, true},
        {buffer(turn * 13 + 1), kBufferBytes, true},
        {buffer(turn * 29 + 2) + turn % 2 * kBufferBytes / 2, kBufferBytes / 2, false},
    };
    op_.kind = Kind::kLaunch;
    op_.stream = stream;
    op_.duration_ns = kKernelNs;
    builder_.add(op_, accesses, 3);
  }

  bool has_buffers_;
  Builder builder_;
  Operation op_;
  uint32_t streams_[kStreams];
  uint64_t launches_ = 0;
};

struct Figures {
  double ns_a_node = 1e9;
  double bytes_a_node = 0;
  double analysis_ns_a_node = 1e9;
};

void run(bool has_buffers, uint64_t window, Figures* figures) {
  Job job(has_buffers);
  Builder& builder = job.builder();
  double bytes = 0;
  const uint64_t begin = now_ns();
  for (uint64_t retire_at = window + kRetireEach; retire_at < kNodes; retire_at += kRetireEach) {
    while (builder.graph().end() < retire_at) job.launch();
    bytes = std::max(bytes, static_cast<double>(builder.bytes()));
    builder.retire(retire_at - window);
  }
  const double spent = static_cast<double>(now_ns() - begin);
  figures->ns_a_node =
      std::min(figures->ns_a_node, spent / static_cast<double>(builder.graph().end()));
  figures->bytes_a_node = std::max(figures->bytes_a_node, bytes / static_cast<double>(window));
}

void analyse(bool has_buffers, Figures* figures) {
  Job job(has_buffers);
  const Graph& graph = job.builder().graph();
  while (graph.end() < kAnalysed) job.launch();
  analysis::Options options;
  options.device = kDevice;
  const uint64_t begin = now_ns();
  const analysis::Analysis found = analysis::analyse({graph, graph.begin(), graph.end()}, options);
  const double spent = static_cast<double>(now_ns() - begin);
  const double nodes = static_cast<double>(found.last - found.first);
  figures->analysis_ns_a_node = std::min(figures->analysis_ns_a_node, spent / nodes);
}

}  // namespace

int main() {
  const char* separator = "{";
  for (const bool has_buffers : {false, true}) {
    Figures figures;
    for (int round = 0; round < kRounds; ++round) {
      for (const uint64_t window : {100'000, 150'000}) run(has_buffers, window, &figures);
      analyse(has_buffers, &figures);
    }
    std::printf(
        "%s\"%s\": {\"ns_a_node\": %.1f, \"bytes_a_node\": %.1f, \"analysis_ns_a_node\": %.1f}",
        separator, has_buffers ? "buffers" : "order", figures.ns_a_node, figures.bytes_a_node,
        figures.analysis_ns_a_node);
    separator = ", ";
  }
  std::printf("}\n");
}
