// Submits a plan as operations.
#pragma once

#include <memory>
#include <vector>

#include "graph_exec.h"

namespace softgpu {

// Where a graph, or the body of a conditional node, runs.
struct LaunchSite {
  Stream* stream;    // null for a body, which uses only streams of the exec
  Context* context;  // as in GraphNode
  int priority;
};

// Submits one plan of an exec. The first lane that fits uses the stream that the graph is launched
// into; the others use streams of the exec. They begin behind a marker in that stream, and the
// stream continues behind their ends. A lane is in the context of its nodes, so the stream
// determines the SMs only for nodes that have no context.
class Launch {
 public:
  Launch(Runtime& rt, const std::shared_ptr<GraphExec>& exec, const Plan& plan,
         const LaunchSite& site);

  void run();
  // For a body: `last` comes behind all of it. Everything that the body depends on has ended.
  void run_body(const Work& last);

 private:
  void choose_streams();
  Stream* own_stream(uint32_t lane, Context* context, int priority);
  void begin();
  void submit_steps();
  uint64_t submit_conditional(const GraphNode& node, Stream* lane);
  uint64_t submit_to(Stream* lane, const Work& work);
  void end();

  Runtime& rt_;
  const std::shared_ptr<GraphExec> exec_;
  const Plan& plan_;
  const LaunchSite site_;
  const Work nothing_;
  std::vector<Stream*> lanes_;
  std::vector<uint64_t> ops_, deps_, first_deps_;
  uint64_t entry_ = 0;
  bool entered_ = false;
};

}  // namespace softgpu
