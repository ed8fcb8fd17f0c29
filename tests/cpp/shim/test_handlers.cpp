#include "handlers.h"

#include <thread>

#include "capture.h"
#include "check.h"
#include "pages.h"
#include "segments.h"
#include "slots.h"

using namespace pages;

namespace {

Channel* managed() {
  make_driver();
  Channel* channel = make_channel();
  g_channel = channel;
  g_seen.gpu_held = true;
  return channel;
}

uint64_t outstanding(const Channel* channel) {
  const shm::Slot& slot = channel->slots[0];
  return slot.open + slot.issued - slot.done;
}

// Returns the last record of the first thread that wrote to this channel.
shm::Record last_record(const Channel* channel) {
  char* page = reinterpret_cast<char*>(channel->state);
  const uint64_t head = reinterpret_cast<shm::RingHeader*>(page + shm::kRingHeadersOffset)->head;
  return reinterpret_cast<shm::Record*>(page + shm::kRingsOffset)[(head - 1) % shm::kRingRecords];
}

}  // namespace

TEST(a_copy_within_the_device_goes_on_after_its_call_and_one_to_the_host_does_not) {
  Channel* channel = managed();
  g_driver.cuMemcpyDtoH_v2 = [](void*, CUdeviceptr, size_t) { return CUDA_SUCCESS; };
  g_driver.cuMemcpyDtoD_v2 = [](CUdeviceptr, CUdeviceptr, size_t) { return CUDA_SUCCESS; };
  handlers::copy_now<cuMemcpyDtoH_v2_call>(static_cast<void*>(nullptr), CUdeviceptr{1}, size_t{64});
  CHECK_EQ(outstanding(channel), 0u);
  handlers::copy_now<cuMemcpyDtoD_v2_call>(CUdeviceptr{1}, CUdeviceptr{2}, size_t{64});
  CHECK_EQ(outstanding(channel), 1u);
  g_channel = nullptr;
}

TEST(only_the_last_release_of_a_primary_context_holds_its_streams_meanwhile) {
  static StreamSlot* slot;
  static bool was_held;
  slot = &managed()->streams[0];
  g_driver.cuMemcpyDtoD_v2 = [](CUdeviceptr, CUdeviceptr, size_t) { return CUDA_SUCCESS; };
  g_driver.cuDevicePrimaryCtxRetain = [](CUcontext*, CUdevice) { return CUDA_SUCCESS; };
  g_driver.cuDevicePrimaryCtxRelease_v2 = [](CUdevice) {
    was_held = !try_own(*slot);
    if (!was_held) disown(*slot);
    return CUDA_SUCCESS;
  };
  g_driver.cuDevicePrimaryCtxGetState = [](CUdevice, unsigned*, int* active) {
    return *active = 1, CUDA_SUCCESS;
  };
  handlers::copy_now<cuMemcpyDtoD_v2_call>(CUdeviceptr{1}, CUdeviceptr{2}, size_t{64});
  for (int i = 0; i < 2; ++i)
    handlers::retain_primary<cuDevicePrimaryCtxRetain_call>(static_cast<CUcontext*>(nullptr), 0);

  handlers::reset_device<cuDevicePrimaryCtxRelease_v2_call>(0);
  CHECK(!was_held);
  handlers::reset_device<cuDevicePrimaryCtxRelease_v2_call>(0);
  CHECK(was_held);
  g_channel = nullptr;
}

TEST(a_copy_that_says_no_direction_is_asked_about_where_it_matters) {
  managed();
  static int asked;
  asked = 0;
  g_driver.cuPointerGetAttributes = [](unsigned, CUpointer_attribute*, void** types,
                                       CUdeviceptr address) {
    ++asked;
    *static_cast<unsigned*>(types[0]) = address < 0x1000 ? 0u : unsigned{CU_MEMORYTYPE_DEVICE};
    return CUDA_SUCCESS;
  };
  g_driver.cuMemcpyAsync = [](CUdeviceptr, CUdeviceptr, size_t, CUstream) { return CUDA_SUCCESS; };
  const auto copy = [](CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    handlers::copy_async<cuMemcpyAsync_call>(to, from, bytes, CUstream{});
  };
  copy(0x2000, 0x3000, 4096);
  CHECK_EQ(asked, 0);
  copy(0x2000, 0x3000, 1 << 20);
  CHECK_EQ(asked, 2);
  CHECK(direction_between(0x2000, 0x3000) == Direction::kWithin);
  CHECK(direction_between(0x2000, 0x10) == Direction::kToDevice);
  CHECK(direction_between(0x10, 0x3000) == Direction::kFromDevice);
  CHECK(direction_between(0x10, 0x20) == Direction::kUnknown);
  g_channel = nullptr;
}

TEST(a_copy_without_a_stream_is_over_unless_its_pointers_are_both_the_devices) {
  Channel* channel = managed();
  g_driver.cuPointerGetAttributes = [](unsigned, CUpointer_attribute*, void** types,
                                       CUdeviceptr address) {
    *static_cast<unsigned*>(types[0]) = address < 0x1000 ? 0u : unsigned{CU_MEMORYTYPE_DEVICE};
    return CUDA_SUCCESS;
  };
  g_driver.cuMemcpy = [](CUdeviceptr, CUdeviceptr, size_t) { return CUDA_SUCCESS; };
  handlers::copy_now<cuMemcpy_call>(CUdeviceptr{0x10}, CUdeviceptr{0x3000}, size_t{1} << 20);
  CHECK_EQ(outstanding(channel), 0u);
  handlers::copy_now<cuMemcpy_call>(CUdeviceptr{0x2000}, CUdeviceptr{0x3000}, size_t{1} << 20);
  CHECK_EQ(outstanding(channel), 1u);
  g_channel = nullptr;
}

TEST(a_list_that_the_driver_refuses_is_not_read) {
  Channel* channel = managed();
  g_driver.cuMemcpyBatchAsync_v2 = [](CUdeviceptr*, CUdeviceptr*, size_t*, size_t,
                                      CUmemcpyAttributes*, size_t*, size_t,
                                      CUstream) { return CUDA_ERROR_INVALID_VALUE; };
  auto* nothing = reinterpret_cast<size_t*>(16);
  auto* none = reinterpret_cast<CUdeviceptr*>(16);
  const CUresult result = handlers::copy_batch<cuMemcpyBatchAsync_v2_call>(
      none, none, nothing, size_t{1} << 40, static_cast<CUmemcpyAttributes*>(nullptr), nothing,
      size_t{1}, CUstream{});
  CHECK(result == CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(outstanding(channel), 0u);
  g_channel = nullptr;
}

TEST(missing_descriptions_are_the_drivers_business) {
  managed();
  g_driver.cuMemcpy2D_v2 = [](const CUDA_MEMCPY2D*) { return CUDA_ERROR_INVALID_VALUE; };
  g_driver.cuLaunchKernelEx = [](const CUlaunchConfig*, CUfunction, void**, void**) {
    return CUDA_ERROR_INVALID_VALUE;
  };
  g_driver.cuGraphInstantiateWithParams = [](CUgraphExec*, CUgraph,
                                             CUDA_GRAPH_INSTANTIATE_PARAMS*) {
    return CUDA_ERROR_INVALID_VALUE;
  };
  const CUDA_MEMCPY2D* none = nullptr;
  CHECK(handlers::copy_now<cuMemcpy2D_v2_call>(none) == CUDA_ERROR_INVALID_VALUE);
  CHECK(handlers::launch_kernel_ex<cuLaunchKernelEx_call>(nullptr, nullptr, nullptr, nullptr) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(handlers::instantiate_graph<cuGraphInstantiateWithParams_call>(nullptr, nullptr, nullptr) ==
        CUDA_ERROR_INVALID_VALUE);
  g_channel = nullptr;
}

TEST(a_launch_on_two_devices_is_counted_on_both) {
  Channel* channel = managed();
  g_driver.cuLaunchCooperativeKernelMultiDevice = [](CUDA_LAUNCH_PARAMS*, unsigned, unsigned) {
    return CUDA_SUCCESS;
  };
  CUDA_LAUNCH_PARAMS launches[2]{};
  launches[0].hStream = as_stream(0x51);
  launches[1].hStream = as_stream(0x52);
  handlers::launch_on_devices<cuLaunchCooperativeKernelMultiDevice_call>(launches, 2, 0);
  CHECK_EQ(slot_end(*channel), 2u);
  CHECK_EQ(channel->streams[0].launches.load(), 1u);
  CHECK_EQ(channel->streams[1].launches.load(), 1u);
  CHECK(!all_idle(*channel));
  g_channel = nullptr;
}

TEST(a_capture_that_another_thread_ends_leaves_this_one_to_the_gate) {
  Channel* channel = managed();
  g_driver.cuMemsetD8Async = [](CUdeviceptr, unsigned char, size_t, CUstream) {
    return CUDA_SUCCESS;
  };
  const auto set = [] {
    handlers::set_async<cuMemsetD8Async_call>(CUdeviceptr{1}, static_cast<unsigned char>(0),
                                              size_t{1}, as_stream(0x51));
  };
  note_capture_begun(0x52);
  command_of(channel).gate.gate = shm::kGateHold;
  command_of(channel).heartbeat.stale_ns = 1;  // nobody opens it: a waiter reports that, goes on
  set();                                       // a capturing thread never waits
  CHECK_EQ(channel->state->control.ungated.load(), 0u);
  std::thread(note_capture_ended, 0x52).join();
  set();
  CHECK_EQ(channel->state->control.ungated.load(), 1u);
  g_channel = nullptr;
}

// Otherwise its record would come after that of the next allocation with the same address.
TEST(a_free_is_stamped_before_the_driver_can_give_its_address_out_anew) {
  Channel* channel = managed();
  static uint64_t freed_at;
  g_driver.cuMemAlloc_v2 = [](CUdeviceptr* address, size_t) {
    *address = 0x7000;
    return CUDA_SUCCESS;
  };
  g_driver.cuMemFree_v2 = [](CUdeviceptr) {
    freed_at = g_clock.ticks();
    return CUDA_SUCCESS;
  };
  CUdeviceptr address = 0;
  handlers::allocate<cuMemAlloc_v2_call>(&address, size_t{4096});
  handlers::release<cuMemFree_v2_call>(address);
  const shm::Record record = last_record(channel);
  CHECK_EQ(record.kind, static_cast<uint8_t>(shm::RecordKind::kFree));
  CHECK_EQ(record.object, 0x7000u);
  CHECK(record.ticks < freed_at);
  g_channel = nullptr;
}
