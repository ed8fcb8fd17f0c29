// Functions that glibc has in libc only since 2.34; before, they were in libpthread and libdl. The
// preload library links to neither, because each process of a job would then load them. So a
// process may lack these functions, or have them where the shim's look-ups do not reach (below a
// library loaded with RTLD_LOCAL); in that case they are looked up by library name. A process that
// uses CUDA has both libraries, since the driver needs them.
#pragma once

#include <dlfcn.h>
#include <pthread.h>

namespace tandem::shim::old_glibc {

// Like the functions they are named after; null, or an error, where the function is nowhere to be
// found.
void* dlopen(const char* file, int mode);
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument);
int pthread_key_create(pthread_key_t* key, void (*at_exit)(void*));
int pthread_setspecific(pthread_key_t key, const void* value);
int pthread_once(pthread_once_t* once, void (*run)());

// The dlsym of the next library after this one, or libdl's if that is out of reach. Null: there is
// none. May run before any constructor, and during a sanitizer's start-up.
void* find_dlsym();

}  // namespace tandem::shim::old_glibc
