// The _ptsz and _ptds names: the plain call, with the per-thread default stream for stream 0.
#include "api.h"

namespace {

class PerThreadDefault {
 public:
  PerThreadDefault() : before_(softgpu::this_thread().per_thread_default) {
    softgpu::this_thread().per_thread_default = true;
  }
  ~PerThreadDefault() { softgpu::this_thread().per_thread_default = before_; }
  PerThreadDefault(const PerThreadDefault&) = delete;
  PerThreadDefault& operator=(const PerThreadDefault&) = delete;

 private:
  bool before_;
};

}  // namespace

#define SOFTGPU_PER_THREAD(plain, name, parameters, arguments) \
  SOFTGPU_API name parameters {                                \
    const PerThreadDefault scope;                              \
    return plain arguments;                                    \
  }
#include "softgpu_per_thread.inc"
