// Launches and uploads of executable graphs.
//
// Each step becomes an operation of its own. The first lane that fits is the stream that the graph
// is launched into, the others are streams of the exec; they begin behind a marker in that stream
// and it goes on behind their ends.
#include <utility>

#include "api.h"
#include "capture.h"
#include "graph_exec.h"
#include "graph_memory.h"

namespace softgpu {
namespace {

class Launch {
 public:
  Launch(Runtime& rt, const std::shared_ptr<GraphExec>& exec, Stream* stream)
      : rt_(rt), exec_(exec), stream_(stream) {}

  CUresult run() {
    if (const CUresult bad = check_nodes()) return bad;
    choose_streams();
    begin();
    for (uint32_t step = 0; step < exec_->plan.steps.size(); ++step) submit(step);
    end();
    return CUDA_SUCCESS;
  }

 private:
  // What nodes refer to may have gone since.
  CUresult check_nodes() const {
    for (const Step& step : exec_->plan.steps) {
      const GraphNode& node = *step.node;
      if (node.context && !node.context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
      if (node.event && !rt_.events.count(node.event)) return CUDA_ERROR_INVALID_HANDLE;
      if (node.type == CU_GRAPH_NODE_TYPE_KERNEL &&
          !rt_.functions.count(node.work.front().function)) {
        return CUDA_ERROR_INVALID_HANDLE;
      }
    }
    return CUDA_SUCCESS;
  }

  void choose_streams() {
    bool taken = false;
    for (uint32_t i = 0; i < exec_->plan.lanes.size(); ++i) {
      const Lane& lane = exec_->plan.lanes[i];
      Context* context = lane.context ? lane.context : stream_->context;
      const int priority = lane.own_priority ? lane.priority : stream_->priority;
      const bool fits = context == stream_->context && priority == stream_->priority;
      lanes_.push_back(fits && !taken ? stream_ : own_stream(i, context, priority));
      taken = taken || fits;
    }
  }

  Stream* own_stream(uint32_t lane, Context* context, int priority) {
    for (const GraphExec::LaneStream& own : exec_->streams) {
      if (own.lane == lane && own.context == context && own.priority == priority &&
          rt_.streams.count(own.stream) && own.stream->number == own.number) {
        return own.stream;
      }
    }
    Stream* made = make_stream(rt_, context, CU_STREAM_NON_BLOCKING, priority);
    exec_->streams.push_back({lane, context, priority, made, made->number});
    return made;
  }

  // The first operation in the stream waits for the exec's last launch and for what the stream is
  // ordered after; the other lanes wait for that operation.
  void begin() {
    if (rt_.live(exec_->last_op)) first_deps_.push_back(exec_->last_op);
    for (const Step& step : exec_->plan.steps) {
      if (step.after.empty() && step.first_in_lane && lanes_[step.lane] != stream_) {
        entry_ = rt_.submit(stream_, Work(), std::exchange(first_deps_, {}));
        entered_ = true;
        return;
      }
    }
  }

  void submit(uint32_t number) {
    const Step& step = exec_->plan.steps[number];
    Stream* lane = lanes_[step.lane];
    deps_.clear();
    for (const uint32_t before : step.after) deps_.push_back(ops_[before]);
    if (lane != stream_ && step.first_in_lane && step.after.empty()) deps_.push_back(entry_);
    const GraphNode& node = *step.node;
    if (node.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT && rt_.live(node.event->op)) {
      deps_.push_back(node.event->op);
    }
    const bool acts = step.work < node.work.size() && !exec_->disabled.count(&node);
    ops_.push_back(submit_to(lane, acts ? node.work[step.work] : nothing_));
  }

  uint64_t submit_to(Stream* lane, const Work& work) {
    if (lane != stream_ || entered_) return rt_.submit_unbarred(lane, work, deps_);
    entered_ = true;
    deps_.insert(deps_.end(), first_deps_.begin(), first_deps_.end());
    return rt_.submit(stream_, work, deps_);
  }

  void end() {
    deps_.clear();
    for (const uint32_t step : exec_->plan.ends) {
      if (lanes_[exec_->plan.steps[step].lane] != stream_) deps_.push_back(ops_[step]);
    }
    Work last;
    last.owner = exec_;
    exec_->last_op = submit_to(stream_, last);
    rt_.kick();
  }

  Runtime& rt_;
  const std::shared_ptr<GraphExec> exec_;
  Stream* const stream_;
  const Work nothing_;
  std::vector<Stream*> lanes_;
  std::vector<uint64_t> ops_, deps_, first_deps_;
  uint64_t entry_ = 0;
  bool entered_ = false;
};

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuGraphLaunch(CUgraphExec handle, CUstream stream) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  Runtime& rt = on.call.rt;
  const auto found = rt.graph_execs.find(handle);
  if (found == rt.graph_execs.end()) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<GraphExec> exec = found->second;
  if (on.stream->capture) return capture_launch(on, *exec->graph);
  if (const CUresult bad = check_allocations(*exec)) return bad;
  if (const CUresult bad = back_with_memory(on.call, *exec)) return bad;
  if (!rt.streams.count(on.stream)) return CUDA_ERROR_INVALID_HANDLE;  // gone meanwhile
  const CUresult result = Launch(rt, exec, on.stream).run();
  if (!result) note_launch(*exec);
  return result;
}

SOFTGPU_API cuGraphUpload(CUgraphExec handle, CUstream stream) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  Runtime& rt = on.call.rt;
  const auto found = rt.graph_execs.find(handle);
  if (found == rt.graph_execs.end()) return CUDA_ERROR_INVALID_VALUE;
  if (on.stream->capture) return on.refuse_in_capture(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  const std::shared_ptr<GraphExec> exec = found->second;
  return back_with_memory(on.call, *exec);
}
