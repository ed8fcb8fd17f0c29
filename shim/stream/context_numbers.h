// A number for each context the process has had, for records: handles come back, numbers do not.
#pragma once

#include <cstdint>

namespace tandem::shim {

// From 1 on; 0 for no context, and for those beyond the 64th at a time. Takes a lock the first time it
// sees a context only.
uint32_t context_number(uint64_t context);

// The context is destroyed: its handle may be another one's next.
void forget_context_number(uint64_t context);

void reset_context_numbers();  // in a forked child

}  // namespace tandem::shim
