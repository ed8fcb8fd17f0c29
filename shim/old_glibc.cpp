#include "old_glibc.h"

#include <cerrno>

#define KEEP_PLAIN __attribute__((no_sanitize("address", "thread", "undefined")))

// In the preload library FIRST(name) is null where the process has no such function in reach.
// Programs that test this code have the function, or what their sanitizer has put in its place.
#ifdef TANDEM_FIRST_VERSIONS
#if defined(__x86_64__)
#define VERSION "GLIBC_2.2.5"
#else
#define VERSION "GLIBC_2.17"  // aarch64's first
#endif
#define DECLARE(name)                                                    \
  extern "C" __attribute__((weak)) decltype(::name) tandem_first_##name; \
  asm(".symver tandem_first_" #name ", " #name "@" VERSION);
DECLARE(dlopen)
DECLARE(dlvsym)
DECLARE(pthread_create)
DECLARE(pthread_key_create)
DECLARE(pthread_setspecific)
DECLARE(pthread_once)
#define FIRST(name) (&tandem_first_##name)
#else
#define FIRST(name) (&::name)
#endif

// In glibc up to 2.33, for its own libraries (nsswitch, iconv) in programs without libdl. Gone
// since.
extern "C" {
__attribute__((weak)) void* __libc_dlopen_mode(const char* file, int mode);
__attribute__((weak)) void* __libc_dlsym(void* library, const char* name);
}

namespace tandem::shim::old_glibc {
namespace {

constexpr int kByDlopen = static_cast<int>(0x80000000);  // __RTLD_DLOPEN, which dlopen itself adds

KEEP_PLAIN void* find_in(const char* file, const char* name) {
  if (!__libc_dlopen_mode || !__libc_dlsym) return nullptr;
  void* const library = __libc_dlopen_mode(file, RTLD_LAZY | RTLD_NOLOAD | kByDlopen);
  return library ? __libc_dlsym(library, name) : nullptr;
}

// `linked` or, if that is null, the function `name` in libpthread.
template <class Function>
Function threads_own(Function linked, const char* name) {
  return linked ? linked : reinterpret_cast<Function>(find_in("libpthread.so.0", name));
}

}  // namespace

void* dlopen(const char* file, int mode) {
  auto function = FIRST(dlopen);
  if (!function) function = reinterpret_cast<decltype(function)>(find_in("libdl.so.2", "dlopen"));
  return function ? function(file, mode) : nullptr;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) {
  const auto function = threads_own(FIRST(pthread_create), "pthread_create");
  return function ? function(thread, attributes, run, argument) : EAGAIN;
}

int pthread_key_create(pthread_key_t* key, void (*at_exit)(void*)) {
  const auto function = threads_own(FIRST(pthread_key_create), "pthread_key_create");
  return function ? function(key, at_exit) : EAGAIN;
}

int pthread_setspecific(pthread_key_t key, const void* value) {
  const auto function = threads_own(FIRST(pthread_setspecific), "pthread_setspecific");
  return function ? function(key, value) : EINVAL;
}

int pthread_once(pthread_once_t* once, void (*run)()) {
  const auto function = threads_own(FIRST(pthread_once), "pthread_once");
  return function ? function(once, run) : EINVAL;
}

KEEP_PLAIN void* find_dlsym() {
  // By version, because plain dlsym would find ours. 2.2.5 is the first on x86-64, 2.17 on aarch64;
  // from 2.34 on the function lives in libc itself.
  static const char* const kVersions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
  auto find = FIRST(dlvsym);
  for (const char* version : kVersions) {
    void* const glibcs = find ? find(RTLD_NEXT, "dlsym", version) : nullptr;
    if (!glibcs) continue;
    // That look-up skips definitions without a version; this one does not.
    void* const next = reinterpret_cast<void* (*)(void*, const char*)>(glibcs)(RTLD_NEXT, "dlsym");
    return next ? next : glibcs;
  }
  return find_in("libdl.so.2", "dlsym");
}

}  // namespace tandem::shim::old_glibc
