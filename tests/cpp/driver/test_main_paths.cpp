// What nearly every program does with the driver, on both clocks. This is for the sanitizers; the
// conformance tests check the results.
#include <thread>

#include "client.h"
#include "softgpu_hooks.h"

using client::Device;
using client::Gpu;

namespace {

constexpr CUmemAccessDesc kFirstDevice{{CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                       CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

CUmemAllocationProp on_first_device() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = kFirstDevice.location;
  return prop;
}

void on_both_clocks(void (*body)()) {
  client::run(Device{"virtual", "1"}, body);
  client::run(Device{"real", "1"}, body);
}

void copy_and_compute() {
  const Gpu gpu;
  constexpr size_t kCount = 10'000;
  std::vector<unsigned> numbers(kCount), back(kCount);
  for (size_t i = 0; i < kCount; ++i) numbers[i] = static_cast<unsigned>(i);
  CUdeviceptr one = 0, two = 0;
  size_t pitch = 0;
  OK(cuMemAlloc(&one, 4 * kCount));
  OK(cuMemAllocPitch(&two, &pitch, 400, 100, 4));
  void* pinned = nullptr;
  OK(cuMemHostAlloc(&pinned, 4 * kCount, 0));
  CUstream stream = nullptr;
  CUevent event = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
  OK(cuMemcpyHtoDAsync(one, numbers.data(), 4 * kCount, stream));
  gpu.launch(one, 3, 7, stream);
  OK(cuEventRecord(event, stream));
  OK(cuMemcpyDtoHAsync(pinned, one, 4 * kCount, stream));
  OK(cuEventSynchronize(event));
  OK(cuStreamSynchronize(stream));
  CHECK_EQ(static_cast<unsigned*>(pinned)[0], 7u);
  CHECK_EQ(static_cast<unsigned*>(pinned)[kCount - 1], kCount - 1);
  CUDA_MEMCPY2D box{};
  box.srcMemoryType = CU_MEMORYTYPE_HOST, box.srcHost = numbers.data(), box.srcPitch = 400;
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE, box.dstDevice = two, box.dstPitch = pitch;
  box.WidthInBytes = 400, box.Height = 100;
  OK(cuMemcpy2D(&box));
  OK(cuMemsetD2D32(two, pitch, 5, 1, 100));
  CHECK_EQ(Gpu::read(two + pitch), 5u);
  CHECK_EQ(Gpu::read(two + pitch + 4), 101u);
  OK(cuMemcpyDtoH(back.data(), one, 4 * kCount));
  CHECK_EQ(back[1], 1u);
  CHECK_EQ(+cuMemcpyDtoH(back.data(), one + 4, 4 * kCount), +CUDA_ERROR_INVALID_VALUE);
  OK(cuEventDestroy(event));
  OK(cuStreamDestroy(stream));
  OK(cuMemFreeHost(pinned));
  OK(cuMemFree(two));
  OK(cuMemFree(one));
  OK(cuModuleUnload(gpu.module));
  OK(cuDevicePrimaryCtxRelease(0));
}

void many_threads() {
  const Gpu gpu;
  constexpr unsigned kThreads = 4, kLaunches = 200;
  CUdeviceptr words[kThreads];
  for (CUdeviceptr& word : words) word = Gpu::word(0);
  std::vector<std::thread> threads;
  for (const CUdeviceptr word : words) {
    threads.emplace_back([&gpu, word] {
      OK(cuCtxSetCurrent(gpu.context));
      CUstream stream = nullptr;
      CUevent event = nullptr;
      OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
      OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
      for (unsigned i = 0; i < kLaunches; ++i) {
        gpu.launch(word, 1, 1, stream);
        if (i % 16 == 0) OK(cuEventRecord(event, stream));
        if (i % 64 == 0) OK(cuEventSynchronize(event));
        CUdeviceptr other = 0;
        OK(cuMemAlloc(&other, 1 << 16));
        OK(cuMemFree(other));
      }
      OK(cuStreamSynchronize(stream));
      OK(cuStreamDestroy(stream));
      OK(cuEventDestroy(event));
    });
  }
  softgpu_wait_begin();  // virtual time passes meanwhile
  for (std::thread& thread : threads) thread.join();
  softgpu_wait_end();
  for (const CUdeviceptr word : words) CHECK_EQ(Gpu::read(word), kLaunches);
}

void capture_and_launch() {
  const Gpu gpu;
  const CUdeviceptr word = Gpu::word(1);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUdeviceptr scratch = 0;
  OK(cuMemAllocAsync(&scratch, 4096, stream));
  OK(cuMemcpyDtoDAsync(scratch, word, 4, stream));
  gpu.launch(scratch, 2, 3, stream);
  OK(cuMemcpyDtoDAsync(word, scratch, 4, stream));
  OK(cuMemFreeAsync(scratch, stream));
  unsigned calls = 0;
  OK(cuLaunchHostFunc(stream, [](void* count) { ++*static_cast<unsigned*>(count); }, &calls));
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(stream, &graph));
  CUgraphExec executable = nullptr;
  OK(cuGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 10; ++i) OK(cuGraphLaunch(executable, stream));
  OK(cuStreamSynchronize(stream));
  CHECK_EQ(Gpu::read(word), 4 * 1024 - 3u);
  CHECK_EQ(calls, 10u);
  OK(cuGraphExecDestroy(executable));
  OK(cuGraphDestroy(graph));
}

void allocate_in_order() {
  const Gpu gpu;
  CUstream streams[2];
  for (CUstream& stream : streams) OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int round = 0; round < 50; ++round) {
    CUdeviceptr words[2];
    for (int i = 0; i < 2; ++i) {
      OK(cuMemAllocAsync(&words[i], size_t{1} << (10 + round % 12), streams[i]));
      OK(cuMemsetD32Async(words[i], 3, 1, streams[i]));
      gpu.launch(words[i], 5, 1, streams[i]);
    }
    OK(cuCtxSynchronize());
    for (int i = 0; i < 2; ++i) {
      CHECK_EQ(Gpu::read(words[i]), 16u);
      OK(cuMemFreeAsync(words[i], streams[1 - i]));
    }
  }
  OK(cuCtxSynchronize());
  CUmemoryPool pool = nullptr;
  OK(cuDeviceGetDefaultMemPool(&pool, 0));
  OK(cuMemPoolTrimTo(pool, 0));
}

void map_memory() {
  const Gpu gpu;
  const CUmemAllocationProp prop = on_first_device();
  size_t size = 0;
  OK(cuMemGetAllocationGranularity(&size, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle memory = 0;
  OK(cuMemAddressReserve(&at, 2 * size, 0, 0, 0));
  OK(cuMemCreate(&memory, size, &prop, 0));
  for (const CUdeviceptr where : {at, at + size}) {
    OK(cuMemMap(where, size, 0, memory, 0));
    OK(cuMemSetAccess(where, size, &kFirstDevice, 1));
  }
  OK(cuMemRelease(memory));
  OK(cuMemsetD32(at, 20, 1));
  gpu.launch(at + size, 2, 2);
  CHECK_EQ(Gpu::read(at), 42u);
  OK(cuMemUnmap(at, 2 * size));
  gpu.launch(at, 2, 2);
  CHECK_EQ(+cuCtxSynchronize(), +CUDA_ERROR_ILLEGAL_ADDRESS);
}

void reach_a_peer() {
  const Gpu gpu;
  CUcontext other = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  OK(cuCtxPushCurrent(other));
  const CUdeviceptr word = Gpu::word(20);
  OK(cuCtxPopCurrent(nullptr));
  OK(cuCtxEnablePeerAccess(other, 0));
  gpu.launch(word, 2, 2);
  CHECK_EQ(Gpu::read(word), 42u);
  OK(cuCtxDisablePeerAccess(other));
  gpu.launch(word, 2, 2);
  CHECK_EQ(+cuCtxSynchronize(), +CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace

TEST(memory_is_copied_and_computed_on) { on_both_clocks(copy_and_compute); }
TEST(threads_use_streams_of_their_own) { on_both_clocks(many_threads); }
TEST(graphs_are_captured_and_launched) { on_both_clocks(capture_and_launch); }
TEST(pools_give_memory_in_stream_order) { on_both_clocks(allocate_in_order); }
TEST(memory_is_mapped_twice_and_unmapped) { on_both_clocks(map_memory); }
TEST(a_kernel_reaches_a_peer_or_faults) {
  client::run(Device{"virtual", "2"}, reach_a_peer);
  client::run(Device{"real", "2"}, reach_a_peer);
}

TEST(another_process_opens_memory_by_its_handle) {
  const client::Place place(Device{});
  int handles[2], answers[2];
  CHECK_EQ(pipe(handles), 0);
  CHECK_EQ(pipe(answers), 0);
  const pid_t maker = client::begin([&] {
    const CUdeviceptr word = (static_cast<void>(Gpu()), Gpu::word(20));
    CUipcMemHandle handle;
    OK(cuIpcGetMemHandle(&handle, word));
    CHECK_EQ(write(handles[1], &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
    char byte;
    CHECK_EQ(read(answers[0], &byte, 1), 1);
    CHECK_EQ(Gpu::read(word), 42u);
  });
  const pid_t opener = client::begin([&] {
    const Gpu gpu;
    CUipcMemHandle handle;
    CHECK_EQ(read(handles[0], &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
    CUdeviceptr word = 0;
    OK(cuIpcOpenMemHandle(&word, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    gpu.launch(word, 2, 2);
    OK(cuCtxSynchronize());
    OK(cuIpcCloseMemHandle(word));
    CHECK_EQ(write(answers[1], "", 1), 1);
  });
  client::end(opener);
  client::end(maker);
}
