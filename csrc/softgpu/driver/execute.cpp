#include "execute.h"

#include <setjmp.h>
#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "ptx_kernels.h"

namespace softgpu {
namespace {

// A body that touches a page it has no right to gets an error, as a kernel on a GPU does. The
// program's own faults are passed on to the handler that was there before.
thread_local sigjmp_buf* t_guard = nullptr;
struct sigaction g_previous_segv, g_previous_bus;

void on_fault(int signal_number, siginfo_t* info, void* context) {
  if (t_guard) siglongjmp(*t_guard, 1);
  const struct sigaction& previous = signal_number == SIGBUS ? g_previous_bus : g_previous_segv;
  if (previous.sa_flags & SA_SIGINFO) {
    previous.sa_sigaction(signal_number, info, context);
  } else if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN) {
    // Returning repeats the access, now with the default action.
    sigaction(signal_number, &previous, nullptr);
  } else {
    previous.sa_handler(signal_number);
  }
}

void watch_faults() {
  // Checked every time: a program (faulthandler) may have replaced this handler by its own.
  struct sigaction now;
  sigaction(SIGSEGV, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault) return;
  struct sigaction ours{};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &ours, &g_previous_segv);
  sigaction(SIGBUS, &ours, &g_previous_bus);
}

template <class Body>
CUresult guarded(Body body) {
  watch_faults();
  sigjmp_buf guard;
  // The signal mask need not be saved: handlers of synchronous faults leave it unchanged
  // (SA_NODEFER).
  if (sigsetjmp(guard, 0) != 0) {
    t_guard = nullptr;
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  t_guard = &guard;
  // The compiler cannot know that the handler may leave a body, even one that only copies.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  body();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  t_guard = nullptr;
  return CUDA_SUCCESS;
}

bool holds(uint64_t now, uint64_t wanted, unsigned flags, size_t bytes) {
  const uint64_t mask = bytes == 4 ? UINT32_MAX : UINT64_MAX;
  now &= mask;
  wanted &= mask;
  switch (flags & 3U) {
    case CU_STREAM_WAIT_VALUE_GEQ:  // cyclic, as documented
      return bytes == 4 ? static_cast<int32_t>(now - wanted) >= 0
                        : static_cast<int64_t>(now - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return now == wanted;
    case CU_STREAM_WAIT_VALUE_AND: return (now & wanted) != 0;
    default: return ((now | wanted) ^ mask) != 0;  // NOR
  }
}

}  // namespace

thread_local ExecutingSms t_sms;
thread_local uint64_t t_start_ns;

static CUresult run_ptx(const Work& work) {
  PtxRun run(work, t_sms, t_start_ns);
  CUresult result = CUDA_SUCCESS;
  // The guard may be left in two ways: with the kernel's own error, or through a fault.
  const CUresult fault = guarded([&] { result = run.run(); });
  if (fault) result = fault;
  run.finish(result);
  return result;
}

CUresult run_kernel(const Work& work) {
  if (work.function->ptx) return run_ptx(work);
  char* shared = static_cast<char*>(calloc(1, work.shared_bytes + 64));
  uint32_t status = CUDA_SUCCESS;
  const tandem::KernelLaunch launch{{work.grid[0], work.grid[1], work.grid[2]},
                                    {work.block[0], work.block[1], work.block[2]},
                                    work.payload.data(),
                                    shared,
                                    t_sms.index,
                                    t_sms.count,
                                    work.shared_bytes,
                                    work.cooperative,
                                    {work.cluster[0], work.cluster[1], work.cluster[2]},
                                    &status};
  const CUresult fault = guarded([&] { work.function->entry->run(&launch); });
  free(shared);
  return fault ? fault : static_cast<CUresult>(status);
}

CUresult run_copy(const Work& work) {
  const auto* from = work.source ? static_cast<const char*>(work.source) : work.payload.data();
  return guarded([&] {
    for (size_t slice = 0; slice < work.depth; ++slice) {
      char* to = static_cast<char*>(work.destination) + slice * work.destination_slice;
      const char* rows = from + slice * work.source_slice;
      for (size_t row = 0; row < work.height; ++row) {
        memmove(to + row * work.destination_pitch, rows + row * work.source_pitch, work.bytes);
      }
    }
  });
}

CUresult run_memset(const Work& work) {
  return guarded([&] {
    const size_t width = work.width_or_flags;
    for (size_t row = 0; row < work.height; ++row) {
      char* at = static_cast<char*>(work.destination) + row * work.destination_pitch;
      if (width == 1) {
        memset(at, static_cast<int>(work.value), work.bytes);
      } else {
        for (size_t i = 0; i < work.bytes; i += width) memcpy(at + i, &work.value, width);
      }
    }
  });
}

CUresult run_host_function(const Work& work) {
  work.host_function(work.user);
  return CUDA_SUCCESS;
}

CUresult run_callback(const Work& work) {
  work.callback(work.handle, CUDA_SUCCESS, work.user);
  return CUDA_SUCCESS;
}

CUresult run_write_value(const Work& work) {
  return guarded([&] {
    // Release: pairs with the acquire of a reader on another thread or in another process.
    if (work.bytes == 4) {
      __atomic_store_n(static_cast<uint32_t*>(work.destination), static_cast<uint32_t>(work.value),
                       __ATOMIC_RELEASE);
    } else {
      __atomic_store_n(static_cast<uint64_t*>(work.destination), work.value, __ATOMIC_RELEASE);
    }
  });
}

CUresult run_wait_value(const Work& work) {
  bool satisfied = true;
  const CUresult result = guarded([&] {
    // Acquire: pairs with the release of the thread that writes the word.
    const uint64_t now =
        work.bytes == 4
            ? __atomic_load_n(static_cast<uint32_t*>(work.destination), __ATOMIC_ACQUIRE)
            : __atomic_load_n(static_cast<uint64_t*>(work.destination), __ATOMIC_ACQUIRE);
    satisfied = holds(now, work.value, work.width_or_flags, work.bytes);
  });
  return result || satisfied ? result : CUDA_ERROR_NOT_READY;
}

}  // namespace softgpu
