// Which buffers a launch touches, according to its sampled parameters.
//
// Every aligned 8-byte word of a parameter that falls into a known allocation counts as a pointer.
// It is read-only if the kernel's mangled name, or a declared signature, says that the parameter is
// a pointer to const; nothing is known of pointers inside structures, so they may be written
// through. The coverage says what remains open:
//
//   kAll      every word that could be an address was found, and what the pointers lead to contains
//             no further ones: these are all the buffers that the launch can touch
//   kDirect   the words were found as above, but a parameter points to something that may contain
//             pointers, a structure contains one, or the name does not say what is pointed to
//   kUnknown  something that looks like an address is in no known allocation, some words or
//             parameters were not recorded, or they do not fit the name: any number may be missing
//
// None of this sees global variables of a module. Parameters do not reveal them, so a claim of
// independence may rest on kAll only for programs that are known to use none.
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
  uint64_t allocation;  // its base: a kernel may also go back from where it points
  uint32_t parameter;   // index
  bool is_const;
};

enum class Coverage : uint8_t { kUnknown, kDirect, kAll };

struct Touched {
  std::vector<Buffer> buffers;  // in the order of the parameters
  Coverage coverage = Coverage::kUnknown;
};

// A sampled launch. `layout` is offset << 32 | bytes for each parameter; `words` are the values,
// each parameter starting at a new word.
struct LaunchParameters {
  const uint64_t* layout = nullptr;
  size_t count = 0;
  const uint64_t* words = nullptr;
  size_t word_count = 0;
  bool is_cut = false;
};

// `known` must be sorted by base, without overlaps. `signature` has one type for each parameter;
// null = not known.
Touched touched_by(const LaunchParameters& launch, const std::vector<ParameterType>* signature,
                   const std::vector<Allocation>& known);

// The signature that a function's name tells for `count` parameters; nothing if it does not tell.
std::optional<std::vector<ParameterType>> signature_of(std::string_view name, size_t count);

// Like the above, with the signature from the function's name.
Touched touched_by(const LaunchParameters& launch, std::string_view name,
                   const std::vector<Allocation>& known);

// The accesses for a graph: each allocation once and whole, by address. It is read-only unless a
// pointer into it says otherwise.
std::vector<Access> accesses_of(const Touched& touched);

}  // namespace tandem::dag
