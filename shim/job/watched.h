// Whether somebody looks at this process with a tool that our markers and waits would disturb.
#pragma once

namespace tandem::shim {

// A debugger or tracer is attached, or a CUDA profiler was injected. Opens /proc: now and then only.
bool is_watched();

}  // namespace tandem::shim
