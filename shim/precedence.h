// Two copies of this library may be in one process: that of /etc/ld.so.preload, and the one that
// `tandem run` names. They would both count each allocation and wait at each launch, and the daemon
// would have the process twice. So all but the first in the order of look-up step aside.
#pragma once

namespace tandem::shim {

// Whether another one is before us. Never changes; any thread may ask.
bool comes_second();

}  // namespace tandem::shim
