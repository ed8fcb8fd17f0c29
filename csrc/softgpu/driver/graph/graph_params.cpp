#include "graph_params.h"

#include <cstring>
#include <utility>

#include "green_context.h"
#include "launch_plan.h"
#include "module.h"
#include "work.h"

namespace softgpu {
namespace {

// The context that the parameters name, or the current one.
CUresult find_context(Call& call, CUcontext handle, Context** context) {
  const auto& stack = this_thread().stack;
  const void* wanted = handle;
  if (!wanted && !stack.empty()) wanted = stack.back();
  *context = checked<Context>(call.rt.contexts, wanted);
  return *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

// Finds the kernel and the context it runs in. If `func` is set, `ctx` is ignored (cuda.h): the
// context is the function's, and a node in a green context of that context stays there.
CUresult find_kernel(Call& call, const GraphNode& node, const CUDA_KERNEL_NODE_PARAMS& params,
                     Function** function, Context** context) {
  const void* handle = params.func ? static_cast<const void*>(params.func) : params.kern;
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = find_context(call, params.func ? nullptr : params.ctx, context)) {
    return bad;
  }
  const CUresult bad = resolve_function(call.rt, home_of(*context), handle, function);
  if (bad) return bad;
  Context* own = (*function)->module->context;
  if (!params.func && home_of(*context) == own) return CUDA_SUCCESS;
  *context = node.context && home_of(node.context) == own ? node.context : own;
  return CUDA_SUCCESS;
}

void set_work(GraphNode* node, const Work& work) {
  node->work.assign(1, work);
  node->work.front().own_priority = false;  // the lane's priority counts, see graph_plan.h
}

}  // namespace

CUresult set_kernel(Call& call, GraphNode* node, const CUDA_KERNEL_NODE_PARAMS& params) {
  Context* context = nullptr;
  Function* function = nullptr;
  if (const CUresult bad = find_kernel(call, *node, params, &function, &context)) return bad;
  std::vector<CUlaunchAttribute> attributes;
  for (const auto& [id, value] : node->attributes) {
    CUlaunchAttribute attribute{};
    attribute.id = static_cast<CUlaunchAttributeID>(id);
    attribute.value = value;
    attributes.push_back(attribute);
  }
  const CUlaunchConfig config{params.gridDimX,       params.gridDimY,
                              params.gridDimZ,       params.blockDimX,
                              params.blockDimY,      params.blockDimZ,
                              params.sharedMemBytes, nullptr,
                              attributes.data(),     static_cast<unsigned>(attributes.size())};
  LaunchPlan plan;
  Work work;
  const CUresult bad =
      kernel_work(call.rt, function, config, params.kernelParams, params.extra, &plan, &work);
  if (bad) return bad;
  set_work(node, work);
  node->context = context;
  node->packed_params = params.extra != nullptr;
  return CUDA_SUCCESS;
}

CUresult set_copy(Call& call, GraphNode* node, const CUDA_MEMCPY3D& copy, CUcontext handle) {
  Context* context = nullptr;
  if (const CUresult bad = find_context(call, handle, &context)) return bad;
  Work work;
  if (const CUresult bad = copy_work(call.rt, copy, &work)) return bad;
  set_work(node, work);
  node->context = context;
  node->copy = copy;
  return CUDA_SUCCESS;
}

CUresult set_memset(Call& call, GraphNode* node, const CUDA_MEMSET_NODE_PARAMS& set,
                    CUcontext handle) {
  Context* context = nullptr;
  if (const CUresult bad = find_context(call, handle, &context)) return bad;
  Work work;
  if (const CUresult bad = memset_work(call.rt, set, &work)) return bad;
  set_work(node, work);
  node->context = context;
  node->memset = set;
  return CUDA_SUCCESS;
}

CUresult set_host(GraphNode* node, CUhostFn function, void* user) {
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  set_work(node, host_work(function, user));
  return CUDA_SUCCESS;
}

CUresult set_event(Call& call, GraphNode* node, CUevent handle) {
  auto* event = checked<Event>(call.rt.events, handle);
  if (!event) return CUDA_ERROR_INVALID_VALUE;
  node->event = event;
  node->context = event->context;
  Work work;
  if (node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) work.event = event;
  set_work(node, work);
  return CUDA_SUCCESS;
}

CUresult set_memops(Call& call, GraphNode* node, const CUDA_BATCH_MEM_OP_NODE_PARAMS& params) {
  if (params.count == 0 || params.count > 256 || !params.paramArray || params.flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context* context = nullptr;
  if (const CUresult bad = find_context(call, params.ctx, &context)) return bad;
  std::vector<Work> work(params.count);
  for (unsigned i = 0; i < params.count; ++i) {
    const CUresult bad = memop_work(call.rt, params.paramArray[i], &work[i]);
    if (bad) return bad;
  }
  node->work = std::move(work);
  node->context = context;
  node->memops.assign(params.paramArray, params.paramArray + params.count);
  return CUDA_SUCCESS;
}

CUresult set_child(Call& call, GraphNode* node, CUgraph handle, bool move) {
  auto* child = checked<Graph>(call.rt.graphs, handle);
  if (!child || child->captures > 0) return CUDA_ERROR_INVALID_VALUE;
  // Neither graph may be inside the other.
  for (const Graph* outer = node->graph; outer;
       outer = outer->parent ? outer->parent->graph : nullptr) {
    if (outer == child) return CUDA_ERROR_INVALID_VALUE;
  }
  if (contains(*child, is_conditional_node)) return CUDA_ERROR_NOT_SUPPORTED;
  if (!move && contains(*child, is_memory_node)) return CUDA_ERROR_NOT_SUPPORTED;
  if (move && (child->parent || child->execs > 0)) return CUDA_ERROR_INVALID_VALUE;
  std::unique_ptr<Graph> inner(move ? child : clone_graph(call.rt, *child).release());
  inner->parent = node;
  inner->moved = move;
  node->inner.clear();
  node->inner.push_back(std::move(inner));
  return CUDA_SUCCESS;
}

CUresult set_params(Call& call, GraphNode* node, const CUgraphNodeParams& p) {
  switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS kernel{};
      static_assert(sizeof kernel == sizeof p.kernel);
      memcpy(&kernel, &p.kernel, sizeof kernel);
      return set_kernel(call, node, kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      if (p.memcpy.flags != 0 || p.memcpy.reserved != 0) return CUDA_ERROR_INVALID_VALUE;
      return set_copy(call, node, p.memcpy.copyParams, p.memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const auto& set = p.memset;
      return set_memset(call, node,
                        {set.dst, set.pitch, set.value, set.elementSize, set.width, set.height},
                        set.ctx);
    }
    case CU_GRAPH_NODE_TYPE_HOST: return set_host(node, p.host.fn, p.host.userData);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return set_child(call, node, p.graph.graph,
                       p.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
    case CU_GRAPH_NODE_TYPE_EMPTY: return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return set_event(call, node, p.eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return set_event(call, node, p.eventRecord.event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return set_memops(call, node,
                        {p.memOp.ctx, p.memOp.count, p.memOp.paramArray, p.memOp.flags});
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUDA_KERNEL_NODE_PARAMS kernel_params(GraphNode* node) {
  const Work& work = node->work.front();
  const tandem::KernelEntry& entry = *work.function->entry;
  auto& pointers = node->param_pointers;
  char* data = const_cast<char*>(work.payload.data());
  pointers.clear();
  if (node->packed_params) {
    node->param_bytes = work.payload.size();
    pointers = {CU_LAUNCH_PARAM_BUFFER_POINTER, data, CU_LAUNCH_PARAM_BUFFER_SIZE,
                &node->param_bytes, CU_LAUNCH_PARAM_END};
  } else {
    for (uint32_t i = 0; i < entry.param_count; ++i) {
      pointers.push_back(data + entry.param_offset[i]);
    }
  }
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = reinterpret_cast<CUfunction>(work.function);
  params.gridDimX = work.grid[0], params.gridDimY = work.grid[1], params.gridDimZ = work.grid[2];
  params.blockDimX = work.block[0], params.blockDimY = work.block[1];
  params.blockDimZ = work.block[2];
  params.sharedMemBytes = work.shared_bytes;
  params.ctx = reinterpret_cast<CUcontext>(node->context);
  (node->packed_params ? params.extra : params.kernelParams) = pointers.data();
  return params;
}

CUDA_BATCH_MEM_OP_NODE_PARAMS memop_params(GraphNode* node) {
  return {reinterpret_cast<CUcontext>(node->context), static_cast<unsigned>(node->memops.size()),
          node->memops.data(), 0};
}

CUDA_MEM_ALLOC_NODE_PARAMS alloc_params(GraphNode* node) {
  CUDA_MEM_ALLOC_NODE_PARAMS params = node->alloc;
  params.accessDescs = node->alloc_access.empty() ? nullptr : node->alloc_access.data();
  params.accessDescCount = node->alloc_access.size();
  return params;
}

CUgraphNodeParams node_params(GraphNode* node) {
  CUgraphNodeParams p;
  memset(static_cast<void*>(&p), 0, sizeof p);
  p.type = node->type;
  const auto context = reinterpret_cast<CUcontext>(node->context);
  switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const CUDA_KERNEL_NODE_PARAMS kernel = kernel_params(node);
      memcpy(&p.kernel, &kernel, sizeof kernel);
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      p.memcpy.copyCtx = context;
      p.memcpy.copyParams = node->copy;
      break;
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS& set = node->memset;
      p.memset = {set.dst, set.pitch, set.value, set.elementSize, set.width, set.height, context};
      break;
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      p.host.fn = node->work.front().host_function;
      p.host.userData = node->work.front().user;
      break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      p.graph.graph = reinterpret_cast<CUgraph>(node->inner.front().get());
#if CUDA_VERSION >= 13050  // older headers have no name for "not given"
      p.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID;
#endif
      break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      p.eventWait.event = reinterpret_cast<CUevent>(node->event);
      break;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      p.eventRecord.event = reinterpret_cast<CUevent>(node->event);
      break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      const CUDA_BATCH_MEM_OP_NODE_PARAMS batch = memop_params(node);
      p.memOp = {batch.ctx, batch.count, batch.paramArray, batch.flags};
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      const CUDA_MEM_ALLOC_NODE_PARAMS alloc = alloc_params(node);
      p.alloc = {alloc.poolProps, alloc.accessDescs, alloc.accessDescCount, alloc.bytesize,
                 alloc.dptr};
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE: p.free.dptr = node->freed; break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      p.conditional.handle = node->condition;
      p.conditional.type = node->condition_type;
      p.conditional.size = static_cast<unsigned>(node->inner.size());
      p.conditional.phGraph_out = node->inner_handles.data();
      p.conditional.ctx = context;
      break;
    default: break;
  }
  return p;
}

CUgraphNodeType node_type(const Work& work) {
  switch (work.kind) {
    case OpKind::kKernel: return CU_GRAPH_NODE_TYPE_KERNEL;
    case OpKind::kCopyHtoD:
    case OpKind::kCopyDtoH:
    case OpKind::kCopyDtoD: return CU_GRAPH_NODE_TYPE_MEMCPY;
    case OpKind::kMemset: return CU_GRAPH_NODE_TYPE_MEMSET;
    case OpKind::kHostFunc: return CU_GRAPH_NODE_TYPE_HOST;
    case OpKind::kMemOpWrite:
    case OpKind::kMemOpWait: return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    case OpKind::kEvent: break;
  }
  return work.event ? CU_GRAPH_NODE_TYPE_EVENT_RECORD : CU_GRAPH_NODE_TYPE_EMPTY;
}

void take_work(GraphNode* node, const std::vector<Work>& work) {
  node->work = work;
  for (Work& own : node->work) own.own_priority = false;
  switch (node->type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY: node->copy = describe_copy(work.front()); break;
    case CU_GRAPH_NODE_TYPE_MEMSET: node->memset = describe_memset(work.front()); break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      for (const Work& one : work) node->memops.push_back(describe_memop(one));
      break;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      node->event = work.front().event;
      node->context = node->event->context;
      break;
    default: break;
  }
}

}  // namespace softgpu
