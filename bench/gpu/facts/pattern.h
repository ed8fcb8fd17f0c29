// A pattern of words that kernels of memory.cu write to memory and check.
#pragma once

#include "facts.h"

class Pattern {
 public:
  explicit Pattern(CUmodule module) {
    const auto get = DRIVER(cuModuleGetFunction, "cuModuleGetFunction");
    check(get(&fill_, module, "fill"), "fill");
    check(get(&count_, module, "count_wrong"), "count_wrong");
    check(DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&wrong_, sizeof(unsigned long long)), "cuMemAlloc");
  }
  void write(CUdeviceptr at, size_t bytes) {
    unsigned long long words = bytes / sizeof words;
    void* parameters[] = {&at, &words, &seed_};
    run(fill_, parameters);
  }
  // Returns how many words differ from what `write` left.
  double wrong_words(CUdeviceptr at, size_t bytes) {
    unsigned long long words = bytes / sizeof words, found = 0;
    check(DRIVER(cuMemsetD8_v2, "cuMemsetD8")(wrong_, 0, sizeof found), "cuMemsetD8");
    void* parameters[] = {&at, &words, &seed_, &wrong_};
    run(count_, parameters);
    check(DRIVER(cuMemcpyDtoH_v2, "cuMemcpyDtoH")(&found, wrong_, sizeof found), "cuMemcpyDtoH");
    return (double)found;
  }

 private:
  void run(CUfunction function, void** parameters) {
    check(DRIVER(cuLaunchKernel, "cuLaunchKernel")(function, 1056, 1, 1, 256, 1, 1, 0, nullptr,
                                                   parameters, nullptr),
          "launch");
    check(DRIVER(cuCtxSynchronize, "cuCtxSynchronize")(), "cuCtxSynchronize");
  }

  CUfunction fill_, count_;
  CUdeviceptr wrong_ = 0;
  unsigned long long seed_ = 20;
};
