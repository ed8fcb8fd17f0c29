// Gives a number to each context that the process has had, for records: handles are reused, numbers
// are not.
#pragma once

#include <cstdint>

namespace tandem::shim {

// From 1 on; 0 for no context, and for contexts beyond the 64th at a time. Takes a lock only the
// first time that it sees a context.
uint32_t context_number(uint64_t context);

// The context is destroyed: the next context may get its handle.
void forget_context_number(uint64_t context);

void reset_context_numbers();  // in a forked child

}  // namespace tandem::shim
