// Checks of text that came from another process.
#pragma once

#include <cstddef>

namespace tandem::daemon {

// Bytes of the longest prefix of text[0, bytes) that is valid UTF-8: no surrogates, no overlong
// forms.
size_t valid_utf8_bytes(const char* text, size_t bytes);

// True if text[0, bytes) begins a multi-byte character that its end cuts off.
bool is_cut_character(const char* text, size_t bytes);

}  // namespace tandem::daemon
