// What the process reports about itself: tandem_mark_v1 (tandem_mark.h).
#pragma once

namespace tandem::shim {

void forget_wishes();  // in a forked child

}  // namespace tandem::shim
