#include "flow.h"

#include <algorithm>

namespace softgpu::ptx {
namespace {

// Finds post-dominators with the iterative algorithm of Cooper, Harvey and Kennedy, on basic
// blocks, backwards from the end. Blocks are numbered in the order in which they begin; the end is
// one more.
class PostDominators {
 public:
  explicit PostDominators(const Function& function) : function_(function) {
    find_blocks();
    find_edges();
    order_from_end();
    iterate();
  }

  // The first instruction of the block that every path from the end of `at`'s block passes through.
  uint32_t after(uint32_t at) const {
    const uint32_t up = dominator_[block_of_[at]];
    return up == kUnknown || up == end_ ? static_cast<uint32_t>(function_.code.size()) - 1
                                        : begins_[up];
  }

 private:
  static constexpr uint32_t kUnknown = UINT32_MAX;

  template <class Visit>
  void each_target(const Instr& in, Visit visit) const {
    if (in.flow == Flow::kBranch) visit(in.target);
    if (in.flow != Flow::kBranchIndexed) return;
    const uint32_t* targets = function_.extra.data() + in.extra;
    for (uint32_t i = 1; i <= targets[0]; ++i) visit(targets[i]);
  }

  static bool ends_block(const Instr& in) {
    return in.flow == Flow::kBranch || in.flow == Flow::kBranchIndexed ||
           in.flow == Flow::kReturn || in.flow == Flow::kExit || in.flow == Flow::kTrap;
  }

  void find_blocks() {
    const auto& code = function_.code;
    std::vector<bool> begins(code.size() + 1, false);
    begins[0] = true;
    for (size_t i = 0; i < code.size(); ++i) {
      if (!ends_block(code[i])) continue;
      begins[i + 1] = true;
      each_target(code[i], [&](uint32_t target) { begins[target] = true; });
    }
    block_of_.resize(code.size());
    for (uint32_t i = 0; i < code.size(); ++i) {
      if (begins[i]) begins_.push_back(i);
      block_of_[i] = static_cast<uint32_t>(begins_.size()) - 1;
    }
    end_ = static_cast<uint32_t>(begins_.size());
  }

  void find_edges() {
    next_.resize(end_ + 1);
    before_.resize(end_ + 1);
    const auto& code = function_.code;
    for (uint32_t block = 0; block < end_; ++block) {
      const size_t last = (block + 1 < end_ ? begins_[block + 1] : code.size()) - 1;
      const Instr& in = code[last];
      const auto add = [&](uint32_t to) {
        next_[block].push_back(to);
        before_[to].push_back(block);
      };
      each_target(in, [&](uint32_t target) { add(block_of_[target]); });
      const bool leaves =
          ends_block(in) && in.flow != Flow::kBranch && in.flow != Flow::kBranchIndexed;
      if (leaves) add(end_);
      const bool goes_on = !ends_block(in) || in.guard != kNoSlot;
      if (goes_on && block + 1 < end_) add(block + 1);
    }
  }

  // Post-order of the reversed graph, without recursion since code can be long.
  void order_from_end() {
    position_.assign(end_ + 1, kUnknown);
    std::vector<std::pair<uint32_t, size_t>> stack{{end_, 0}};
    std::vector<bool> seen(end_ + 1, false);
    seen[end_] = true;
    while (!stack.empty()) {
      auto& [block, edge] = stack.back();
      if (edge < before_[block].size()) {
        const uint32_t to = before_[block][edge++];
        if (!seen[to]) {
          seen[to] = true;
          stack.emplace_back(to, 0);
        }
        continue;
      }
      position_[block] = static_cast<uint32_t>(order_.size());
      order_.push_back(block);
      stack.pop_back();
    }
    std::reverse(order_.begin(), order_.end());
  }

  uint32_t meet(uint32_t a, uint32_t b) const {
    while (a != b) {
      while (position_[a] < position_[b]) a = dominator_[a];
      while (position_[b] < position_[a]) b = dominator_[b];
    }
    return a;
  }

  void iterate() {
    dominator_.assign(end_ + 1, kUnknown);
    dominator_[end_] = end_;
    for (bool changed = true; changed;) {
      changed = false;
      for (const uint32_t block : order_) {
        if (block == end_) continue;
        uint32_t found = kUnknown;
        for (const uint32_t to : next_[block]) {
          if (position_[to] == kUnknown || dominator_[to] == kUnknown) continue;
          found = found == kUnknown ? to : meet(found, to);
        }
        if (found == dominator_[block]) continue;
        dominator_[block] = found;
        changed = true;
      }
    }
  }

  const Function& function_;
  uint32_t end_ = 0;
  std::vector<uint32_t> begins_, block_of_, order_, position_, dominator_;
  std::vector<std::vector<uint32_t>> next_, before_;
};

}  // namespace

void find_reconvergence(Function& function) {
  const bool has_branch = std::any_of(
      function.code.begin(), function.code.end(),
      [](const Instr& in) { return in.flow == Flow::kBranch || in.flow == Flow::kBranchIndexed; });
  if (!has_branch) return;
  const PostDominators found(function);
  for (uint32_t i = 0; i < function.code.size(); ++i) {
    Instr& in = function.code[i];
    if (in.flow == Flow::kBranch || in.flow == Flow::kBranchIndexed) in.reconverge = found.after(i);
  }
}

}  // namespace softgpu::ptx
