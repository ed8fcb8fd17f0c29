// cuGraphDebugDotPrint: prints a graph for people and for Graphviz.
#include <cinttypes>
#include <cstdio>
#include <string>

#include "api.h"
#include "graph.h"

namespace softgpu {
namespace {

const char* name_of(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return "KERNEL";
    case CU_GRAPH_NODE_TYPE_MEMCPY: return "MEMCPY";
    case CU_GRAPH_NODE_TYPE_MEMSET: return "MEMSET";
    case CU_GRAPH_NODE_TYPE_HOST: return "HOST";
    case CU_GRAPH_NODE_TYPE_GRAPH: return "CHILD GRAPH";
    case CU_GRAPH_NODE_TYPE_EMPTY: return "EMPTY";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return "EVENT WAIT";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return "EVENT RECORD";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return "MEM ALLOC";
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return "MEM FREE";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return "BATCH MEM OP";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: return "CONDITIONAL";
    default: return "UNKNOWN";
  }
}

std::string format(const char* pattern, uint64_t a, uint64_t b, uint64_t c) {
  char text[160];
  snprintf(text, sizeof text, pattern, a, b, c);
  return text;
}

const char* direction_of(const Work& work) {
  if (work.kind == OpKind::kCopyHtoD) return "HtoD";
  return work.kind == OpKind::kCopyDtoH ? "DtoH" : "DtoD";
}

class Printer {
 public:
  Printer(FILE* file, unsigned flags) : file_(file), flags_(flags) {}

  void print(const Graph& graph) {
    fputs("digraph dot {\n", file_);
    print_cluster(graph);
    fputs("}\n", file_);
  }

 private:
  bool asked(unsigned flag) const {
    return (flags_ & (flag | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE)) != 0;
  }

  void print_cluster(const Graph& graph) {
    fprintf(file_, "subgraph cluster_%u {\nlabel=\"graph_%u\"\nnode [shape=box]\n", graph.id,
            graph.id);
    for (const auto& node : graph.nodes) {
      fprintf(file_, "%s [label=\"%u: %s%s\"]\n", place(*node).c_str(), node->id,
              name_of(node->type), details(*node).c_str());
    }
    for (const auto& node : graph.nodes) {
      for (const GraphEdge& edge : node->dependents) {
        const char* style = is_plain(edge.data) ? "" : " [style=dashed]";
        fprintf(file_, "%s -> %s%s\n", place(*node).c_str(), place(*edge.node).c_str(), style);
      }
    }
    fputs("}\n", file_);
    for (const auto& node : graph.nodes) {
      for (const auto& inner : node->inner) {
        print_cluster(*inner);
        if (inner->nodes.empty()) continue;
        fprintf(file_, "%s -> %s [style=dotted, lhead=cluster_%u]\n", place(*node).c_str(),
                place(*inner->nodes.front()).c_str(), inner->id);
      }
    }
  }

  static std::string place(const GraphNode& node) {
    return "\"graph_" + std::to_string(node.graph->id) + "_node_" + std::to_string(node.id) + "\"";
  }

  std::string details(const GraphNode& node) const {
    std::string text = plain_details(node);
    if (asked(CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES)) {
      text += format("\\nnode 0x%" PRIx64, reinterpret_cast<uintptr_t>(&node), 0, 0);
    }
    return text;
  }

  std::string plain_details(const GraphNode& node) const {
    const Work* work = node.work.empty() ? nullptr : &node.work.front();
    switch (node.type) {
      case CU_GRAPH_NODE_TYPE_KERNEL: return "\\n" + work->function->name + shape(*work);
      case CU_GRAPH_NODE_TYPE_MEMCPY: return copy(*work);
      case CU_GRAPH_NODE_TYPE_MEMSET:
        if (!asked(CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS)) return "";
        return format("\\n0x%" PRIx64 " = %" PRIu64 ", %" PRIu64 " bytes", node.memset.dst,
                      node.memset.value, work->bytes * work->height);
      case CU_GRAPH_NODE_TYPE_HOST:
        if (!asked(CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS)) return "";
        return format("\\nfn 0x%" PRIx64 "(0x%" PRIx64 ")",
                      reinterpret_cast<uintptr_t>(work->host_function),
                      reinterpret_cast<uintptr_t>(work->user), 0);
      case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        if (!asked(CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS)) return "";
        return format("\\nevent 0x%" PRIx64, reinterpret_cast<uintptr_t>(node.event), 0, 0);
      case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        if (!asked(CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS)) return "";
        return format("\\n0x%" PRIx64 ", %" PRIu64 " bytes", node.alloc.dptr, node.alloc.bytesize,
                      0);
      case CU_GRAPH_NODE_TYPE_MEM_FREE:
        if (!asked(CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS)) return "";
        return format("\\n0x%" PRIx64, node.freed, 0, 0);
      case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return format("\\n%" PRIu64 " ops", node.work.size(), 0, 0);
      case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        if (!asked(CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS)) return "";
        return format("\\nhandle %" PRIu64 ", %" PRIu64 " bodies", node.condition,
                      node.inner.size(), 0);
      default: return "";
    }
  }

  std::string shape(const Work& work) const {
    if (!asked(CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS)) return "";
    return format("\\ngrid %" PRIu64 " x %" PRIu64 " x %" PRIu64, work.grid[0], work.grid[1],
                  work.grid[2]) +
           format("\\nblock %" PRIu64 " x %" PRIu64 " x %" PRIu64, work.block[0], work.block[1],
                  work.block[2]) +
           format("\\nshared %" PRIu64 " bytes", work.shared_bytes, 0, 0);
  }

  std::string copy(const Work& work) const {
    std::string text = std::string("\\n") + direction_of(work);
    if (!asked(CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS)) return text;
    return text + format("\\n0x%" PRIx64 " to 0x%" PRIx64 ", %" PRIu64 " bytes",
                         reinterpret_cast<uintptr_t>(work.source),
                         reinterpret_cast<uintptr_t>(work.destination), work.total_bytes());
  }

  FILE* const file_;
  const unsigned flags_;
};

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned int flags) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* graph = checked<Graph>(call.rt.graphs, handle);
  if (!graph || !path) return CUDA_ERROR_INVALID_VALUE;
  FILE* file = fopen(path, "w");
  if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
  Printer(file, flags).print(*graph);
  const bool failed = ferror(file) != 0;
  return fclose(file) != 0 || failed ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
