// A growing array in memory of its own, since the shim must not use the job's heap. Not locked.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tandem::shim::swap {

template <class T>
class OwnArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  [[nodiscard]] size_t size() const { return size_; }
  T& operator[](size_t index) { return items_[index]; }
  const T& operator[](size_t index) const { return items_[index]; }
  T* begin() { return items_; }
  T* end() { return items_ + size_; }

  // False: no memory, the item is not in the array.
  bool insert(size_t at, const T& item) {
    if (size_ == capacity_ && !grow()) return false;
    std::memmove(items_ + at + 1, items_ + at, (size_ - at) * sizeof(T));
    items_[at] = item;
    ++size_;
    return true;
  }
  bool push(const T& item) { return insert(size_, item); }

  void erase(size_t at) {
    std::memmove(items_ + at, items_ + at + 1, (size_ - at - 1) * sizeof(T));
    --size_;
  }
  void clear() { size_ = 0; }

 private:
  bool grow() {
    const size_t wanted = capacity_ ? 2 * capacity_ : 4096 / sizeof(T) + 1;
    void* at = items_ ? mremap(items_, capacity_ * sizeof(T), wanted * sizeof(T), MREMAP_MAYMOVE)
                      : mmap(nullptr, wanted * sizeof(T), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return false;
    items_ = static_cast<T*>(at);
    capacity_ = wanted;
    return true;
  }

  T* items_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace tandem::shim::swap
