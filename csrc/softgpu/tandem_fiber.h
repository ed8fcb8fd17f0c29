// Fibers: the threads of a kernel's block, which take turns on one thread of the process. A switch
// saves only what a called function must preserve. It makes no system call, whereas swapcontext
// makes one for the signal mask at each switch.
//
// On x86-64 and aarch64 a switch is a few instructions. Other architectures, the sanitizers (which
// know ucontext but not this code) and -DTANDEM_UCONTEXT use ucontext.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(TANDEM_UCONTEXT) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    !(defined(__x86_64__) || defined(__aarch64__))
#define TANDEM_FIBER_UCONTEXT 1
#include <ucontext.h>
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif
#endif

namespace tandem {

#ifdef TANDEM_FIBER_UCONTEXT

struct FiberContext {
  ucontext_t context;
#ifdef __SANITIZE_THREAD__
  void* shadow = nullptr;  // the sanitizer's view of the fiber
#endif
};
inline void switch_fiber(FiberContext* from, FiberContext* to) {
#ifdef __SANITIZE_THREAD__
  from->shadow = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to->shadow, 0);
#endif
  swapcontext(&from->context, &to->context);
}
// `entry` starts at the next switch to `fiber` and never returns.
inline void prepare_fiber(FiberContext* fiber, char* stack, size_t bytes, void (*entry)()) {
#ifdef __SANITIZE_THREAD__
  if (fiber->shadow) __tsan_destroy_fiber(fiber->shadow);
  fiber->shadow = __tsan_create_fiber(0);
#endif
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = stack;
  fiber->context.uc_stack.ss_size = bytes;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, entry, 0);
}

#else

struct FiberContext {
  void* stack;  // the saved registers are at its top
};

// Saves the registers on the current stack, stores its top in *from and continues on the other
// stack.
extern "C" void tandem_switch_stack(void** from, void* to);

#if defined(__x86_64__)
// rbx, rbp, r12 to r15, and the control words of both floating-point units.
constexpr size_t kSavedWords = 7;
constexpr size_t kEntryWord = 7;  // the return address
__asm__(
    ".pushsection .text.tandem_switch_stack,\"axG\",@progbits,tandem_switch_stack,comdat\n"
    ".weak tandem_switch_stack\n.hidden tandem_switch_stack\n"
    ".type tandem_switch_stack,@function\n"
    "tandem_switch_stack:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  subq $8, %rsp\n  stmxcsr (%rsp)\n  fnstcw 4(%rsp)\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  ldmxcsr (%rsp)\n  fldcw 4(%rsp)\n  addq $8, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size tandem_switch_stack,.-tandem_switch_stack\n.popsection\n");
#else
// x19 to x30 and the lower halves of v8 to v15.
constexpr size_t kSavedWords = 20;
constexpr size_t kEntryWord = 11;  // x30
__asm__(
    ".pushsection .text.tandem_switch_stack,\"axG\",%progbits,tandem_switch_stack,comdat\n"
    ".weak tandem_switch_stack\n.hidden tandem_switch_stack\n"
    ".type tandem_switch_stack,%function\n"
    "tandem_switch_stack:\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n"
    ".size tandem_switch_stack,.-tandem_switch_stack\n.popsection\n");
#endif

inline void switch_fiber(FiberContext* from, FiberContext* to) {
  tandem_switch_stack(&from->stack, to->stack);
}

// `entry` starts at the next switch to `fiber` and never returns.
inline void prepare_fiber(FiberContext* fiber, char* stack, size_t bytes, void (*entry)()) {
  // Leave room for the return address of `entry`, which is 0, where a caller would have aligned it.
  const uintptr_t end = (reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t{15};
  uint64_t* top = reinterpret_cast<uint64_t*>(end) - 2 - kSavedWords;
#if defined(__aarch64__)
  top = reinterpret_cast<uint64_t*>(end) - kSavedWords;  // the stack stays a multiple of 16
#endif
  for (size_t i = 0; i < kSavedWords; ++i) top[i] = 0;
#if defined(__x86_64__)
  uint32_t control[2] = {0, 0};  // those of the thread that prepares the fiber
  __asm__ volatile("stmxcsr %0\n fnstcw %1" : "=m"(control[0]), "=m"(control[1]));
  top[0] = control[0] | uint64_t{control[1]} << 32;
  top[kEntryWord + 1] = 0;
#endif
  top[kEntryWord] = reinterpret_cast<uint64_t>(entry);
  fiber->stack = top;
}

#endif

}  // namespace tandem
