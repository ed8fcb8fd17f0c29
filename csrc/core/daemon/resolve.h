// What the launches of a window touch, from the sample that was taken meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dag/graph.h"
#include "dag/mangled.h"
#include "daemon/sample.h"
#include "daemon/window.h"

namespace tandem::daemon {

struct ResolvedLaunch {
  const shm::Record* record = nullptr;  // in the window
  uint32_t number = 0;  // as in the low half of its record's value
  bool is_all = false;  // it touches nothing else (dag/parameters.h: kAll)
  bool is_direct = false;  // it was given no other buffers (kDirect, or kAll)
  std::vector<dag::Access> accesses;
};

// A message with all of them and the records stays below 4 MiB.
inline constexpr size_t kMostAccesses = 65536;

// What the parameters of functions are declared to be, by name.
using Signatures = std::map<std::string, std::vector<dag::ParameterType>>;

// Those of the window that were sampled, in its order, until there are too many accesses. Memory comes
// and goes meanwhile. What is declared wins over what a name says.
std::vector<ResolvedLaunch> resolve(const Window& window, const Sample& sample,
                                    const Signatures& declared = {});

}  // namespace tandem::daemon
