// What an analysis of a graph finds, as Python sees it.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>

namespace tandem::bindings {

struct NextUse {
  uint64_t node;
  uint64_t address;
  uint64_t bytes;
  std::optional<uint64_t> next;
  std::optional<uint64_t> distance_nodes;
  std::optional<uint64_t> distance_ns;
  bool is_bound;
};

// Binds Gap, Wait and the like; call before binding anything that returns them.
void add_findings(pybind11::module_& module);

}  // namespace tandem::bindings
