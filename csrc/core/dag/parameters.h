// Which buffers a launch touches, from its sampled parameters.
//
// Every 8-byte word of a parameter, at an offset that is a multiple of 8, that falls into a known
// allocation is taken for a pointer. It is for reading only if the kernel's mangled name, or a declared
// signature, says that the parameter is a pointer to const; of a structure's pointers nothing is known,
// so they may be written. What that leaves open is said:
//
//   kAll      every word that could be an address was found, and what the pointers lead to holds no
//             further ones: these are all the buffers that the launch can touch
//   kDirect   the same of the words; but a parameter points to something that may hold pointers itself,
//             a structure holds one, or the name does not say what is pointed to
//   kUnknown  something that looks like an address is of no known allocation, not all words or
//             parameters were recorded, or they do not fit the name: there may be any number more
//
// Global variables of a module are seen by none of this. They cannot be told from parameters, so a claim
// of independence may rest on kAll only of programs that are known to use none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "dag/allocations.h"
#include "dag/graph.h"
#include "dag/mangled.h"

namespace tandem::dag {

struct Buffer {
  uint64_t address;     // the word itself
  uint64_t bytes;       // from there to the end of its allocation
  uint64_t allocation;  // base of that: a kernel may go back from where it points, too
  uint32_t parameter;   // index
  bool is_const;
};

enum class Coverage : uint8_t { kUnknown, kDirect, kAll };

struct Touched {
  std::vector<Buffer> buffers;  // in the order of the parameters
  Coverage coverage = Coverage::kUnknown;
};

// A launch as it was sampled. `layout` is offset << 32 | bytes of each parameter, `words` the values,
// each parameter from a new word on.
struct LaunchParameters {
  const uint64_t* layout = nullptr;
  size_t count = 0;
  const uint64_t* words = nullptr;
  size_t word_count = 0;
  bool is_cut = false;
};

// `known` is sorted by base, and its members do not overlap. `signature`: what the parameters are, one
// for each; null = not known.
Touched touched_by(const LaunchParameters& launch, const std::vector<ParameterType>* signature,
                   const std::vector<Allocation>& known);

// The signature that a function's name has, for so many parameters; nothing if it does not say.
std::optional<std::vector<ParameterType>> signature_of(std::string_view name, size_t count);

// The same with that of the function's name.
Touched touched_by(const LaunchParameters& launch, std::string_view name,
                   const std::vector<Allocation>& known);

// What that comes to in a graph: every allocation once and whole, by address; it is for reading only if no
// pointer into it says otherwise.
std::vector<Access> accesses_of(const Touched& touched);

}  // namespace tandem::dag
