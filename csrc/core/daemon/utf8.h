// Checks of text that came from another process.
#pragma once

#include <cstddef>

namespace tandem::daemon {

// Bytes of the longest valid UTF-8 beginning of text[0, bytes): no surrogates, no overlong forms.
size_t valid_utf8_bytes(const char* text, size_t bytes);

// Does text[0, bytes) begin a multi-byte character that the end cuts off?
bool is_cut_character(const char* text, size_t bytes);

}  // namespace tandem::daemon
