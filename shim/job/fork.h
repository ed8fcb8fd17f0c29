#pragma once

namespace tandem::shim {

// Once a process: a forked child drops the channel and attaches on its own at its next first call.
void watch_forks();

}  // namespace tandem::shim
