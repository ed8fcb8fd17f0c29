// Programs of the software GPU inside a test. Each body runs in a process of its own, with a device
// process of the same build, so that the sanitizers see both sides of the socket.
#pragma once

#undef __CUDA_API_VERSION_INTERNAL  // names mean their newest versions, as in programs
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "check.h"

namespace client {

inline void ok(CUresult result, const char* file, int line) {
  if (result == CUDA_SUCCESS) return;
  std::cerr << file << ":" << line << ": CUresult " << static_cast<int>(result) << "\n";
  std::_Exit(1);
}
#define OK(call) client::ok(call, __FILE__, __LINE__)

struct Device {
  const char* clock = "real";
  const char* devices = "1";
};

// A directory with a device, removed at the end of the test.
class Place {
 public:
  explicit Place(const Device& device) {
    char name[] = "/tmp/softgpu-test-XXXXXX";
    path_ = mkdtemp(name);
    const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    setenv("TANDEM_SOFTGPU_BIN", (here.parent_path() / "tandem-softgpu").c_str(), 1);
    setenv("TANDEM_SOFTGPU_DIR", path_.c_str(), 1);
    setenv("TANDEM_SOFTGPU_PROFILE", "tiny", 1);
    setenv("TANDEM_SOFTGPU_CLOCK", device.clock, 1);
    setenv("TANDEM_SOFTGPU_DEVICES", device.devices, 1);
    setenv("TANDEM_SOFTGPU_LINGER_MS", "0", 1);
  }
  // The device removes its own files at the same time, as it ends.
  ~Place() {
    std::error_code failed;
    do {
      std::filesystem::remove_all(path_, failed);
    } while (failed && std::filesystem::exists(path_));
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  std::string path_;
};

template <class Body>
pid_t begin(Body body) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child != 0) return child;
  body();
  std::exit(0);  // runs the sanitizers' final checks
}
inline void end(pid_t child) {
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
}

template <class Body>
void run(const Device& device, Body body) {
  const Place place(device);
  end(begin(body));
}

// x = x * factor + addend in one thread.
inline constexpr char kPtx[] = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry affine(.param .u64 at, .param .u32 factor, .param .u32 addend) {
  .reg .b64 %rd<2>;
  .reg .b32 %r<5>;
  ld.param.u64 %rd0, [at];
  ld.param.u32 %r0, [factor];
  ld.param.u32 %r1, [addend];
  ld.global.u32 %r2, [%rd0];
  mad.lo.u32 %r3, %r2, %r0, %r1;
  st.global.u32 [%rd0], %r3;
  ret;
})";

// The first device's primary context, current, with the kernel loaded.
struct Gpu {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction affine = nullptr;

  Gpu() {
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, kPtx));
    OK(cuModuleGetFunction(&affine, module, "affine"));
  }

  void launch(CUdeviceptr at, unsigned factor, unsigned addend, CUstream stream = nullptr) const {
    void* params[] = {&at, &factor, &addend};
    OK(cuLaunchKernel(affine, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
  }
  static unsigned read(CUdeviceptr at) {
    unsigned value = 0;
    OK(cuMemcpyDtoH(&value, at, sizeof value));
    return value;
  }
  static CUdeviceptr word(unsigned value) {
    CUdeviceptr at = 0;
    OK(cuMemAlloc(&at, sizeof value));
    OK(cuMemcpyHtoD(at, &value, sizeof value));
    return at;
  }
};

}  // namespace client
