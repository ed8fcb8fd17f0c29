// Measures how long five kernels take on more and more SMs: medians in us. Starts at a line on
// stdin.
//
//   sm_scaling IMAGE full | dry
#include <random>

#include "green.h"

namespace {

struct Sizes {
  unsigned rounds, copy_mib, chain, steps, matrix;
};
constexpr Sizes kFull = {50000, 1024, 16u << 20, 2000, 2048};
constexpr Sizes kDry = {4, 1, 4096, 16, 64};

CUdeviceptr device_memory(size_t bytes) {
  CUdeviceptr at = 0;
  check(DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&at, bytes), "cuMemAlloc");
  check(DRIVER(cuMemsetD8_v2, "cuMemsetD8")(at, 0, bytes), "cuMemsetD8");
  return at;
}

// Returns one cycle through all indices, in an order that a cache cannot predict.
std::vector<unsigned> one_cycle(unsigned count) {
  std::vector<unsigned> next(count);
  for (unsigned i = 0; i < count; i++) next[i] = i;
  std::minstd_rand chance(7);
  for (unsigned i = count - 1; i > 0; i--) std::swap(next[i], next[chance() % i]);
  return next;
}

class Works {
 public:
  Works(const Kernels& kernels, const Sizes& sizes)
      : sizes_(sizes),
        compute_(kernels.get("compute")),
        copy_(kernels.get("copy_words")),
        chase_(kernels.get("chase")),
        matmul_(kernels.get("matmul")) {
    out_ = device_memory(kManyBlocks * kThreads * 4);
    copy_bytes_ = (size_t)sizes.copy_mib << 20;
    from_ = device_memory(copy_bytes_);
    to_ = device_memory(copy_bytes_);
    chain_ = device_memory((size_t)sizes.chain * 4);
    const std::vector<unsigned> next = one_cycle(sizes.chain);
    check(DRIVER(cuMemcpyHtoD_v2, "cuMemcpyHtoD")(chain_, next.data(), next.size() * 4), "copy");
    for (CUdeviceptr* matrix : {&a_, &b_, &c_})
      *matrix = device_memory((size_t)sizes.matrix * sizes.matrix * 4);
  }

  // The kernels: many blocks bound by compute; bound by memory bandwidth; a grid of less than a
  // wave; bound by memory latency; tiles in shared memory. They run in the stream's context, to
  // which the events belong, too.
  Json times_us(CUcontext context, CUstream stream) {
    Json found;
    make_current(context);
    for (CUevent* event : {&begin_, &end_})
      need(DRIVER(cuEventCreate, "cuEventCreate")(event, CU_EVENT_DEFAULT), "cuEventCreate");
    found.add("compute", median_us(stream, [&] { compute(stream, kManyBlocks); }));
    found.add("copy", median_us(stream, [&] {
                unsigned long long words = copy_bytes_ / 8;
                void* parameters[] = {&from_, &to_, &words};
                launch(copy_, kManyBlocks, 1, kThreads, 1, stream, parameters);
              }));
    found.add("small", median_us(stream, [&] { compute(stream, 32); }));
    found.add("chase", median_us(stream, [&] {
                unsigned count = sizes_.chain, steps = sizes_.steps;
                void* parameters[] = {&chain_, &count, &steps, &out_};
                launch(chase_, 256, 1, 32, 1, stream, parameters);
              }));
    found.add("matmul", median_us(stream, [&] {
                unsigned n = sizes_.matrix;
                void* parameters[] = {&a_, &b_, &c_, &n};
                launch(matmul_, n / 16, n / 16, 16, 16, stream, parameters);
              }));
    return found;
  }

 private:
  static constexpr unsigned kManyBlocks = 4224, kThreads = 256, kRounds = 5;

  void launch(CUfunction function, unsigned x, unsigned y, unsigned threads_x, unsigned threads_y,
              CUstream stream, void** parameters) {
    need(launch_(function, x, y, 1, threads_x, threads_y, 1, 0, stream, parameters, nullptr),
         "cuLaunchKernel");
  }
  void compute(CUstream stream, unsigned blocks) {
    unsigned rounds = sizes_.rounds;
    void* parameters[] = {&out_, &rounds};
    launch(compute_, blocks, 1, kThreads, 1, stream, parameters);
  }
  template <class Work>
  double median_us(CUstream stream, Work work) {
    const auto record = DRIVER(cuEventRecord, "cuEventRecord");
    std::vector<double> took;
    work();
    for (unsigned i = 0; i < kRounds; i++) {
      need(record(begin_, stream), "record");
      work();
      need(record(end_, stream), "record");
      need(DRIVER(cuStreamSynchronize, "cuStreamSynchronize")(stream), "synchronize");
      float ms = 0;
      need(DRIVER(cuEventElapsedTime_v2, "cuEventElapsedTime")(&ms, begin_, end_), "elapsed");
      took.push_back(ms * 1e3);
    }
    return median(took);
  }

  Sizes sizes_;
  size_t copy_bytes_ = 0;
  CUfunction compute_, copy_, chase_, matmul_;
  CUdeviceptr out_, from_, to_, chain_, a_, b_, c_;
  CUevent begin_, end_;
  decltype(&cuLaunchKernel) launch_ = DRIVER(cuLaunchKernel, "cuLaunchKernel");
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  make_module(argv[1]);
  const Kernels kernels(argv[1]);
  Works works(kernels, argv[2] == std::string("full") ? kFull : kDry);
  CUcontext primary;
  check(DRIVER(cuCtxGetCurrent, "cuCtxGetCurrent")(&primary), "cuCtxGetCurrent");
  CUstream whole;
  check(DRIVER(cuStreamCreate, "cuStreamCreate")(&whole, CU_STREAM_NON_BLOCKING), "stream");
  event("ready").print();
  if (!next_order()) return 0;
  Json found = event("result"), sms, times;
  for (const unsigned wanted : {8, 16, 32, 64, 96}) {
    const std::string name = "sms_" + std::to_string(wanted);
    Split split = split_sms(wanted, 0, 1);
    if (split.groups.empty()) {
      times.add(name.c_str(), name_of(split.result));
      continue;
    }
    Green green(split.groups.data(), 1);
    sms.add(name.c_str(), (uint64_t)split.groups[0].sm.smCount);
    times.add(name.c_str(), told([&] {
                need(green.result, "green context");
                return works.times_us(green.context, green.stream);
              }));
    make_current(primary);
    green.destroy();
  }
  sms.add("all", (uint64_t)all_sms().sm.smCount);
  times.add("all", told([&] { return works.times_us(primary, whole); }));
  found.add("sms", sms).add("times_us", times).print();
  return 0;
}
