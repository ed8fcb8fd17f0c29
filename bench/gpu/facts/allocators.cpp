// Takes memory from one allocator of the driver after the other, so that an observer outside can
// see what each costs: a line on stdin makes it take the memory, the next one makes it give it
// back. Like every program here that runs under `tandem run`, it first prints `up` and waits for a
// line.
//
//   allocators IMAGE BYTES KIND...
#include <functional>

#include "chunks.h"
#include "talk.h"

namespace {

constexpr size_t kMiB = 1 << 20;
constexpr size_t kManagedBytes = 4 * kMiB;  // managed memory: never more than a little
constexpr size_t kSmallBytes = 4096;

// What was requested, and how to give it back. `result` is that of the first call that failed.
struct Held {
  std::string result = "CUDA_SUCCESS";
  uint64_t asked_bytes = 0;
  std::function<void()> give_back = [] {};
};

Held refused(const char* call, CUresult result) {
  Held held;
  held.result = std::string(call) + ": " + name_of(result);
  return held;
}

// Some drivers allocate pages only when memory is touched.
void touch(CUdeviceptr at, size_t bytes) {
  check(DRIVER(cuMemsetD8_v2, "cuMemsetD8")(at, 1, bytes), "cuMemsetD8");
  check(DRIVER(cuCtxSynchronize, "cuCtxSynchronize")(), "synchronize");
}

void free_linear(CUdeviceptr at) { check(DRIVER(cuMemFree_v2, "cuMemFree")(at), "cuMemFree"); }

Held linear(size_t bytes) {
  CUdeviceptr at = 0;
  const CUresult result = DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&at, bytes);
  if (result != CUDA_SUCCESS) return refused("cuMemAlloc", result);
  touch(at, bytes);
  return {"CUDA_SUCCESS", bytes, [=] { free_linear(at); }};
}

// Takes part of `bytes` in many small allocations, which share pages.
Held small(size_t bytes) {
  std::vector<CUdeviceptr> all(std::min<size_t>(bytes / kSmallBytes, 4096));
  for (CUdeviceptr& at : all) {
    const CUresult result = DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&at, kSmallBytes);
    if (result != CUDA_SUCCESS) return refused("cuMemAlloc", result);
  }
  return {"CUDA_SUCCESS", all.size() * kSmallBytes, [=] {
            for (const CUdeviceptr at : all) free_linear(at);
          }};
}

// Rows that do not fill their pitch; asked_bytes counts the rows without padding.
Held pitch(size_t bytes) {
  CUdeviceptr at = 0;
  size_t pitch_bytes = 0;
  const size_t width = 1000, height = bytes / 1024;
  const CUresult result =
      DRIVER(cuMemAllocPitch_v2, "cuMemAllocPitch")(&at, &pitch_bytes, width, height, 4);
  if (result != CUDA_SUCCESS) return refused("cuMemAllocPitch", result);
  touch(at, pitch_bytes * height);
  return {"CUDA_SUCCESS", width * height, [=] { free_linear(at); }};
}

void free_async(CUdeviceptr at, CUmemoryPool pool) {
  check(DRIVER(cuMemFreeAsync, "cuMemFreeAsync")(at, nullptr), "cuMemFreeAsync");
  check(DRIVER(cuCtxSynchronize, "cuCtxSynchronize")(), "synchronize");
  check(DRIVER(cuMemPoolTrimTo, "cuMemPoolTrimTo")(pool, 0), "cuMemPoolTrimTo");
}

Held async(size_t bytes) {
  CUdeviceptr at = 0;
  const CUresult result = DRIVER(cuMemAllocAsync, "cuMemAllocAsync")(&at, bytes, nullptr);
  if (result != CUDA_SUCCESS) return refused("cuMemAllocAsync", result);
  touch(at, bytes);
  CUmemoryPool pool;
  check(DRIVER(cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool")(&pool, 0), "default pool");
  return {"CUDA_SUCCESS", bytes, [=] { free_async(at, pool); }};
}

Held from_pool(size_t bytes) {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool;
  CUresult result = DRIVER(cuMemPoolCreate, "cuMemPoolCreate")(&pool, &properties);
  if (result != CUDA_SUCCESS) return refused("cuMemPoolCreate", result);
  CUdeviceptr at = 0;
  result = DRIVER(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync")(&at, bytes, pool, nullptr);
  if (result != CUDA_SUCCESS) return refused("cuMemAllocFromPoolAsync", result);
  touch(at, bytes);
  return {"CUDA_SUCCESS", bytes, [=] {
            free_async(at, pool);
            check(DRIVER(cuMemPoolDestroy, "cuMemPoolDestroy")(pool), "cuMemPoolDestroy");
          }};
}

Held mapped(size_t bytes) {
  auto* const chunks = new Chunks(bytes, 32 * kMiB, true);
  chunks->map_all();
  touch(chunks->at(0), chunks->bytes_of_all());
  return {"CUDA_SUCCESS", chunks->bytes_of_all(), [=] {
            for (size_t i = 0; i < chunks->count(); i++) chunks->unmap(i);
          }};
}

Held managed(size_t) {
  CUdeviceptr at = 0;
  const CUresult result =
      DRIVER(cuMemAllocManaged, "cuMemAllocManaged")(&at, kManagedBytes, CU_MEM_ATTACH_GLOBAL);
  if (result != CUDA_SUCCESS) return refused("cuMemAllocManaged", result);
  touch(at, kManagedBytes);
  return {"CUDA_SUCCESS", kManagedBytes, [=] { free_linear(at); }};
}

Held array(size_t bytes) {
  CUDA_ARRAY_DESCRIPTOR wanted = {};
  wanted.Width = 4096;
  wanted.Height = bytes / 4096 / 4;
  wanted.Format = CU_AD_FORMAT_FLOAT;
  wanted.NumChannels = 1;
  CUarray made;
  const CUresult result = DRIVER(cuArrayCreate_v2, "cuArrayCreate")(&made, &wanted);
  if (result != CUDA_SUCCESS) return refused("cuArrayCreate", result);
  return {"CUDA_SUCCESS", wanted.Width * wanted.Height * 4,
          [=] { check(DRIVER(cuArrayDestroy, "cuArrayDestroy")(made), "cuArrayDestroy"); }};
}

Held mipmapped(size_t bytes) {
  CUDA_ARRAY3D_DESCRIPTOR wanted = {};
  wanted.Width = 2048;
  wanted.Height = bytes / 2048 / 4 / 2;
  wanted.Format = CU_AD_FORMAT_FLOAT;
  wanted.NumChannels = 1;
  constexpr unsigned kLevels = 3;
  CUmipmappedArray made;
  const CUresult result =
      DRIVER(cuMipmappedArrayCreate, "cuMipmappedArrayCreate")(&made, &wanted, kLevels);
  if (result != CUDA_SUCCESS) return refused("cuMipmappedArrayCreate", result);
  uint64_t asked = 0;
  for (unsigned level = 0; level < kLevels; level++)
    asked += (wanted.Width >> level) * (wanted.Height >> level) * 4;
  return {"CUDA_SUCCESS", asked, [=] {
            check(DRIVER(cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy")(made), "destroy");
          }};
}

// A graph that only allocates: the memory stays after it has run.
Held graph(size_t bytes) {
  CUgraph made;
  check(DRIVER(cuGraphCreate, "cuGraphCreate")(&made, 0), "cuGraphCreate");
  CUDA_MEM_ALLOC_NODE_PARAMS wanted = {};
  wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.bytesize = bytes;
  CUgraphNode node;
  CUresult result =
      DRIVER(cuGraphAddMemAllocNode, "cuGraphAddMemAllocNode")(&node, made, nullptr, 0, &wanted);
  if (result != CUDA_SUCCESS) return refused("cuGraphAddMemAllocNode", result);
  CUgraphExec executable;
  result = DRIVER(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags")(&executable, made, 0);
  if (result != CUDA_SUCCESS) return refused("cuGraphInstantiateWithFlags", result);
  result = DRIVER(cuGraphLaunch, "cuGraphLaunch")(executable, nullptr);
  if (result != CUDA_SUCCESS) return refused("cuGraphLaunch", result);
  touch(wanted.dptr, bytes);
  const CUdeviceptr at = wanted.dptr;
  return {"CUDA_SUCCESS", bytes, [=] {
            free_linear(at);
            check(DRIVER(cuGraphExecDestroy, "cuGraphExecDestroy")(executable), "destroy");
            check(DRIVER(cuDeviceGraphMemTrim, "cuDeviceGraphMemTrim")(0), "cuDeviceGraphMemTrim");
          }};
}

struct Kind {
  const char* name;
  Held (*take)(size_t);
};
constexpr Kind kKinds[] = {
    {"linear", linear},       {"small", small},   {"pitch", pitch},     {"async", async},
    {"pool", from_pool},      {"mapped", mapped}, {"managed", managed}, {"array", array},
    {"mipmapped", mipmapped}, {"graph", graph},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  event("up").print();
  next_order();
  make_module(argv[1]);
  // What the driver creates at a first use is not part of an allocation's cost.
  linear(kMiB).give_back();
  event("ready").print();
  next_order();
  const size_t bytes = strtoull(argv[2], nullptr, 10);
  for (int i = 3; i < argc; i++) {
    const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& one) {
      return argv[i] == std::string(one.name);
    });
    if (kind == std::end(kKinds)) return 2;
    if (!next_order()) return 0;
    const Held held = kind->take(bytes);
    event("held")
        .add("kind", kind->name)
        .add("result", held.result)
        .add("asked_bytes", held.asked_bytes)
        .print();
    if (!next_order()) return 0;
    held.give_back();
    event("freed").print();
  }
  next_order();
  return 0;
}
