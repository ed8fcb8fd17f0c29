#include "dag/parameters.h"

#include <algorithm>
#include <map>

namespace tandem::dag {
namespace {

// Smaller values are numbers: two numbers packed into one word have at least the upper one in the
// upper half. Larger ones lie beyond user space on every platform that CUDA runs on (57 address
// bits).
constexpr uint64_t kLowestAddress = uint64_t{1} << 32;
constexpr uint64_t kHighestAddress = uint64_t{1} << 57;

bool could_be_address(uint64_t word) { return word >= kLowestAddress && word < kHighestAddress; }

void lower(Coverage* coverage, Coverage to) { *coverage = std::min(*coverage, to); }

class Walk {
 public:
  Walk(const std::vector<Allocation>& known, Touched* out) : known_(known), out_(out) {}

  // `type` is null if nothing is known about the parameter.
  void take(uint32_t index, uint32_t bytes, const uint64_t* words, const ParameterType* type) {
    const bool is_pointer = type && type->is_pointer && bytes == 8;
    for (uint32_t at = 0; at < bytes / 8; ++at) {
      const Allocation* found = holding(known_, words[at]);
      if (found) add(index, words[at], *found, is_pointer && type->to_const);
      else if (is_pointer ? words[at] != 0 : could_be_address(words[at]))
        lower(&out_->coverage, Coverage::kUnknown);
      if (found && !(is_pointer && type->to_plain)) lower(&out_->coverage, Coverage::kDirect);
    }
  }

 private:
  void add(uint32_t index, uint64_t address, const Allocation& in, bool is_const) {
    out_->buffers.push_back({address, in.bytes - (address - in.base), in.base, index, is_const});
  }

  const std::vector<Allocation>& known_;
  Touched* out_;
};

}  // namespace

Touched touched_by(const LaunchParameters& launch, const std::vector<ParameterType>* signature,
                   const std::vector<Allocation>& known) {
  Touched touched;
  touched.coverage = launch.is_cut ? Coverage::kUnknown : Coverage::kAll;
  if (signature && signature->size() != launch.count) signature = nullptr;
  Walk walk(known, &touched);
  size_t first = 0;
  for (size_t i = 0; i < launch.count; ++i) {
    const auto bytes = static_cast<uint32_t>(launch.layout[i]);
    const size_t words = (size_t{bytes} + 7) / 8;
    if (words > launch.word_count - first) {
      touched.coverage = Coverage::kUnknown;
      return touched;
    }
    walk.take(static_cast<uint32_t>(i), bytes, launch.words + first,
              signature ? &(*signature)[i] : nullptr);
    first += words;
  }
  if (first != launch.word_count) touched.coverage = Coverage::kUnknown;
  return touched;
}

std::optional<std::vector<ParameterType>> signature_of(std::string_view name, size_t count) {
  std::vector<ParameterType> signature;
  bool is_open = false;
  if (!parameters_in(name, &signature, &is_open)) return std::nullopt;
  // A pack ends the list; the parameters before it are still known.
  if (is_open && signature.size() < count) signature.resize(count);
  return signature;
}

Touched touched_by(const LaunchParameters& launch, std::string_view name,
                   const std::vector<Allocation>& known) {
  const auto signature = signature_of(name, launch.count);
  return touched_by(launch, signature ? &*signature : nullptr, known);
}

std::vector<Access> accesses_of(const Touched& touched) {
  std::map<uint64_t, Access> found;
  for (const Buffer& buffer : touched.buffers) {
    const uint64_t bytes = buffer.bytes + (buffer.address - buffer.allocation);
    const Access whole{buffer.allocation, bytes, true};
    found.try_emplace(buffer.allocation, whole).first->second.is_const &= buffer.is_const;
  }
  std::vector<Access> accesses;
  for (const auto& [base, access] : found) accesses.push_back(access);
  return accesses;
}

}  // namespace tandem::dag
