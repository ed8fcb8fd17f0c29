// Examines sets of SMs: which SMs are in them, and when they run kernels. Prints `ready`, then
// performs the action for each line on stdin.
//
//   sm_sets IMAGE split                  how the SMs of the device can be divided
//   sm_sets IMAGE ids                    the SMs that each group of the smallest split runs on
//   sm_sets IMAGE seen                   the SMs that a process has without sets
//   sm_sets IMAGE overlap HALF RUN_NS    when kernels ran on a half of the groups; HALF: 0, 1 or all
//   sm_sets IMAGE full HALF ROUNDS       how long kernels took that keep every thread of a half's SMs busy
#include "device.h"
#include "green.h"

namespace {

Json about_split(unsigned least, unsigned flags) {
  const Split split = split_sms(least, flags);
  Json found;
  found.add("result", name_of(split.result));
  found.add("groups", (uint64_t)split.groups.size());
  found.add("group_sms", (uint64_t)(split.groups.empty() ? 0 : split.groups[0].sm.smCount));
  return found.add("rest_sms", (uint64_t)split.rest_sms);
}

Json split() {
  Json found = event("result");
  found.add("sms", (uint64_t)all_sms().sm.smCount);
  for (const unsigned least : {1, 2, 4, 8, 10, 16, 24, 32, 64, 66})
    found.add(("least_" + std::to_string(least)).c_str(), about_split(least, 0));
  found.add("least_1_uncoscheduled",
            about_split(1, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING));
  found.add("least_1_clusters",
            about_split(1, CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE));
  Split smallest = split_sms(1);
  if (smallest.groups.size() >= 4) {
    // Groups that are not adjacent, which the shim never needs.
    CUdevResource apart[] = {smallest.groups[0], smallest.groups[2]};
    Green green(apart, 2);
    found.add("apart", name_of(green.result));
    green.destroy();
  }
  return found;
}

Json ids(const Kernels& kernels) {
  Split smallest = split_sms(1);
  need(smallest.result, "cuDevSmResourceSplitByCount");
  Where where(kernels);
  Json found = event("result"), lists;
  for (size_t i = 0; i < smallest.groups.size(); i++) {
    Green green(&smallest.groups[i], 1);
    need(green.result, "green context");
    lists.add(std::to_string(i).c_str(), where.run(green.stream));
    green.destroy();
  }
  return found.add("groups", lists);
}

Json seen(const Kernels& kernels) {
  Where where(kernels);
  const int count = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  const std::vector<uint64_t> sms = where.run(nullptr);
  return event("result")
      .add("attribute_sms", (uint64_t)count)
      .add("resource_sms", (uint64_t)all_sms().sm.smCount)
      .add("smallest_groups", (uint64_t)split_sms(1).groups.size())
      .add("seen", (uint64_t)sms.size())
      .add("sms", sms);
}

// Runs kernels one after the other, and reports the spans in which their first block ran.
void overlap(const Kernels& kernels, CUstream stream, unsigned blocks, unsigned long long run_ns) {
  constexpr unsigned kKernels = 20, kMost = 64;
  const CUfunction stamp = kernels.get("stamp");
  CUdeviceptr spans;
  const size_t words = 1 + 2 * kMost;
  check(DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&spans, kKernels * words * 8), "cuMemAlloc");
  check(DRIVER(cuMemsetD8_v2, "cuMemsetD8")(spans, 0, kKernels * words * 8), "cuMemsetD8");
  check(DRIVER(cuCtxSynchronize, "cuCtxSynchronize")(), "cuCtxSynchronize");
  event("ready").print();
  if (!next_order()) return;
  for (unsigned i = 0; i < kKernels; i++) {
    CUdeviceptr own = spans + i * words * 8;
    unsigned most = kMost;
    unsigned long long jump_ns = 20000;
    void* parameters[] = {&own, &most, &run_ns, &jump_ns};
    check(DRIVER(cuLaunchKernel, "cuLaunchKernel")(stamp, blocks, 1, 1, 32, 1, 1, 0, stream,
                                                   parameters, nullptr),
          "launch");
  }
  check(DRIVER(cuStreamSynchronize, "cuStreamSynchronize")(stream), "synchronize");
  std::vector<uint64_t> all(kKernels * words), flat;
  check(DRIVER(cuMemcpyDtoH_v2, "cuMemcpyDtoH")(all.data(), spans, all.size() * 8), "copy");
  for (unsigned i = 0; i < kKernels; i++) {
    const uint64_t* own = &all[i * words];
    flat.insert(flat.end(), own + 1, own + 1 + 2 * std::min<uint64_t>(own[0], kMost));
  }
  event("result").add("kernels", (uint64_t)kKernels).add("spans", flat).print();
}

// Runs compute-bound kernels that have as many threads as the SMs hold at once: on SMs that another
// process uses as well they take twice as long, whatever ids the SMs report. Reports the median of
// those in the middle.
void full(const Kernels& kernels, CUstream stream, unsigned sms, unsigned rounds) {
  constexpr unsigned kKernels = 24, kEnds = 6, kThreads = 256;
  const int most = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  const CUfunction compute = kernels.get("compute");
  const unsigned blocks = sms * (unsigned)most / kThreads;
  CUdeviceptr out;
  check(DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&out, (size_t)blocks * kThreads * 4), "cuMemAlloc");
  std::vector<CUevent> marks(kKernels + 1);
  for (CUevent& mark : marks)
    check(DRIVER(cuEventCreate, "cuEventCreate")(&mark, CU_EVENT_DEFAULT), "cuEventCreate");
  event("ready").print();
  if (!next_order()) return;
  const auto record = DRIVER(cuEventRecord, "cuEventRecord");
  check(record(marks[0], stream), "record");
  for (unsigned i = 0; i < kKernels; i++) {
    void* parameters[] = {&out, &rounds};
    check(DRIVER(cuLaunchKernel, "cuLaunchKernel")(compute, blocks, 1, 1, kThreads, 1, 1, 0, stream,
                                                   parameters, nullptr),
          "launch");
    check(record(marks[i + 1], stream), "record");
  }
  check(DRIVER(cuStreamSynchronize, "cuStreamSynchronize")(stream), "synchronize");
  std::vector<double> took;
  for (unsigned i = kEnds; i < kKernels - kEnds; i++) {
    float ms = 0;
    check(DRIVER(cuEventElapsedTime_v2, "cuEventElapsedTime")(&ms, marks[i], marks[i + 1]),
          "elapsed");
    took.push_back(ms * 1e3);
  }
  event("result").add("sms", (uint64_t)sms).add("kernel_us", median(took)).print();
}

// Calls `act` with a stream on half of the groups, or on all SMs, and with their number of SMs.
template <class Act>
int on_half(const std::string& half, Act act) {
  if (half == "all") {
    CUstream stream;
    check(DRIVER(cuStreamCreate, "cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING), "stream");
    act(stream, all_sms().sm.smCount);
    return 0;
  }
  Split split = split_sms(1);
  const size_t middle = split.groups.size() / 2;
  const size_t first = half == "0" ? 0 : middle;
  if (middle == 0) check(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "two groups");
  Green green(&split.groups[first], (unsigned)middle);
  check(green.result, "green context");
  make_current(green.context);
  act(green.stream, (unsigned)middle * split.groups[first].sm.smCount);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string action = argv[2];
  make_module(argv[1]);
  const Kernels kernels(argv[1]);
  const unsigned long long number = argc == 5 ? strtoull(argv[4], nullptr, 10) : 0;
  if (action == "overlap" && argc == 5) {
    return on_half(argv[3],
                   [&](CUstream stream, unsigned sms) { overlap(kernels, stream, sms, number); });
  }
  if (action == "full" && argc == 5) {
    return on_half(argv[3], [&](CUstream stream, unsigned sms) {
      full(kernels, stream, sms, (unsigned)number);
    });
  }
  event("ready").print();
  while (next_order()) {
    const Json found = told(
        [&] {
          if (action == "split") return split();
          return action == "ids" ? ids(kernels) : seen(kernels);
        },
        event("result"));
    found.print();
  }
  return 0;
}
