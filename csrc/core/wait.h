// Futex calls that work across processes and on read-only maps, and the CPU's pause instruction.
#pragma once

#include <atomic>
#include <cstdint>

namespace tandem {

// Returns when `word` no longer holds `expected`, when woken, after timeout_ns, or spuriously.
// True: this thread handled a signal meanwhile; even with SA_RESTART the kernel does not resume a
// timed wait.
bool futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, uint64_t timeout_ns);
void futex_wake_all(const std::atomic<uint32_t>& word);

// The low half of a 64-bit word, which every small change of its value changes, as a futex word.
inline const std::atomic<uint32_t>& low_half(const std::atomic<uint64_t>& word) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  return *reinterpret_cast<const std::atomic<uint32_t>*>(&word);
}

inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tandem
