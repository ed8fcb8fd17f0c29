// What glibc has in libc only since 2.34, and before had in libpthread and libdl. The preload library names
// neither: each process of a job would load them. So a process may be without, or have them where our look-ups do
// not reach (below what it loaded with RTLD_LOCAL); then they are asked for by name. A process that uses CUDA
// has both, since the driver needs them.
#pragma once

#include <dlfcn.h>
#include <pthread.h>

namespace tandem::shim::old_glibc {

// As the functions they are named after; null, or an error, where that is nowhere.
void* dlopen(const char* file, int mode);
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument);
int pthread_key_create(pthread_key_t* key, void (*at_exit)(void*));
int pthread_setspecific(pthread_key_t key, const void* value);
int pthread_once(pthread_once_t* once, void (*run)());

// dlsym as the next library after this one has it, or libdl, if that is out of reach. Null: there is none. Can run
// before any constructor, and inside a sanitizer's start.
void* find_dlsym();

}  // namespace tandem::shim::old_glibc
