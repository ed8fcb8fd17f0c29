#pragma once

namespace tandem::shim {

// Once per process. A forked child drops the channel and attaches on its own at its first call that
// needs a context.
void watch_forks();

}  // namespace tandem::shim
