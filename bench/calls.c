// Times calls that make the GPU do nothing, on the empty driver, by the driver's own function (`bare`)
// and by the one a program finds, in random order; prints nanoseconds a call, one line a figure.
//
//   calls GROUPS
#include "driver.h"

enum { kGroup = 64, kMaxGroups = 4096 };

struct Calls {
  decltype(&cuMemAlloc_v2) allocate;
  decltype(&cuMemFree_v2) release;
  decltype(&cuEventRecord) record;
  decltype(&cuStreamSynchronize) synchronize;
};

static const CUstream kStream = (CUstream)0x2000;
static const CUevent kEvent = (CUevent)0x3000;

static double allocations(const Calls* calls) {
  static CUdeviceptr address[kGroup];
  const uint64_t start = now_ns();
  for (int i = 0; i < kGroup; i++) check(calls->allocate(&address[i], 4096), "allocate");
  for (int i = 0; i < kGroup; i++) check(calls->release(address[i]), "free");
  return (double)(now_ns() - start) / (2 * kGroup);
}

static double records(const Calls* calls) {
  const uint64_t start = now_ns();
  for (int i = 0; i < kGroup; i++) check(calls->record(kEvent, kStream), "record");
  return (double)(now_ns() - start) / kGroup;
}

static double synchronizations(const Calls* calls) {
  const uint64_t start = now_ns();
  for (int i = 0; i < kGroup; i++) check(calls->synchronize(kStream), "synchronize");
  return (double)(now_ns() - start) / kGroup;
}

static void figures(const char* name, double (*measure)(const Calls*), const Calls* bare,
                    const Calls* found, int groups) {
  static double bare_ns[kMaxGroups], found_ns[kMaxGroups];
  uint32_t draw = 1;
  (void)measure(bare), (void)measure(found);
  for (int i = 0; i < groups; i++) {
    const bool bare_first = (draw = draw * 1103515245 + 12345) >> 16 & 1;
    if (bare_first) bare_ns[i] = measure(bare);
    found_ns[i] = measure(found);
    if (!bare_first) bare_ns[i] = measure(bare);
  }
  for (int i = 0; i < groups; i++)
    printf("bare_%s %.2f\nfound_%s %.2f\n", name, bare_ns[i], name, found_ns[i]);
}

int main(int argc, char** argv) {
  const int groups = argc == 2 ? atoi(argv[1]) : 0;
  if (groups < 1 || groups > kMaxGroups) return 2;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 1;
#define FOUND(name) ((decltype(&name))dlsym(driver, #name))
  check(FOUND(cuInit)(0), "cuInit");
  const Calls found = {FOUND(cuMemAlloc_v2), FOUND(cuMemFree_v2), FOUND(cuEventRecord),
                       FOUND(cuStreamSynchronize)};
  const Calls bare = {BARE(cuMemAlloc_v2, "cuMemAlloc_v2"), BARE(cuMemFree_v2, "cuMemFree_v2"),
                      BARE(cuEventRecord, "cuEventRecord"),
                      BARE(cuStreamSynchronize, "cuStreamSynchronize")};
  if (found.record == bare.record) return 3;  // the shim is not there: nothing would be measured
  figures("alloc_free", allocations, &bare, &found, groups);
  figures("event", records, &bare, &found, groups);
  figures("sync", synchronizations, &bare, &found, groups);
  return 0;
}
