#include "graph_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "admission.h"
#include "driver.h"
#include "holdings.h"
#include "memory.h"

namespace tandem::shim::graph_memory {

std::atomic<bool> g_any{false};

namespace {

using holdings::Entry;
using holdings::Kind;
using holdings::Locked;

constexpr uint64_t kGranule = 2 << 20;  // the unit in which a device's memory is mapped
constexpr int kMostNested = 8;

// Protected by the lock of holdings.
struct Reserved {
  uint64_t bytes = 0;  // as charged
  uint64_t asked = 0, answered = 0;
};
Reserved g_reserved[memory::kMostDevices];

bool attribute_of(uint32_t device, CUgraphMem_attribute attribute, uint64_t* value) {
  return g_driver.cuDeviceGetGraphMemAttribute &&
         g_driver.cuDeviceGetGraphMemAttribute(static_cast<CUdevice>(device), attribute, value) ==
             CUDA_SUCCESS;
}

struct Demand {
  uint64_t bytes = 0;
  uint32_t device = 0;
};

void add_demand(CUgraph graph, int depth, Demand* demand);

void add_demand(CUgraphNode node, int depth, Demand* demand) {
  CUgraphNodeType type{};
  if (g_driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return;
  if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth < kMostNested) {
    CUgraph inner = nullptr;
    if (g_driver.cuGraphChildGraphNodeGetGraph &&
        g_driver.cuGraphChildGraphNodeGetGraph(node, &inner) == CUDA_SUCCESS) {
      add_demand(inner, depth + 1, demand);
    }
  }
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || !g_driver.cuGraphMemAllocNodeGetParams ||
      g_driver.cuGraphMemAllocNodeGetParams(node, &params) != CUDA_SUCCESS) {
    return;
  }
  demand->bytes += (params.bytesize + kGranule - 1) / kGranule * kGranule;
  demand->device = static_cast<uint32_t>(params.poolProps.location.id);
}

void add_demand(CUgraph graph, int depth, Demand* demand) {
  size_t count = 0;
  if (!g_driver.cuGraphGetNodes || !g_driver.cuGraphNodeGetType ||
      g_driver.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) {
    return;
  }
  void* room = mmap(nullptr, count * sizeof(CUgraphNode), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return;
  auto* nodes = static_cast<CUgraphNode*>(room);
  size_t got = count;
  if (g_driver.cuGraphGetNodes(graph, nodes, &got) == CUDA_SUCCESS) {
    for (size_t i = 0; i < std::min(got, count); ++i) add_demand(nodes[i], depth, demand);
  }
  munmap(room, count * sizeof(CUgraphNode));
}

uint64_t key_of(CUgraphExec exec) { return reinterpret_cast<uint64_t>(exec); }

}  // namespace

void note_node() { g_any.store(true, std::memory_order_relaxed); }

void note_instantiated(CUgraphExec exec, CUgraph graph) {
  if (!any()) return;
  Demand demand;
  add_demand(graph, 0, &demand);
  if (demand.bytes) {
    Entry entry;
    entry.kind = Kind::kGraphExec;
    entry.key = key_of(exec);
    entry.bytes = demand.bytes;
    entry.device = static_cast<uint8_t>(demand.device);
    holdings::put(entry);
  }
}

void note_uploaded(CUgraphExec exec) {
  if (!any()) return;
  uint32_t device = 0;
  {
    const Locked table;
    Entry* entry = table->find(Kind::kGraphExec, key_of(exec));
    if (!entry) return;
    entry->count = 0;
    device = entry->device;
  }
  refresh(device);
}

holdings::Entry forget(CUgraphExec exec) {
  return any() ? holdings::take_out(Kind::kGraphExec, key_of(exec)) : Entry{};
}

// Memory that another graph left reserved is used first. Once launched, a graph keeps its memory.
Growth growth_of(CUgraphExec exec) {
  Growth growth;
  {
    const Locked table;
    const Entry* entry = table->find(Kind::kGraphExec, key_of(exec));
    if (!entry) return growth;
    growth = {exec, entry->device, entry->count > 0 ? entry->bytes : 0, entry->count > 0};
  }
  uint64_t used = 0, reserved = 0;
  if (growth.bytes && attribute_of(growth.device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used) &&
      attribute_of(growth.device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved) &&
      reserved >= used && growth.bytes <= reserved - used) {
    growth.bytes = 0;
  }
  return growth;
}

bool begin_launch(CUgraphExec exec, Growth* growth) {
  *growth = growth_of(exec);
  if (!growth->is_first) return true;
  return growth->bytes ? admit(growth->device, growth->bytes) : admit_reuse(growth->device);
}

void end_launch(const Growth& growth, CUresult result) {
  if (!growth.is_first) return;
  refresh(growth.device);
  if (result != CUDA_SUCCESS) return undo_admission(growth.device, growth.bytes, result);
  memory::give_back(growth.device, growth.bytes);
  const Locked table;
  if (Entry* entry = table->find(Kind::kGraphExec, key_of(growth.exec))) entry->count = 0;
}

void refresh(uint32_t device) {
  if (!any() || device >= memory::kMostDevices) return;
  Reserved& known = g_reserved[device];
  uint64_t ticket = 0, reserved = 0;
  {
    const Locked lock;
    ticket = ++known.asked;
  }
  if (!attribute_of(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved)) return;
  const Locked lock;
  if (ticket <= known.answered) return;  // a later question was answered sooner
  known.answered = ticket;
  if (reserved > known.bytes) memory::add(device, reserved - known.bytes);
  else memory::give_back(device, known.bytes - reserved);
  known.bytes = reserved;
}

void trim(uint32_t device) {
  if (!any()) return;
  if (g_driver.cuDeviceGraphMemTrim) g_driver.cuDeviceGraphMemTrim(static_cast<CUdevice>(device));
  refresh(device);
}

void start_afresh() {
  for (Reserved& reserved : g_reserved) reserved = Reserved{};
  g_any.store(false, std::memory_order_relaxed);
}

}  // namespace tandem::shim::graph_memory
