// Times calls of each class on the empty driver, by the driver's own function (`bare`) and by the
// one that a program finds, in random order. Prints nanoseconds per call, one figure per line. On
// each CPU named runs one thread of a common process, or one process: all run the same group of
// calls at the same time, each in a stream of its own. `noise` compares the driver's own launch
// with itself.
//
//   calls GROUPS threads|processes CPU...
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "driver.h"
#include "wait.h"

enum { kGroup = 64, kMaxGroups = 4096, kBytes = 4096, kBatch = 4 };
enum { kMaxWorkers = 16 };  // so many threads have a telemetry ring of their own

// clang-format off
#define FOR_EACH_CALL(CALL)                                                                      \
  CALL(cuArrayCreate_v2) CALL(cuArrayDestroy) CALL(cuCtxSynchronize) CALL(cuEventQuery)          \
  CALL(cuEventRecord) CALL(cuGraphLaunch) CALL(cuLaunchHostFunc) CALL(cuLaunchKernel)            \
  CALL(cuMemAllocAsync) CALL(cuMemAlloc_v2) CALL(cuMemCreate) CALL(cuMemFreeAsync)               \
  CALL(cuMemFree_v2) CALL(cuMemRelease) CALL(cuMemcpyBatchAsync_v2) CALL(cuMemcpyDtoH_v2)        \
  CALL(cuMemcpyHtoDAsync_v2) CALL(cuMemsetD8Async) CALL(cuStreamBeginCapture_v2)                 \
  CALL(cuStreamEndCapture) CALL(cuStreamQuery) CALL(cuStreamSynchronize) CALL(cuStreamWaitEvent) \
  CALL(cuStreamWriteValue32_v2)
// clang-format on

struct Calls {
#define MEMBER(name) decltype(&::name) name;
  FOR_EACH_CALL(MEMBER)
};

static const CUfunction kFunction = (CUfunction)0x4000;
static const CUgraphExec kGraph = (CUgraphExec)0x5000;
static const CUstream kStream = (CUstream)0x1000;
static __thread CUstream t_stream;
static __thread CUevent t_event;
static const CUdeviceptr kTo = 0x500000000000, kFrom = 0x500000100000;
static char g_host[kBytes];

static void meet(void);

// Returns nanoseconds per call in a group of kGroup rounds, where `work(i)` makes `calls` calls.
template <class Work>
static double timed(int calls, Work work) {
  meet();
  const uint64_t start = now_ns();
  for (int i = 0; i < kGroup; i++) work(i);
  return (double)(now_ns() - start) / (calls * kGroup);
}

// The handles are kept for a whole group, so that the shim's tables fill.
template <class Handle, class Make, class End>
static double pairs(Make make, End end) {
  static __thread Handle made[kGroup];
  meet();
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
    check(c.cuLaunchKernel(kFunction, 1, 1, 1, 32, 1, 1, 0, t_stream, nullptr, nullptr), "launch");
  });
}
static double graph(const Calls& c) {
  return timed(1, [&](int) { check(c.cuGraphLaunch(kGraph, t_stream), "graph"); });
}
static double copy(const Calls& c) {
  return timed(1,
               [&](int) { check(c.cuMemcpyHtoDAsync_v2(kTo, g_host, kBytes, t_stream), "copy"); });
}
static double copy_batch(const Calls& c) {
  static CUdeviceptr to[kBatch] = {kTo}, from[kBatch] = {kFrom};
  static size_t sizes[kBatch] = {kBytes}, first[1] = {0};
  static CUmemcpyAttributes how[1];
  return timed(1, [&](int) {
    check(c.cuMemcpyBatchAsync_v2(to, from, sizes, kBatch, how, first, 1, t_stream), "batch");
  });
}
static double copy_now(const Calls& c) {
  return timed(1, [&](int) { check(c.cuMemcpyDtoH_v2(g_host, kFrom, kBytes), "copy"); });
}
static double set(const Calls& c) {
  return timed(1, [&](int) { check(c.cuMemsetD8Async(kTo, 0, kBytes, t_stream), "set"); });
}
static double memop(const Calls& c) {
  return timed(1, [&](int) { check(c.cuStreamWriteValue32_v2(t_stream, kTo, 1, 0), "write"); });
}
static double host(const Calls& c) {
  const CUhostFn nothing = [](void*) {};
  return timed(1, [&](int) { check(c.cuLaunchHostFunc(t_stream, nothing, nullptr), "host"); });
}
static double alloc(const Calls& c) {
  return pairs<CUdeviceptr>([&](CUdeviceptr* p) { return c.cuMemAlloc_v2(p, kBytes); },
                            [&](CUdeviceptr p) { return c.cuMemFree_v2(p); });
}
static double pool(const Calls& c) {
  return pairs<CUdeviceptr>([&](CUdeviceptr* p) { return c.cuMemAllocAsync(p, kBytes, t_stream); },
                            [&](CUdeviceptr p) { return c.cuMemFreeAsync(p, t_stream); });
}
static double vmm(const Calls& c) {
  static __thread CUmemAllocationProp what;
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
    check(c.cuEventRecord(t_event, t_stream), "record");
    check(c.cuStreamWaitEvent(t_stream, t_event, 0), "wait");
  });
}
static double query(const Calls& c) {
  return timed(2, [&](int) {
    check(c.cuStreamQuery(t_stream), "query");
    check(c.cuEventQuery(t_event), "query");
  });
}
static double sync(const Calls& c) {
  return timed(2, [&](int) {
    check(c.cuStreamSynchronize(t_stream), "synchronize");
    check(c.cuCtxSynchronize(), "synchronize");
  });
}
static double capture(const Calls& c) {
  return timed(2, [&](int) {
    CUgraph made;
    check(c.cuStreamBeginCapture_v2(t_stream, CU_STREAM_CAPTURE_MODE_RELAXED), "begin");
    check(c.cuStreamEndCapture(t_stream, &made), "end");
  });
}

static const Figure kFigures[] = {
    {"launch", launch}, {"graph", graph}, {"copy", copy}, {"copy_batch", copy_batch},
    {"memset", set},    {"memop", memop}, {"host", host}, {"copy_now", copy_now},
    {"alloc", alloc},   {"pool", pool},   {"vmm", vmm},   {"array", array},
    {"event", event},   {"query", query}, {"sync", sync}, {"capture", capture},
    {"noise", launch},
};
enum { kFigureCount = sizeof(kFigures) / sizeof(kFigures[0]), kNoise = kFigureCount - 1 };

// One worker's figures: of every group, bare and found.
struct Measured {
  double bare_ns[kMaxGroups], found_ns[kMaxGroups];
};
struct Worker {
  int cpu;
  Measured measured[kFigureCount];
};
// In memory that processes share, too.
struct Stage {
  std::atomic<int> arrived, round;
  int workers;
  Worker worker[kMaxWorkers];
};
static Stage* g_stage;
static Calls g_bare, g_found;
static int g_groups;

// The workers wait for each other here before each group. They spin, so that all continue at the
// same moment; one that spins for long yields its CPU, which the worker it waits for may need.
static void meet(void) {
  enum { kPatience = 10000 };
  const int round = g_stage->round.load();
  if (g_stage->arrived.fetch_add(1) + 1 == g_stage->workers) {
    g_stage->arrived.store(0);
    g_stage->round.store(round + 1);
  }
  for (int i = 0; g_stage->round.load() == round; i++) {
    if (i > kPatience) sched_yield();
    else tandem::cpu_pause();
  }
}

// All workers draw the same numbers, so that they measure the same thing at the same time.
static void measure(const Figure& figure, const Calls& found, Measured* measured) {
  uint32_t draw = 1;
  (void)figure.measure(g_bare), (void)figure.measure(found);
  for (int i = 0; i < g_groups; i++) {
    const bool bare_first = (draw = draw * 1103515245 + 12345) >> 16 & 1;
    if (bare_first) measured->bare_ns[i] = figure.measure(g_bare);
    measured->found_ns[i] = figure.measure(found);
    if (!bare_first) measured->bare_ns[i] = figure.measure(g_bare);
  }
}

static void* work(void* argument) {
  Worker* worker = (Worker*)argument;
  const uintptr_t index = (uintptr_t)(worker - g_stage->worker);
  stay_on(worker->cpu);
  t_stream = (CUstream)(0x2000 + 0x100 * index);
  t_event = (CUevent)(0x100000 + 0x100 * index);
  for (int i = 0; i < kFigureCount; i++)
    measure(kFigures[i], i == kNoise ? g_bare : g_found, &worker->measured[i]);
  return nullptr;
}

static void find_calls(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) exit(1);
#define FOUND(name) (decltype(&::name))dlsym(driver, #name),
#define DRIVERS_OWN(name) BARE(name, #name),
  check(((decltype(&cuInit))dlsym(driver, "cuInit"))(0), "cuInit");
  g_found = {FOR_EACH_CALL(FOUND)};
  g_bare = {FOR_EACH_CALL(DRIVERS_OWN)};
  if (g_found.cuEventRecord == g_bare.cuEventRecord) exit(3);  // no shim: nothing would be measured
}

// Attaches, and gives the shim's helper thread time to read its first measurements, both before any
// thread is bound to a CPU.
static void warm_up(void) {
  enum { kRounds = 20, kPauseUs = 500 };
  for (int i = 0; i < kRounds; i++) {
    check(g_found.cuLaunchKernel(kFunction, 1, 1, 1, 32, 1, 1, 0, kStream, nullptr, nullptr),
          "launch");
    check(g_found.cuGraphLaunch(kGraph, kStream), "graph");
    usleep(kPauseUs);
  }
}

static void run_threads(void) {
  find_calls();
  warm_up();
  pthread_t threads[kMaxWorkers];
  for (int i = 0; i < g_stage->workers; i++) {
    if (pthread_create(&threads[i], nullptr, work, &g_stage->worker[i]) != 0) exit(1);
  }
  for (int i = 0; i < g_stage->workers; i++) pthread_join(threads[i], nullptr);
}

static void run_processes(void) {
  for (int i = 0; i < g_stage->workers; i++) {
    const pid_t child = fork();
    if (child < 0) exit(1);
    if (child > 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // it may be waiting for a worker that never arrives
    find_calls();
    warm_up();
    work(&g_stage->worker[i]);
    _exit(0);
  }
  for (int i = 0; i < g_stage->workers; i++) {
    int status = 0;
    if (wait(&status) < 0 || status != 0) exit(1);
  }
}

static void print(const Worker& worker) {
  for (int f = 0; f < kFigureCount; f++) {
    const Measured& measured = worker.measured[f];
    for (int i = 0; i < g_groups; i++)
      printf("bare_%s %.2f\nfound_%s %.2f\n", kFigures[f].name, measured.bare_ns[i],
             kFigures[f].name, measured.found_ns[i]);
  }
}

int main(int argc, char** argv) {
  g_groups = argc > 3 ? atoi(argv[1]) : 0;
  const int workers = argc - 3;
  if (g_groups < 1 || g_groups > kMaxGroups || workers > kMaxWorkers) return 2;
  void* shared =
      mmap(nullptr, sizeof(Stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  g_stage = (Stage*)shared;
  g_stage->workers = workers;
  for (int i = 0; i < workers; i++) g_stage->worker[i].cpu = atoi(argv[3 + i]);
  if (strcmp(argv[2], "processes") == 0) run_processes();
  else run_threads();
  for (int i = 0; i < workers; i++) print(g_stage->worker[i]);
  return 0;
}
