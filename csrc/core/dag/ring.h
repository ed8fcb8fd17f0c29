// A queue whose elements keep their number for good, in the order of arrival, however many have
// left at the front. Elements lie in blocks and never move. Memory is proportional to the elements
// present, plus two blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace tandem::dag {

template <class T>
class Ring {
 public:
  explicit Ring(uint64_t first = 0) : begin_(first), end_(first) {}

  uint64_t begin() const { return begin_; }
  uint64_t end() const { return end_; }
  size_t size() const { return static_cast<size_t>(end_ - begin_); }

  // `number` is that of a present element; its low 32 bits suffice.
  const T& operator[](uint64_t number) const { return block_of(number)[number % kBlock]; }
  T& operator[](uint64_t number) { return block_of(number)[number % kBlock]; }
  T& back() { return (*this)[end_ - 1]; }

  void push(const T& element) {
    if (end_ % kBlock == 0 || blocks_.empty()) add_block();
    (*this)[end_++] = element;
  }

  // Drops the elements before `number`, which is at most end().
  void drop_until(uint64_t number) {
    for (uint64_t block = begin_ / kBlock; block < number / kBlock; ++block)
      spare_ = std::move(blocks_[block & mask()]);
    begin_ = number;
  }

  size_t bytes() const {
    size_t total = blocks_.capacity() * sizeof(Block);
    for (const Block& block : blocks_) total += block ? kBlock * sizeof(T) : 0;
    return total + (spare_ ? kBlock * sizeof(T) : 0);
  }

 private:
  static constexpr size_t kBlock = 1024;
  using Block = std::unique_ptr<T[]>;

  size_t mask() const { return blocks_.size() - 1; }
  T* block_of(uint64_t number) const { return blocks_[(number / kBlock) & mask()].get(); }

  void add_block() {
    const uint64_t used = end_ / kBlock - begin_ / kBlock;
    if (used == blocks_.size()) grow();
    Block& block = blocks_[end_ / kBlock & mask()];
    block = spare_ ? std::move(spare_) : Block(new T[kBlock]);
  }

  void grow() {
    std::vector<Block> moved(blocks_.empty() ? 1 : 2 * blocks_.size());
    for (uint64_t block = begin_ / kBlock; block < end_ / kBlock; ++block)
      moved[block & (moved.size() - 1)] = std::move(blocks_[block & mask()]);
    blocks_ = std::move(moved);
  }

  std::vector<Block> blocks_;  // by number of the block, modulo a power of two
  Block spare_;                // the one dropped last
  uint64_t begin_;
  uint64_t end_;
};

}  // namespace tandem::dag
