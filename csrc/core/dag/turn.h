// The turn from forward to backward, judged by which functions are launched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::dag {

// Among functions [0, end), numbered below `kinds`, finds where those before differ most from those
// after; 0 if they differ enough nowhere.
size_t turn_of(const std::vector<uint32_t>& functions, size_t end, size_t kinds);

// True if [turn, end) has as many functions of its own as a backward pass has.
bool is_turn(const std::vector<uint32_t>& functions, size_t turn, size_t end, size_t kinds);

}  // namespace tandem::dag
