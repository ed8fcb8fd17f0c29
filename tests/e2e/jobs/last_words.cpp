// A program whose exit handlers still use the GPU, as handlers do that were registered before CUDA
// was first used: last_words reads|frees|leaves
//
// It prints a line once it has its memory and ends when it reads a line. Then it prints what came
// of its last calls: the driver's answers, and how many bytes differ from what was written.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" void softgpu_wait_begin();
extern "C" void softgpu_wait_end();

namespace {

constexpr size_t kBytes = 40 << 20;
const char* g_last = "";
CUcontext g_context;
CUdeviceptr g_memory;

void say_last_words() {
  long wrong = 0;
  std::vector<CUresult> answers = {cuCtxSetCurrent(g_context)};
  if (std::strcmp(g_last, "reads") == 0) {
    std::vector<char> host(kBytes);
    answers.push_back(cuMemcpyDtoH(host.data(), g_memory, kBytes));
    for (const char byte : host) wrong += byte != 7;
  } else if (std::strcmp(g_last, "frees") == 0) {
    answers.push_back(cuMemFree(g_memory));
    answers.push_back(cuDevicePrimaryCtxRelease(0));
  }
  std::printf("[");
  for (const CUresult answer : answers) std::printf("%d, ", answer);
  std::printf("%ld]\n", wrong);
}

}  // namespace

int main(int, char** words) {
  std::atexit(say_last_words);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  g_last = words[1];
  if (cuInit(0) || cuDevicePrimaryCtxRetain(&g_context, 0) || cuCtxSetCurrent(g_context) ||
      cuMemAlloc(&g_memory, kBytes) || cuMemsetD8(g_memory, 7, kBytes) || cuCtxSynchronize()) {
    return 1;
  }
  std::printf("'ready'\n");
  softgpu_wait_begin();  // virtual time passes while it waits
  std::getchar();
  softgpu_wait_end();
  return 0;
}
