#include "graph_launch.h"

#include <utility>

#include "api.h"
#include "capture.h"
#include "graph_conditional.h"
#include "graph_memory.h"
#include "green_context.h"

namespace softgpu {
namespace {

// Objects that nodes refer to may be gone since the graph was instantiated.
CUresult check_nodes(const Runtime& rt, const Plan& plan) {
  for (const Step& step : plan.steps) {
    const GraphNode& node = *step.node;
    if (node.context && !node.context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (node.event && !rt.events.count(node.event)) return CUDA_ERROR_INVALID_HANDLE;
    if (node.type == CU_GRAPH_NODE_TYPE_KERNEL && !rt.functions.count(node.work.front().function)) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult check_nodes(const Runtime& rt, const GraphExec& exec) {
  if (const CUresult bad = check_nodes(rt, exec.plan)) return bad;
  for (const auto& [node, plans] : exec.bodies) {
    for (const Plan& plan : plans) {
      if (const CUresult bad = check_nodes(rt, plan)) return bad;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

Launch::Launch(Runtime& rt, const std::shared_ptr<GraphExec>& exec, const Plan& plan,
               const LaunchSite& site)
    : rt_(rt), exec_(exec), plan_(plan), site_(site) {}

void Launch::run() {
  choose_streams();
  begin();
  submit_steps();
  end();
  rt_.kick();
}

void Launch::run_body(const Work& last) {
  choose_streams();
  submit_steps();
  deps_.clear();
  for (const uint32_t step : plan_.ends) deps_.push_back(ops_[step]);
  rt_.submit_unbarred(own_stream(kMaxLanes, site_.context, site_.priority), last, deps_);
  rt_.kick();
}

void Launch::choose_streams() {
  bool taken = site_.stream == nullptr;
  for (uint32_t i = 0; i < plan_.lanes.size(); ++i) {
    const Lane& lane = plan_.lanes[i];
    Context* context = lane.context ? lane.context : site_.context;
    const int priority = lane.own_priority ? clamp_priority(lane.priority) : site_.priority;
    const bool fits = !taken && context == site_.context && priority == site_.priority;
    lanes_.push_back(fits ? site_.stream : own_stream(i, context, priority));
    taken = taken || fits;
  }
}

Stream* Launch::own_stream(uint32_t lane, Context* context, int priority) {
  for (const GraphExec::LaneStream& own : exec_->streams) {
    if (own.plan == &plan_ && own.lane == lane && own.stream_number != 0 &&
        rt_.streams.count(own.stream) && own.stream->number == own.stream_number &&
        context_of(*own.stream) == context && own.stream->priority == priority) {
      return own.stream;
    }
  }
  Stream* made = make_stream(rt_, home_of(context), CU_STREAM_NON_BLOCKING, priority);
  if (context->green) confine(rt_, made, context->green);
  exec_->streams.push_back({&plan_, lane, made, made->number});
  return made;
}

// The first operation in the stream waits for the exec's last launch and for what the stream is
// ordered after; the other lanes wait for that operation.
void Launch::begin() {
  if (rt_.live(exec_->last_op)) first_deps_.push_back(exec_->last_op);
  Work entry;
  bool needed = reset_conditions(exec_, &entry);
  for (const Step& step : plan_.steps) {
    needed =
        needed || (step.after.empty() && step.first_in_lane && lanes_[step.lane] != site_.stream);
  }
  if (!needed) return;
  entry_ = rt_.submit(site_.stream, entry, std::exchange(first_deps_, {}));
  entered_ = true;
}

void Launch::submit_steps() {
  ops_.reserve(plan_.steps.size());
  for (const Step& step : plan_.steps) {
    Stream* lane = lanes_[step.lane];
    const GraphNode& node = *step.node;
    deps_.clear();
    for (const uint32_t before : step.after) deps_.push_back(ops_[before]);
    if (entry_ != 0 && lane != site_.stream && step.first_in_lane && step.after.empty()) {
      deps_.push_back(entry_);
    }
    if (node.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT && rt_.live(node.event->op)) {
      deps_.push_back(node.event->op);
    }
    if (node.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      ops_.push_back(submit_conditional(node, lane));
      continue;
    }
    const bool acts = step.work < node.work.size() && !exec_->disabled.count(&node);
    ops_.push_back(submit_to(lane, acts ? node.work[step.work] : nothing_));
  }
}

// Submits two operations: the first decides and submits the body, the second holds back what
// follows.
uint64_t Launch::submit_conditional(const GraphNode& node, Stream* lane) {
  const LaunchSite inside{nullptr, context_of(*lane), lane->priority};
  const auto [decision, gate] = conditional_work(exec_, node, inside);
  submit_to(lane, decision);
  return rt_.submit_unbarred(lane, gate, {});
}

uint64_t Launch::submit_to(Stream* lane, const Work& work) {
  if (lane != site_.stream || entered_) return rt_.submit_unbarred(lane, work, deps_);
  entered_ = true;
  deps_.insert(deps_.end(), first_deps_.begin(), first_deps_.end());
  return rt_.submit(site_.stream, work, deps_);
}

void Launch::end() {
  deps_.clear();
  for (const uint32_t step : plan_.ends) {
    if (lanes_[plan_.steps[step].lane] != site_.stream) deps_.push_back(ops_[step]);
  }
  Work last;
  last.owner = exec_;
  exec_->last_op = submit_to(site_.stream, last);
}

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
  if (const CUresult bad = check_nodes(rt, *exec)) return bad;
  if (const CUresult bad = check_allocations(*exec)) return bad;
  if (const CUresult bad = back_with_memory(on.call, *exec)) return bad;
  if (!rt.streams.count(on.stream)) return CUDA_ERROR_INVALID_HANDLE;  // gone meanwhile
  const LaunchSite site{on.stream, context_of(*on.stream), on.stream->priority};
  Launch(rt, exec, exec->plan, site).run();
  note_launch(*exec);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuGraphUpload(CUgraphExec handle, CUstream stream) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  const auto found = on.call.rt.graph_execs.find(handle);
  if (found == on.call.rt.graph_execs.end()) return CUDA_ERROR_INVALID_VALUE;
  if (on.stream->capture) return on.refuse_in_capture(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  const std::shared_ptr<GraphExec> exec = found->second;
  return back_with_memory(on.call, *exec);
}
