// Turns a `.cu` file into a kernel library of the software GPU:
//
//   g++ -x c++ -std=c++17 -O2 -shared -fPIC -include tandem_kernel.h vadd.cu -o vadd.so
//
// (-fno-semantic-interposition lets the compiler inline a kernel into the loop over its threads.)
//
// The same file compiles with nvcc or NVRTC; there it needs only
//
//   #ifndef TANDEM_KERNEL
//   #define TANDEM_KERNEL(...)
//   #endif
//
// Register a kernel, with its cost *per block*, by one of
//
//   TANDEM_KERNEL(vadd, flops, bytes)
//   TANDEM_KERNEL(vadd, (const float* a, const float* b, float* c, int n), flops, bytes)
//
// after its definition. The expressions may use blockDim and gridDim and, in the second form, the
// parameters by name (their types must be those of the kernel). Modelled time depends only on these
// two numbers and the device's profile.
//
// For shared memory whose size is known only at launch, use TANDEM_DYNAMIC_SHARED(float, tile); for
// nvcc, #define TANDEM_DYNAMIC_SHARED(type, name) extern __shared__ type name[].
//
// tandem_smid() is the SM that the block runs on; for nvcc, asm("mov.u32 %0, %%smid;" : "=r"(sm)).
//
// For barriers of clusters and of a cooperative grid, #include <cooperative_groups.h>, as with
// nvcc.
//
// tandem_grid.h explains how threads and blocks take turns. Without barriers between blocks, the
// blocks run one after another on one thread of the process, which is why plain `static` storage
// can be __shared__.
#pragma once

#include <dlfcn.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <tuple>
#include <type_traits>
#include <utility>

#define TANDEM_SOFTGPU_HOST 1
#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static
#define __constant__ __attribute__((visibility("default")))
#define __launch_bounds__(...)
#define __restrict__ __restrict

struct tandem_uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
using uint3 = tandem_uint3;

// Thread-local: a launching thread computes costs while another runs a body.
static thread_local tandem_uint3 threadIdx, blockIdx;
static thread_local dim3 blockDim, gridDim;
static constexpr int warpSize = 32;

namespace tandem {

// ABI between a kernel library and libcuda.so.1 of the software GPU. Append only.
inline constexpr uint32_t kKernelAbi = 1;
struct KernelLaunch {
  uint32_t grid[3], block[3];
  const char* params;  // packed as on a device: every parameter at its offset
  char* dynamic_shared;
  const uint32_t* sms;  // the SMs that the launch may use; null: 0 to sm_count - 1
  uint32_t sm_count;
  uint32_t shared_bytes;  // of dynamic_shared
  uint32_t cooperative;   // all blocks run side by side
  uint32_t cluster[3];    // blocks per cluster; 0: each block is a cluster of its own
  uint32_t* status;       // how the launch ended: a CUresult
};
struct alignas(64) KernelEntry {  // 64: the linker lays entries end to end, without gaps
  uint32_t abi, param_count;
  const void* function;  // its symbol is the kernel's name
  const uint32_t *param_offset, *param_size;
  void (*run)(const KernelLaunch*);
  void (*cost)(const KernelLaunch*, double* flops_per_block, double* bytes_per_block);
};

static thread_local char* g_dynamic_shared;
static thread_local const uint32_t* g_sms;
static thread_local uint32_t g_sm_count;
static thread_local double g_flops, g_bytes;

}  // namespace tandem

#include "tandem_grid.h"

namespace tandem {

template <class Function>
struct Signature;
template <class... P>
struct Signature<void (*)(P...)> {
  static constexpr uint32_t kCount = sizeof...(P);
  struct Layout {
    uint32_t offset[kCount + 1] = {}, size[kCount + 1] = {};
  };
  static constexpr Layout make_layout() {
    Layout layout;
    constexpr size_t sizes[] = {sizeof(P)..., 0};
    constexpr size_t aligns[] = {alignof(P)..., 1};
    size_t at = 0;
    for (uint32_t i = 0; i < kCount; ++i) {
      at = (at + aligns[i] - 1) / aligns[i] * aligns[i];
      layout.offset[i] = static_cast<uint32_t>(at);
      layout.size[i] = static_cast<uint32_t>(sizes[i]);
      at += sizes[i];
    }
    return layout;
  }
  static constexpr Layout kLayout = make_layout();

  template <class T>
  static T load(const char* from) {
    typename std::remove_const<T>::type value;
    memcpy(&value, from, sizeof value);
    return value;
  }
  template <size_t... I>
  static void call(void (*function)(P...), const char* params, std::index_sequence<I...>) {
    (void)params;
    function(load<P>(params + kLayout.offset[I])...);
  }
  static void call(void (*function)(P...), const char* params) {
    call(function, params, std::index_sequence_for<P...>());
  }
};

inline void place(const KernelLaunch* launch) {
  gridDim = dim3(launch->grid[0], launch->grid[1], launch->grid[2]);
  blockDim = dim3(launch->block[0], launch->block[1], launch->block[2]);
  g_dynamic_shared = launch->dynamic_shared;
  g_sms = launch->sms;
  g_sm_count = launch->sm_count;
}

template <auto kFunction>
struct Kernel {
  using Sig = Signature<decltype(kFunction)>;
  static void thread(const KernelLaunch* launch) { Sig::call(kFunction, launch->params); }
  static void run(const KernelLaunch* launch) {
    place(launch);
    static Grid* spare;
    Grid* grid = spare ? spare : new Grid;
    spare = nullptr;
    *launch->status = grid->run(launch, &Grid::carry<&thread>);
    spare = grid;
  }
};
template <auto kKernel, auto kCost>
void cost(const KernelLaunch* launch, double* flops, double* bytes) {
  place(launch);
  using Declared = Signature<decltype(kCost)>;
  if constexpr (Declared::kCount == 0) {
    kCost();
  } else {
    static_assert(std::is_same<decltype(kKernel), decltype(kCost)>::value,
                  "TANDEM_KERNEL: the parameters must be those of the kernel");
    Declared::call(kCost, launch->params);
  }
  *flops = g_flops;
  *bytes = g_bytes;
}

}  // namespace tandem

// The SM of this block, PTX's %smid: blocks are dealt round-robin to the SMs that the launch may
// use.
static inline uint32_t tandem_smid() {
  if (tandem::g_sm_count == 0) return 0;
  const uint64_t block = blockIdx.x + gridDim.x * (blockIdx.y + uint64_t{gridDim.y} * blockIdx.z);
  const auto nth = static_cast<uint32_t>(block % tandem::g_sm_count);
  return tandem::g_sms ? tandem::g_sms[nth] : nth;
}

static inline void __syncthreads() { tandem::Grid::current()->sync_block(); }
[[noreturn]] static inline void __trap() {
  tandem::Grid::current()->fail(tandem::kLaunchFailed);
  __builtin_unreachable();
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}

// Sets the value that a conditional node of a graph tests.
typedef unsigned long long cudaGraphConditionalHandle;
static inline void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned value) {
  using Set = void (*)(uint64_t, unsigned);
  static const auto set = reinterpret_cast<Set>(
      dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "softgpu_graph_set_conditional"));
  set(handle, value);
}

template <class T>
static inline T atomicAdd(T* at, T value) {
  const T old = *at;
  *at = static_cast<T>(old + value);
  return old;
}
template <class T>
static inline T atomicSub(T* at, T value) {
  const T old = *at;
  *at = static_cast<T>(old - value);
  return old;
}
template <class T>
static inline T atomicMax(T* at, T value) {
  const T old = *at;
  if (value > old) *at = value;
  return old;
}
template <class T>
static inline T atomicMin(T* at, T value) {
  const T old = *at;
  if (value < old) *at = value;
  return old;
}
template <class T>
static inline T atomicExch(T* at, T value) {
  const T old = *at;
  *at = value;
  return old;
}
template <class T>
static inline T atomicCAS(T* at, T expected, T value) {
  const T old = *at;
  if (old == expected) *at = value;
  return old;
}

#define TANDEM_DYNAMIC_SHARED(type, name) \
  type* name = reinterpret_cast<type*>(::tandem::g_dynamic_shared)

#define TANDEM_PASTE_(a, b) a##b
#define TANDEM_PASTE(a, b) TANDEM_PASTE_(a, b)
#define TANDEM_KERNEL_(id, kernel, parameters, flops, bytes)                                       \
  _Pragma("GCC diagnostic push")                                                                   \
      _Pragma("GCC diagnostic ignored \"-Wunused-parameter\"") static void                         \
      TANDEM_PASTE(tandem_cost_, id) parameters {                                                  \
    ::tandem::g_flops = static_cast<double>(flops);                                                \
    ::tandem::g_bytes = static_cast<double>(bytes);                                                \
  }                                                                                                \
  _Pragma("GCC diagnostic pop")                                                                    \
      __attribute__((section(".tandem_kernels"), used)) static ::tandem::KernelEntry TANDEM_PASTE( \
          tandem_entry_, id) = {::tandem::kKernelAbi,                                              \
                                ::tandem::Kernel<&kernel>::Sig::kCount,                            \
                                reinterpret_cast<const void*>(&kernel),                            \
                                ::tandem::Kernel<&kernel>::Sig::kLayout.offset,                    \
                                ::tandem::Kernel<&kernel>::Sig::kLayout.size,                      \
                                &::tandem::Kernel<&kernel>::run,                                   \
                                &::tandem::cost<&kernel, &TANDEM_PASTE(tandem_cost_, id)>};
#define TANDEM_KERNEL_3(kernel, flops, bytes) TANDEM_KERNEL_(__COUNTER__, kernel, (), flops, bytes)
#define TANDEM_KERNEL_4(kernel, parameters, flops, bytes) \
  TANDEM_KERNEL_(__COUNTER__, kernel, parameters, flops, bytes)
#define TANDEM_PICK(a, b, c, d, chosen, ...) chosen
#define TANDEM_KERNEL(...)                                                      \
  TANDEM_PICK(__VA_ARGS__, TANDEM_KERNEL_4, TANDEM_KERNEL_3, unused, unused, 0) \
  (__VA_ARGS__)
