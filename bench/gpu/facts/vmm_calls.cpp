// Measures what memory calls cost, and reports what they return. Each line on stdin repeats the
// action.
//
//   vmm_calls IMAGE costs | pointers | pools
#include <string.h>

#include "chunks.h"
#include "talk.h"

namespace {

constexpr size_t kMiB = 1 << 20;

// Runs a call and appends its time to the list.
template <class Call>
void timed(std::vector<double>* times_us, const char* name, Call call) {
  const uint64_t start_ns = now_ns();
  const CUresult result = call();
  times_us->push_back(us_since(start_ns));
  need(result, name);
}

Json cost_of_chunk(size_t bytes, bool exportable) {
  enum { kReserve, kCreate, kMap, kAccess, kUnmap, kRelease, kFree, kCalls };
  static const char* const kNames[kCalls] = {"reserve_us", "create_us",  "map_us", "set_access_us",
                                             "unmap_us",   "release_us", "free_us"};
  const ChunkCalls calls;
  const CUmemAllocationProp properties = chunk_properties(exportable);
  CUmemAccessDesc access = {};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  std::vector<double> us[kCalls], all_us;
  const size_t rounds = std::max<size_t>(4, std::min<size_t>(40, 2048 * kMiB / bytes));
  for (size_t i = 0; i < rounds; i++) {
    CUdeviceptr at = 0;
    CUmemGenericAllocationHandle handle = 0;
    const uint64_t start_ns = now_ns();
    timed(&us[kReserve], "cuMemAddressReserve", [&] { return calls.reserve(&at, bytes, 0, 0, 0); });
    timed(&us[kCreate], "cuMemCreate",
          [&] { return calls.create(&handle, bytes, &properties, 0); });
    timed(&us[kMap], "cuMemMap", [&] { return calls.map(at, bytes, 0, handle, 0); });
    timed(&us[kAccess], "cuMemSetAccess", [&] { return calls.set_access(at, bytes, &access, 1); });
    timed(&us[kUnmap], "cuMemUnmap", [&] { return calls.unmap(at, bytes); });
    timed(&us[kRelease], "cuMemRelease", [&] { return calls.release(handle); });
    timed(&us[kFree], "cuMemAddressFree", [&] { return calls.free(at, bytes); });
    all_us.push_back(us_since(start_ns));
  }
  Json found;
  for (int i = 0; i < kCalls; i++) found.add(kNames[i], median(us[i]));
  return found.add("all_us", median(all_us));
}

Json costs() {
  Json found = event("result");
  found.add("granularity_minimum_bytes", (uint64_t)chunk_granularity(false));
  found.add("granularity_recommended_bytes", (uint64_t)chunk_granularity(true));
  for (const bool exportable : {false, true}) {
    Json sizes;
    for (const size_t mib : {2, 8, 32, 128, 512}) {
      const std::string name = "mib_" + std::to_string(mib);
      sizes.add(name.c_str(), told([&] { return cost_of_chunk(mib * kMiB, exportable); }));
    }
    found.add(exportable ? "exportable" : "plain", sizes);
  }
  return found;
}

// Adds one attribute as the driver reports it, or the name of its refusal.
template <class Value>
void attribute(Json* into, const char* name, CUpointer_attribute wanted, CUdeviceptr at) {
  Value value = {};
  const CUresult result =
      DRIVER(cuPointerGetAttribute, "cuPointerGetAttribute")(&value, wanted, at);
  if (result != CUDA_SUCCESS) {
    into->add(name, name_of(result));
  } else {
    into->add(name, (uint64_t)value);
  }
}

void pointer_attribute(Json* into, const char* name, CUpointer_attribute wanted, CUdeviceptr at,
                       uint64_t expected) {
  uint64_t value = 0;
  const CUresult result =
      DRIVER(cuPointerGetAttribute, "cuPointerGetAttribute")(&value, wanted, at);
  if (result != CUDA_SUCCESS) {
    into->add(name, name_of(result));
  } else {
    into->add(name, value == 0 ? "null" : value == expected ? "as expected" : "something else");
  }
}

// `at` lies in memory that, from its allocator's point of view, begins at `start`.
Json attributes_of(CUdeviceptr at, CUdeviceptr start) {
  CUcontext context = nullptr;
  check(DRIVER(cuCtxGetCurrent, "cuCtxGetCurrent")(&context), "cuCtxGetCurrent");
  Json found;
  attribute<unsigned>(&found, "memory_type", CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
  pointer_attribute(&found, "context", CU_POINTER_ATTRIBUTE_CONTEXT, at, (uint64_t)context);
  pointer_attribute(&found, "device_pointer", CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at, at);
  pointer_attribute(&found, "host_pointer", CU_POINTER_ATTRIBUTE_HOST_POINTER, at, at);
  pointer_attribute(&found, "range_start", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at, start);
  attribute<size_t>(&found, "range_bytes", CU_POINTER_ATTRIBUTE_RANGE_SIZE, at);
  pointer_attribute(&found, "mapping_start", CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, at, start);
  attribute<size_t>(&found, "mapping_bytes", CU_POINTER_ATTRIBUTE_MAPPING_SIZE, at);
  attribute<unsigned>(&found, "is_managed", CU_POINTER_ATTRIBUTE_IS_MANAGED, at);
  attribute<unsigned>(&found, "mapped", CU_POINTER_ATTRIBUTE_MAPPED, at);
  attribute<int>(&found, "device_ordinal", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
  attribute<unsigned long long>(&found, "buffer_id", CU_POINTER_ATTRIBUTE_BUFFER_ID, at);
  attribute<unsigned>(&found, "legacy_ipc", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at);
  attribute<unsigned long long>(&found, "handle_types", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                                at);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const CUresult result =
      DRIVER(cuMemGetAddressRange_v2, "cuMemGetAddressRange")(&base, &bytes, at);
  found.add("address_range", name_of(result));
  found.add("address_range_start", base == start ? "as expected" : "something else");
  return found.add("address_range_bytes", (uint64_t)bytes);
}

// Asks for a handle by which a network card can access the memory.
std::string dma_buffer(CUdeviceptr at, size_t bytes) {
  int fd = -1;
  const CUresult result = DRIVER(cuMemGetHandleForAddressRange, "cuMemGetHandleForAddressRange")(
      &fd, at, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (result == CUDA_SUCCESS) close(fd);
  return name_of(result);
}

// Maps two adjacent chunks in one reservation, and asks which memory a pointer into the second is
// in.
Json pointers() {
  constexpr size_t kChunk = 4 * kMiB;
  CUdeviceptr plain = 0;
  check(DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&plain, kChunk), "cuMemAlloc");
  Chunks chunks(2 * kChunk, kChunk, true);
  chunks.map_all();
  Json found = event("result");
  found.add("linear", attributes_of(plain + 4096, plain));
  found.add("mapped", attributes_of(chunks.at(1) + 4096, chunks.at(1)));
  found.add("linear_dma_buffer", dma_buffer(plain, kChunk));
  found.add("mapped_dma_buffer", dma_buffer(chunks.at(0), kChunk));
  // What the shim asks, several attributes at once, about copies whose call does not give a
  // direction.
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  unsigned type = 0;
  size_t bytes = 0;
  void* values[] = {&type, &bytes};
  const auto all = DRIVER(cuPointerGetAttributes, "cuPointerGetAttributes");
  found.add("several_at_once", name_of(all(2, wanted, values, chunks.at(1))));
  found.add("several_of_the_host", name_of(all(2, wanted, values, (CUdeviceptr)(uintptr_t)&type)));
  found.add("memory_type_of_the_host", (uint64_t)type);
  chunks.unmap(1);
  found.add("unmapped", name_of(all(2, wanted, values, chunks.at(1))));
  found.add("memory_type_unmapped", (uint64_t)type);
  chunks.unmap(0);
  return found;
}

constexpr int kRounds = 1000;

template <class Call>
double ns_each(int rounds, Call call) {
  const uint64_t start_ns = now_ns();
  for (int i = 0; i < rounds; i++) call(i);
  return (double)(now_ns() - start_ns) / rounds;
}

Json linear_cost(size_t bytes, int rounds) {
  auto* const alloc = DRIVER(cuMemAlloc_v2, "cuMemAlloc");
  auto* const free = DRIVER(cuMemFree_v2, "cuMemFree");
  std::vector<CUdeviceptr> at((size_t)rounds);
  Json found;
  found.add("alloc_ns", ns_each(rounds, [&](int i) { need(alloc(&at[i], bytes), "cuMemAlloc"); }));
  return found.add("free_ns", ns_each(rounds, [&](int i) { need(free(at[i]), "cuMemFree"); }));
}

class Pool {
 public:
  Pool() {
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    need(DRIVER(cuMemPoolCreate, "cuMemPoolCreate")(&pool_, &properties), "cuMemPoolCreate");
    uint64_t keep = UINT64_MAX;
    need(DRIVER(cuMemPoolSetAttribute, "cuMemPoolSetAttribute")(
             pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep),
         "cuMemPoolSetAttribute");
    need(DRIVER(cuStreamCreate, "cuStreamCreate")(&stream_, CU_STREAM_NON_BLOCKING), "stream");
  }
  // Allocates and frees in pairs, like a framework's step, from memory that the pool retains.
  Json cost(size_t bytes) {
    auto* const alloc = DRIVER(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync");
    auto* const free = DRIVER(cuMemFreeAsync, "cuMemFreeAsync");
    uint64_t alloc_ns = 0, free_ns = 0;
    for (int i = -10; i < kRounds; i++) {
      CUdeviceptr at = 0;
      const uint64_t first_ns = now_ns();
      need(alloc(&at, bytes, pool_, stream_), "cuMemAllocFromPoolAsync");
      const uint64_t second_ns = now_ns();
      need(free(at, stream_), "cuMemFreeAsync");
      if (i < 0) continue;
      alloc_ns += second_ns - first_ns;
      free_ns += now_ns() - second_ns;
    }
    need(DRIVER(cuStreamSynchronize, "cuStreamSynchronize")(stream_), "synchronize");
    Json found;
    found.add("alloc_ns", (double)alloc_ns / kRounds);
    return found.add("free_ns", (double)free_ns / kRounds);
  }
  void set_access(Json* into) {
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const auto set = DRIVER(cuMemPoolSetAccess, "cuMemPoolSetAccess");
    const uint64_t start_ns = now_ns();
    into->add("set_access", name_of(set(pool_, &access, 1)));
    into->add("set_access_us", us_since(start_ns));
  }
  void trim(Json* into) {
    CUdeviceptr at = 0;
    need(
        DRIVER(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync")(&at, 256 * kMiB, pool_, stream_),
        "cuMemAllocFromPoolAsync");
    need(DRIVER(cuMemFreeAsync, "cuMemFreeAsync")(at, stream_), "cuMemFreeAsync");
    need(DRIVER(cuStreamSynchronize, "cuStreamSynchronize")(stream_), "synchronize");
    const auto trim = DRIVER(cuMemPoolTrimTo, "cuMemPoolTrimTo");
    into->add("reserved_before_trim_bytes", reserved());
    uint64_t start_ns = now_ns();
    into->add("trim", name_of(trim(pool_, 0)));
    into->add("trim_us", us_since(start_ns));
    into->add("reserved_after_trim_bytes", reserved());
    start_ns = now_ns();
    need(trim(pool_, 0), "cuMemPoolTrimTo");
    into->add("empty_trim_us", us_since(start_ns));
  }

 private:
  uint64_t reserved() const {
    uint64_t bytes = 0;
    need(DRIVER(cuMemPoolGetAttribute, "cuMemPoolGetAttribute")(
             pool_, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes),
         "cuMemPoolGetAttribute");
    return bytes;
  }

  CUmemoryPool pool_;
  CUstream stream_;
};

Json pools() {
  Json found = event("result");
  found.add("linear_256_kib", told([] { return linear_cost(256 << 10, 200); }));
  found.add("linear_32_mib", told([] { return linear_cost(32 * kMiB, 8); }));
  Pool pool;
  found.add("pool_256_kib", told([&] { return pool.cost(256 << 10); }));
  found.add("pool_32_mib", told([&] { return pool.cost(32 * kMiB); }));
  pool.set_access(&found);
  pool.trim(&found);
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  make_module(argv[1]);
  const std::string action = argv[2];
  event("ready").print();
  while (next_order()) {
    const Json found = told(
        [&] {
          if (action == "costs") return costs();
          return action == "pointers" ? pointers() : pools();
        },
        event("result"));
    found.print();
  }
  return 0;
}
