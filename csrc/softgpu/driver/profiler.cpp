// Starts and stops a profiler. None is attached, so this changes nothing.
#include "api.h"

using namespace softgpu;

SOFTGPU_API cuProfilerStart() {
  const Call call(Call::kContext);
  return call.error;
}

SOFTGPU_API cuProfilerStop() {
  const Call call(Call::kContext);
  return call.error;
}
