// The turn from forward to backward, from which functions are launched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::dag {

// Of functions [0, end), numbered below `kinds`: where those before differ most from those behind;
// 0: nowhere enough.
size_t turn_of(const std::vector<uint32_t>& functions, size_t end, size_t kinds);

// Are there as many functions of its own behind `turn`, up to `end`, as a backward pass has?
bool is_turn(const std::vector<uint32_t>& functions, size_t turn, size_t end, size_t kinds);

}  // namespace tandem::dag
