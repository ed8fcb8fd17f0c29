// What the launches of a window touch, according to the sample taken meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/sample.h"
#include "daemon/window.h"
#include "dag/graph.h"
#include "dag/mangled.h"

namespace tandem::daemon {

struct ResolvedLaunch {
  const shm::Record* record = nullptr;  // in the window
  uint32_t number = 0;                  // as in the low half of its record's value
  bool is_all = false;                  // it touches nothing else (dag/parameters.h: kAll)
  bool is_direct = false;               // no other buffers were passed to it (kDirect, or kAll)
  std::vector<dag::Access> accesses;
};

// A message with this many accesses and all records stays below 4 MiB.
inline constexpr size_t kMostAccesses = 65536;

// The declared parameter types of functions, by name.
using Signatures = std::map<std::string, std::vector<dag::ParameterType>>;

// Resolves the sampled launches of the window, in its order, until there are too many accesses.
// Follows allocations and frees on the way. Declared types take precedence over what a function's
// name says.
std::vector<ResolvedLaunch> resolve(const Window& window, const Sample& sample,
                                    const Signatures& declared = {});

}  // namespace tandem::daemon
