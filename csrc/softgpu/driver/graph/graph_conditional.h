// Conditional nodes: bodies that run, are skipped or run again, by a value that kernels set.
//
// Which body runs is known only when everything before the node has ended. So a launch turns the
// node into two operations: a decision, whose body in this process submits the operations of the
// chosen body, and a gate, a wait that is satisfied when no body is left to run.
#pragma once

#include <memory>
#include <utility>

#include "api.h"
#include "graph.h"

namespace softgpu {

struct GraphExec;
struct LaunchSite;

CUresult set_conditional(Call& call, GraphNode* node, CUDA_CONDITIONAL_NODE_PARAMS* params);

// The decision and the gate for one launch of the node.
std::pair<Work, Work> conditional_work(const std::shared_ptr<GraphExec>& exec,
                                       const GraphNode& node, const LaunchSite& inside);
// Makes `entry` set all conditions to their default values; returns false if none has one.
bool reset_conditions(const std::shared_ptr<GraphExec>& exec, Work* entry);

}  // namespace softgpu
