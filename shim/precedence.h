// Two copies of this library may be in one process: one from /etc/ld.so.preload, and the one that
// `tandem run` names. Both would count each allocation and wait at each launch, and the daemon
// would see the process twice. So all but the first in look-up order step aside.
#pragma once

namespace tandem::shim {

// Whether another copy precedes this one. Never changes; any thread may ask.
bool comes_second();

}  // namespace tandem::shim
