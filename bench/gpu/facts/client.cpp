// A client of MPS, or a process without it, that reports how the driver answers it. Orders on
// stdin:
//
//   work             launch a kernel and wait for it
//   fault            launch a kernel that writes to an unmapped address
//   until MS         repeat `work` until it is refused, at most for MS milliseconds
//   end
#include <string.h>

#include "facts.h"
#include "talk.h"

namespace {

constexpr unsigned long long kNowhere = 8;

class Client {
 public:
  // Initialises the driver and runs a kernel; returns the first error, if any.
  CUresult begin(const char* path) {
    CUresult result = DRIVER(cuInit, "cuInit")(0);
    CUcontext context;
    if (result == CUDA_SUCCESS)
      result = DRIVER(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")(&context, 0);
    if (result == CUDA_SUCCESS) result = DRIVER(cuCtxSetCurrent, "cuCtxSetCurrent")(context);
    CUmodule module;
    if (result == CUDA_SUCCESS) result = DRIVER(cuModuleLoad, "cuModuleLoad")(&module, path);
    const auto find = DRIVER(cuModuleGetFunction, "cuModuleGetFunction");
    if (result == CUDA_SUCCESS) result = find(&nothing_, module, "nothing");
    if (result == CUDA_SUCCESS) result = find(&fill_, module, "fill");
    return result == CUDA_SUCCESS ? work() : result;
  }
  CUresult work() { return run(nothing_, nullptr); }
  CUresult fault() {
    unsigned long long at = kNowhere, count = 1, seed = 1;
    void* parameters[] = {&at, &count, &seed};
    return run(fill_, parameters);
  }

 private:
  CUresult run(CUfunction function, void** parameters) {
    const CUresult result = launch_(function, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr);
    return result == CUDA_SUCCESS ? synchronize_() : result;
  }

  decltype(&cuLaunchKernel) launch_ = DRIVER(cuLaunchKernel, "cuLaunchKernel");
  decltype(&cuCtxSynchronize) synchronize_ = DRIVER(cuCtxSynchronize, "cuCtxSynchronize");
  CUfunction nothing_ = nullptr, fill_ = nullptr;
};

void did(CUresult result, uint64_t since_ns) {
  event("did").add("result", name_of(result)).add("ms", us_since(since_ns) / 1e3).print();
}

CUresult until_refused(Client& client, uint64_t begin_ns, double ms) {
  CUresult result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS && us_since(begin_ns) < ms * 1e3) result = client.work();
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  Client client;
  event("ready").add("result", name_of(client.begin(argv[1]))).print();
  char line[64];
  while (fgets(line, sizeof line, stdin) != nullptr) {
    const uint64_t begin_ns = now_ns();
    double ms = 0;
    if (strcmp(line, "work\n") == 0) {
      did(client.work(), begin_ns);
    } else if (strcmp(line, "fault\n") == 0) {
      did(client.fault(), begin_ns);
    } else if (sscanf(line, "until %lf", &ms) == 1) {
      did(until_refused(client, begin_ns, ms), begin_ns);
    } else {
      break;
    }
  }
  return 0;
}
