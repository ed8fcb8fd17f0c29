// Times calls of each class on the empty driver, by the driver's own function (`bare`) and by the one a
// program finds, in random order; prints nanoseconds a call, one line a figure.
//
//   calls GROUPS
#include "driver.h"

enum { kGroup = 64, kMaxGroups = 4096, kBytes = 4096, kBatch = 4 };

#define FOR_EACH_CALL(CALL)                                                                      \
  CALL(cuArrayCreate_v2) CALL(cuArrayDestroy) CALL(cuCtxSynchronize) CALL(cuEventQuery)          \
  CALL(cuEventRecord) CALL(cuGraphLaunch) CALL(cuLaunchHostFunc) CALL(cuLaunchKernel)            \
  CALL(cuMemAllocAsync) CALL(cuMemAlloc_v2) CALL(cuMemCreate) CALL(cuMemFreeAsync)               \
  CALL(cuMemFree_v2) CALL(cuMemRelease) CALL(cuMemcpyBatchAsync_v2) CALL(cuMemcpyDtoH_v2)        \
  CALL(cuMemcpyHtoDAsync_v2) CALL(cuMemsetD8Async) CALL(cuStreamBeginCapture_v2)                 \
  CALL(cuStreamEndCapture) CALL(cuStreamQuery) CALL(cuStreamSynchronize) CALL(cuStreamWaitEvent) \
  CALL(cuStreamWriteValue32_v2)

struct Calls {
#define MEMBER(name) decltype(&::name) name;
  FOR_EACH_CALL(MEMBER)
};

static const CUstream kStream = (CUstream)0x2000;
static const CUevent kEvent = (CUevent)0x3000;
static const CUdeviceptr kTo = 0x500000000000, kFrom = 0x500000100000;
static char g_host[kBytes];

// One group of each: `work(i)` makes `calls` of them.
template <class Work>
static double timed(int calls, Work work) {
  const uint64_t start = now_ns();
  for (int i = 0; i < kGroup; i++) work(i);
  return (double)(now_ns() - start) / (calls * kGroup);
}

// What is made is kept for a group, so that its tables fill.
template <class Handle, class Make, class End>
static double pairs(Make make, End end) {
  static Handle made[kGroup];
  const uint64_t start = now_ns();
  for (int i = 0; i < kGroup; i++) check(make(&made[i]), "make");
  for (int i = 0; i < kGroup; i++) check(end(made[i]), "end");
  return (double)(now_ns() - start) / (2 * kGroup);
}

struct Figure {
  const char* name;
  double (*measure)(const Calls&);
};

static double launch(const Calls& c) {
  return timed(1, [&](int) {
    const CUfunction function = (CUfunction)0x4000;
    check(c.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, kStream, nullptr, nullptr), "launch");
  });
}
static double graph(const Calls& c) {
  return timed(1, [&](int) { check(c.cuGraphLaunch((CUgraphExec)0x5000, kStream), "graph"); });
}
static double copy(const Calls& c) {
  return timed(1, [&](int) { check(c.cuMemcpyHtoDAsync_v2(kTo, g_host, kBytes, kStream), "copy"); });
}
static double copy_batch(const Calls& c) {
  static CUdeviceptr to[kBatch] = {kTo}, from[kBatch] = {kFrom};
  static size_t sizes[kBatch] = {kBytes}, first[1] = {0};
  static CUmemcpyAttributes how[1];
  return timed(1, [&](int) {
    check(c.cuMemcpyBatchAsync_v2(to, from, sizes, kBatch, how, first, 1, kStream), "batch");
  });
}
static double copy_now(const Calls& c) {
  return timed(1, [&](int) { check(c.cuMemcpyDtoH_v2(g_host, kFrom, kBytes), "copy"); });
}
static double set(const Calls& c) {
  return timed(1, [&](int) { check(c.cuMemsetD8Async(kTo, 0, kBytes, kStream), "set"); });
}
static double memop(const Calls& c) {
  return timed(1, [&](int) { check(c.cuStreamWriteValue32_v2(kStream, kTo, 1, 0), "write"); });
}
static double host(const Calls& c) {
  const CUhostFn nothing = [](void*) {};
  return timed(1, [&](int) { check(c.cuLaunchHostFunc(kStream, nothing, nullptr), "host"); });
}
static double alloc(const Calls& c) {
  return pairs<CUdeviceptr>([&](CUdeviceptr* p) { return c.cuMemAlloc_v2(p, kBytes); },
                            [&](CUdeviceptr p) { return c.cuMemFree_v2(p); });
}
static double pool(const Calls& c) {
  return pairs<CUdeviceptr>([&](CUdeviceptr* p) { return c.cuMemAllocAsync(p, kBytes, kStream); },
                            [&](CUdeviceptr p) { return c.cuMemFreeAsync(p, kStream); });
}
static double vmm(const Calls& c) {
  static CUmemAllocationProp what;
  what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  using Handle = CUmemGenericAllocationHandle;
  return pairs<Handle>([&](Handle* h) { return c.cuMemCreate(h, 2 << 20, &what, 0); },
                       [&](Handle h) { return c.cuMemRelease(h); });
}
static double array(const Calls& c) {
  static const CUDA_ARRAY_DESCRIPTOR what = {64, 64, CU_AD_FORMAT_FLOAT, 1};
  return pairs<CUarray>([&](CUarray* a) { return c.cuArrayCreate_v2(a, &what); },
                        [&](CUarray a) { return c.cuArrayDestroy(a); });
}
static double event(const Calls& c) {
  return timed(2, [&](int) {
    check(c.cuEventRecord(kEvent, kStream), "record");
    check(c.cuStreamWaitEvent(kStream, kEvent, 0), "wait");
  });
}
static double query(const Calls& c) {
  return timed(2, [&](int) {
    check(c.cuStreamQuery(kStream), "query");
    check(c.cuEventQuery(kEvent), "query");
  });
}
static double sync(const Calls& c) {
  return timed(2, [&](int) {
    check(c.cuStreamSynchronize(kStream), "synchronize");
    check(c.cuCtxSynchronize(), "synchronize");
  });
}
static double capture(const Calls& c) {
  return timed(2, [&](int) {
    CUgraph made;
    check(c.cuStreamBeginCapture_v2(kStream, CU_STREAM_CAPTURE_MODE_RELAXED), "begin");
    check(c.cuStreamEndCapture(kStream, &made), "end");
  });
}

static const Figure kFigures[] = {
    {"launch", launch}, {"graph", graph},   {"copy", copy},       {"copy_batch", copy_batch},
    {"memset", set},    {"memop", memop},   {"host", host},       {"copy_now", copy_now},
    {"alloc", alloc},   {"pool", pool},     {"vmm", vmm},         {"array", array},
    {"event", event},   {"query", query},   {"sync", sync},       {"capture", capture},
};

static void measure(const Figure& figure, const Calls& bare, const Calls& found, int groups) {
  static double bare_ns[kMaxGroups], found_ns[kMaxGroups];
  uint32_t draw = 1;
  (void)figure.measure(bare), (void)figure.measure(found);
  for (int i = 0; i < groups; i++) {
    const bool bare_first = (draw = draw * 1103515245 + 12345) >> 16 & 1;
    if (bare_first) bare_ns[i] = figure.measure(bare);
    found_ns[i] = figure.measure(found);
    if (!bare_first) bare_ns[i] = figure.measure(bare);
  }
  for (int i = 0; i < groups; i++)
    printf("bare_%s %.2f\nfound_%s %.2f\n", figure.name, bare_ns[i], figure.name, found_ns[i]);
}

int main(int argc, char** argv) {
  const int groups = argc == 2 ? atoi(argv[1]) : 0;
  if (groups < 1 || groups > kMaxGroups) return 2;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 1;
#define FOUND(name) (decltype(&::name)) dlsym(driver, #name),
#define DRIVERS_OWN(name) BARE(name, #name),
  check(((decltype(&cuInit))dlsym(driver, "cuInit"))(0), "cuInit");
  const Calls found = {FOR_EACH_CALL(FOUND)};
  const Calls bare = {FOR_EACH_CALL(DRIVERS_OWN)};
  if (found.cuEventRecord == bare.cuEventRecord) return 3;  // no shim: nothing would be measured
  for (const Figure& figure : kFigures) measure(figure, bare, found, groups);
  return 0;
}
