// The turn from forward to backward, judged by when memory is allocated and freed.
#pragma once

#include <cstddef>
#include <vector>

#include "dag/split.h"

namespace tandem::dag {

// Nested lifetimes, in launches from the beginning; turn == 0: there are none.
struct Nest {
  size_t turn = 0;  // the launch that most of the memory lives across
  size_t end = 0;   // the launch by which it is freed
};

// Considers memory that is both allocated and freed before launch `limit`. Memory of weights and
// gradients lives longer and says nothing here; neither does memory that lives for a few launches
// only.
Nest nest_of(const std::vector<Item>& items, size_t limit);

}  // namespace tandem::dag
