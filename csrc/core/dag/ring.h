// A queue whose elements keep their number for good: 0, 1, 2.. as they come, however many have gone
// at the front. Memory is that of the elements there are, rounded up to a power of two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tandem::dag {

template <class T>
class Ring {
 public:
  uint64_t begin() const { return begin_; }
  uint64_t end() const { return end_; }
  size_t size() const { return static_cast<size_t>(end_ - begin_); }

  // Of an element there is; the low 32 bits of its number will do.
  const T& operator[](uint64_t number) const { return slots_[number & mask()]; }
  T& operator[](uint64_t number) { return slots_[number & mask()]; }
  T& back() { return (*this)[end_ - 1]; }

  void push(const T& element) {
    if (size() == slots_.size()) resize(slots_.empty() ? kFewest : 2 * slots_.size());
    (*this)[end_++] = element;
  }

  // The elements before `number` go; no further than to the end.
  void drop_until(uint64_t number) { begin_ = number; }

  // Gives memory back that was needed for many more.
  void fit() {
    if (slots_.size() > kFewest && size() < slots_.size() / 8) resize(slots_.size() / 4);
  }

  size_t bytes() const { return slots_.capacity() * sizeof(T); }

 private:
  static constexpr size_t kFewest = 64;

  size_t mask() const { return slots_.size() - 1; }

  void resize(size_t count) {
    std::vector<T> moved(count);
    for (uint64_t i = begin_; i < end_; ++i) moved[i & (count - 1)] = (*this)[i];
    slots_ = std::move(moved);
  }

  std::vector<T> slots_;
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
};

}  // namespace tandem::dag
