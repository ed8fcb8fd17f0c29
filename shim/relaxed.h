// Runs the shim's own driver calls under the RELAXED capture mode, so that none of them can
// invalidate a capture that the job has in progress.
#pragma once

#include "driver.h"

namespace tandem::shim {

class RelaxedCapture {
 public:
  RelaxedCapture() { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() {
    if (g_driver.cuThreadExchangeStreamCaptureMode)
      g_driver.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace tandem::shim
