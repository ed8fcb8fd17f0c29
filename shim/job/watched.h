// Tells whether somebody observes this process with a tool that the shim's markers and waits would
// disturb.
#pragma once

namespace tandem::shim {

// A debugger or tracer is attached, or a CUDA profiler was injected. Opens /proc, so call it only
// now and then.
bool is_watched();

}  // namespace tandem::shim
