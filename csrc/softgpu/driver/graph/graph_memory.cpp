#include "graph_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "capture.h"
#include "graph_exec.h"
#include "memory.h"
#include "pool.h"

namespace softgpu {
namespace {

constexpr uint64_t kGranule = 2 << 20;  // of backing, as a GPU maps it

uint64_t round_up(uint64_t bytes) { return (bytes + kGranule - 1) / kGranule * kGranule; }

GraphAllocation* find_allocation(Runtime& rt, CUdeviceptr pointer) {
  const auto found = rt.graph_allocations.find(pointer);
  return found == rt.graph_allocations.end() ? nullptr : found->second;
}

template <class Use>
void for_each_node(const Graph& graph, CUgraphNodeType type, Use use) {
  for (const auto& node : graph.nodes) {
    if (node->type == type) use(*node);
    for (const auto& inner : node->inner) for_each_node(*inner, type, use);
  }
}

std::vector<GraphAllocation*> allocations_of(const GraphExec& exec) {
  std::vector<GraphAllocation*> found;
  for_each_node(*exec.graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                [&](const GraphNode& node) { found.push_back(node.memory.get()); });
  return found;
}

std::vector<GraphAllocation*> frees_of(const GraphExec& exec) {
  std::vector<GraphAllocation*> found;
  for_each_node(*exec.graph, CU_GRAPH_NODE_TYPE_MEM_FREE,
                [&](const GraphNode& node) { found.push_back(node.memory.get()); });
  return found;
}

bool frees_itself(const GraphExec& exec, const GraphAllocation* memory) {
  const auto frees = frees_of(exec);
  return std::find(frees.begin(), frees.end(), memory) != frees.end();
}

bool take_spare(GraphMemory* device, uint64_t bytes, Backing* backing) {
  auto best = device->spare.end();
  for (auto it = device->spare.begin(); it != device->spare.end(); ++it) {
    if (it->bytes >= bytes && (best == device->spare.end() || it->bytes < best->bytes)) best = it;
  }
  if (best == device->spare.end()) return false;
  *backing = *best;
  device->spare.erase(best);
  return true;
}

void give_up(Runtime& rt, GraphAllocation* memory) {
  if (memory->users > 0 || memory->live || memory->backing.bytes == 0) return;
  GraphMemory& device = rt.graph_memory[memory->device];
  device.used -= memory->backing.bytes;
  device.spare.push_back(std::exchange(memory->backing, {}));
}

void free_live(Runtime& rt, GraphAllocation* memory) {
  memory->live = false;
  give_up(rt, memory);
  rt.live_graph_memory.erase(memory->begin);  // may destroy `memory`
}

CUresult check(const Runtime& rt, const CUDA_MEM_ALLOC_NODE_PARAMS& params) {
  const CUmemPoolProps& props = params.poolProps;
  const auto devices = static_cast<int>(rt.device.device_count);
  if (params.bytesize == 0 || props.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      props.handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (props.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (props.location.id < 0 || props.location.id >= devices) return CUDA_ERROR_INVALID_VALUE;
  if (params.accessDescCount > rt.device.device_count ||
      (params.accessDescCount > 0 && !params.accessDescs)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult mark_freed(Runtime& rt, GraphNode* node, CUdeviceptr pointer) {
  GraphAllocation* memory = find_allocation(rt, pointer);
  if (!memory || memory->freed_by != 0) return CUDA_ERROR_INVALID_VALUE;
  memory->freed_by = node->graph->id;
  node->freed = pointer;
  node->memory = memory->shared_from_this();
  return CUDA_SUCCESS;
}

}  // namespace

GraphAllocation::GraphAllocation(Runtime& runtime, uintptr_t address, size_t size, int where)
    : rt(runtime), begin(address), bytes(size), device(where) {
  rt.graph_allocations[begin] = this;
}

GraphAllocation::~GraphAllocation() {
  users = 0;
  live = false;
  give_up(rt, this);
  rt.graph_allocations.erase(begin);
  const auto range = rt.ranges.find(begin);
  if (range == rt.ranges.end()) return;
  unmap_range(range->second);
  rt.ranges.erase(range);
}

CUresult set_alloc(Call& call, GraphNode* node, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  Runtime& rt = call.rt;
  if (const CUresult bad = check(rt, *params)) return bad;
  void* pages = mmap(nullptr, round_up(params->bytesize), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto begin = reinterpret_cast<uintptr_t>(pages);
  const int device = params->poolProps.location.id;
  Context* context = rt.primary[static_cast<size_t>(device)];
  Range range{begin, params->bytesize, RangeKind::kGraph, context, device};
  range.id = rt.next_number();
  rt.ranges.emplace(begin, std::move(range));
  node->memory = std::make_shared<GraphAllocation>(rt, begin, params->bytesize, device);
  params->dptr = begin;
  node->alloc = *params;
  node->alloc_access.assign(params->accessDescs, params->accessDescs + params->accessDescCount);
  for (const CUmemAccessDesc& one : node->alloc_access) {
    node->memory->access[one.location.id] = one.flags;
  }
  return CUDA_SUCCESS;
}

CUresult set_free(Call& call, GraphNode* node, CUdeviceptr pointer) {
  return mark_freed(call.rt, node, pointer);
}

CUresult capture_alloc(StreamCall& on, const Pool& pool, size_t bytes, CUdeviceptr* out) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Graph* graph = on.stream->capture->graph;
  if (const CUresult bad = may_hold(*graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC)) {
    return on.refuse_in_capture(bad);
  }
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = pool.props.location;
  params.bytesize = bytes;
  std::vector<CUmemAccessDesc> access;  // as the pool has it now
  for (const auto& [device, flags] : pool.access) {
    access.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, {device}}, flags});
  }
  params.accessDescs = access.data();
  params.accessDescCount = access.size();
  if (const CUresult bad = check(on.call.rt, params)) return bad;
  GraphNode* node = capture_node(on, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  if (!node) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (const CUresult bad = set_alloc(on.call, node, &params)) return on.refuse_in_capture(bad);
  *out = params.dptr;
  return CUDA_SUCCESS;
}

CUresult capture_free(StreamCall& on, CUdeviceptr pointer) {
  const GraphAllocation* memory = find_allocation(on.call.rt, pointer);
  if (!memory || memory->freed_by != 0) return on.refuse_in_capture(CUDA_ERROR_INVALID_VALUE);
  GraphNode* node = capture_node(on, CU_GRAPH_NODE_TYPE_MEM_FREE);
  if (!node) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  return mark_freed(on.call.rt, node, pointer);
}

CUresult back_with_memory(Call& call, GraphExec& exec) {
  for (GraphAllocation* memory : allocations_of(exec)) {
    if (exec.backed.insert(memory).second) ++memory->users;
    if (memory->backing.bytes > 0) continue;
    const uint64_t bytes = round_up(memory->bytes);
    Backing backing{};
    const bool reused = take_spare(&call.rt.graph_memory[memory->device], bytes, &backing);
    if (!reused) {
      backing.bytes = bytes;
      const CUresult bad =
          reserve_memory(call, bytes, memory->device, proto::MemKind::kLinear, &backing.allocation);
      if (bad) return bad;
    }
    GraphMemory& device = call.rt.graph_memory[memory->device];
    if (!reused) device.reserved += bytes;
    if (memory->backing.bytes > 0) {  // another thread was faster while this one asked
      device.spare.push_back(backing);
      continue;
    }
    memory->backing = backing;
    device.used += backing.bytes;
    device.used_high = std::max(device.used_high, device.used);
    device.reserved_high = std::max(device.reserved_high, device.reserved);
  }
  return CUDA_SUCCESS;
}

CUresult check_allocations(const GraphExec& exec) {
  const bool automatic = exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
  const auto own = allocations_of(exec);
  for (const GraphAllocation* memory : own) {
    if (memory->live && !automatic) return CUDA_ERROR_INVALID_VALUE;
  }
  for (const GraphAllocation* memory : frees_of(exec)) {
    const bool here = std::find(own.begin(), own.end(), memory) != own.end();
    if (!here && !memory->live) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

void note_launch(GraphExec& exec) {
  for (GraphAllocation* memory : allocations_of(exec)) {
    if (frees_itself(exec, memory)) continue;
    memory->live = true;
    exec.rt.live_graph_memory[memory->begin] = memory->shared_from_this();
  }
  for (GraphAllocation* memory : frees_of(exec)) {
    if (memory->live) free_live(exec.rt, memory);
  }
}

void release_graph_memory(GraphExec& exec) {
  for (GraphAllocation* memory : exec.backed) {
    --memory->users;
    give_up(exec.rt, memory);
  }
  exec.backed.clear();
}

bool free_graph_memory(Runtime& rt, CUdeviceptr pointer, CUresult* result) {
  GraphAllocation* memory = find_allocation(rt, pointer);
  if (!memory) return false;
  // The program must not free what the graph itself frees or what no launch has allocated.
  *result = memory->live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (memory->live) free_live(rt, memory);
  return true;
}

}  // namespace softgpu

using namespace softgpu;

static bool is_device(const Call& call, CUdevice device) {
  return device >= 0 && static_cast<uint32_t>(device) < call.rt.device.device_count;
}

SOFTGPU_API cuDeviceGraphMemTrim(CUdevice device) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!is_device(call, device)) return CUDA_ERROR_INVALID_DEVICE;
  GraphMemory& memory = call.rt.graph_memory[device];
  for (const Backing& backing : memory.spare) {
    memory.reserved -= backing.bytes;
    call.rt.post(proto::Type::kMemRelease, proto::MemRelease{{}, backing.allocation});
  }
  memory.spare.clear();
  if (!call.rt.is_virtual()) call.rt.flush();
  return CUDA_SUCCESS;
}

SOFTGPU_API cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                         void* value) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!is_device(call, device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  const GraphMemory& memory = call.rt.graph_memory[device];
  auto* out = static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT: *out = memory.used; return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: *out = memory.used_high; return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: *out = memory.reserved; return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: *out = memory.reserved_high; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

SOFTGPU_API cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                         void* value) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!is_device(call, device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!value || *static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
  GraphMemory& memory = call.rt.graph_memory[device];
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: memory.used_high = memory.used; return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      memory.reserved_high = memory.reserved;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}
