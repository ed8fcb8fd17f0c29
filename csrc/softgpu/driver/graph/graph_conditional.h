// Conditional nodes: bodies that run, or not, or again, by a value that kernels set.
//
// Which body runs is known only when everything before the node has ended. So the node is launched
// as two operations: a decision, whose body in this process submits the operations of the chosen
// body, and a gate, a wait that is satisfied when no body is left to run.
#pragma once

#include <memory>
#include <utility>

#include "api.h"
#include "graph.h"

namespace softgpu {

struct GraphExec;
struct LaunchSite;

CUresult set_conditional(Call& call, GraphNode* node, CUDA_CONDITIONAL_NODE_PARAMS* params);

// The decision and the gate of one launch of the node.
std::pair<Work, Work> conditional_work(const std::shared_ptr<GraphExec>& exec,
                                       const GraphNode& node, const LaunchSite& inside);
// Makes `entry` give all conditions their default values; false when none has one.
bool reset_conditions(const std::shared_ptr<GraphExec>& exec, Work* entry);

}  // namespace softgpu
