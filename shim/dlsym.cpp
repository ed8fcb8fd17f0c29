// The shim's dlsym. Names that do not begin with "cu" or "nv", and RTLD_NEXT, go on to glibc's
// dlsym by a jump: for RTLD_NEXT and RTLD_DEFAULT it looks at the return address to learn who asks,
// so no frame of ours may be on the stack. In assembly, because only that guarantees it at every
// optimisation level and under every sanitizer.
//
// Others interpose dlsym, too. Those before us in LD_PRELOAD look up the next one, most of them by
// glibc's versions (dlvsym), so ours has these versions; those after us get what we pass on.
#include "old_glibc.h"
#include "real_dlsym.h"

#define KEEP_PLAIN __attribute__((no_sanitize("address", "thread", "undefined")))

extern "C" {
void* tandem_real_dlsym = nullptr;

KEEP_PLAIN void* tandem_find_dlsym() {
  void* const found = tandem::shim::old_glibc::find_dlsym();
  if (!found) __builtin_trap();  // no glibc in this process: it could not have loaded this library
  return tandem_real_dlsym = found;
}
}

namespace tandem::shim {

KEEP_PLAIN void* real_dlsym(void* handle, const char* name) {
  if (!tandem_real_dlsym) tandem_find_dlsym();
  return reinterpret_cast<void* (*)(void*, const char*)>(tandem_real_dlsym)(handle, name);
}

}  // namespace tandem::shim

// The version nodes are in the preload library's version script; programs that test this code have
// none.
#ifdef TANDEM_FIRST_VERSIONS
#if defined(__x86_64__)
asm(".symver dlsym_by_its_first_version, dlsym@GLIBC_2.2.5");
#else
asm(".symver dlsym_by_its_first_version, dlsym@GLIBC_2.17");
#endif
asm(R"(
  .symver dlsym, dlsym@@GLIBC_2.34
  .globl dlsym_by_its_first_version
  .set dlsym_by_its_first_version, dlsym
)");
#endif

#if defined(__x86_64__)
asm(R"(
  .text
  .globl dlsym
  .type dlsym, @function
  .p2align 4
dlsym:
  .cfi_startproc
  endbr64
  cmpq $-1, %rdi              # RTLD_NEXT
  je 1f
  cmpb $'c', (%rsi)
  jne 3f
  cmpb $'u', 1(%rsi)
  jne 1f
  jmp tandem_substitute
3:
  cmpb $'n', (%rsi)
  jne 1f
  cmpb $'v', 1(%rsi)
  jne 1f
  jmp tandem_substitute_nvml
1:
  movq tandem_real_dlsym(%rip), %rax
  testq %rax, %rax
  je 2f
  jmp *%rax
2:
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call tandem_find_dlsym
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  jmp *%rax
  .cfi_endproc
  .size dlsym, .-dlsym
)");
#elif defined(__aarch64__)
asm(R"(
  .text
  .globl dlsym
  .type dlsym, %function
  .p2align 4
dlsym:
  .cfi_startproc
  hint #34                    // bti c
  cmn x0, #1                  // RTLD_NEXT
  b.eq 1f
  ldrb w9, [x1]
  cmp w9, #'c'
  b.ne 3f
  ldrb w9, [x1, #1]
  cmp w9, #'u'
  b.ne 1f
  b tandem_substitute
3:
  cmp w9, #'n'
  b.ne 1f
  ldrb w9, [x1, #1]
  cmp w9, #'v'
  b.ne 1f
  b tandem_substitute_nvml
1:
  adrp x9, tandem_real_dlsym
  ldr x16, [x9, #:lo12:tandem_real_dlsym]
  cbz x16, 2f
  br x16
2:
  stp x29, x30, [sp, #-32]!
  .cfi_adjust_cfa_offset 32
  .cfi_offset 29, -32
  .cfi_offset 30, -24
  stp x0, x1, [sp, #16]
  bl tandem_find_dlsym
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_adjust_cfa_offset -32
  .cfi_restore 29
  .cfi_restore 30
  br x16
  .cfi_endproc
  .size dlsym, .-dlsym
)");
#else
#error "dlsym's jump is written for x86-64 and aarch64"
#endif
