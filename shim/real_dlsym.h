// glibc's dlsym, found past our own.
#pragma once

namespace tandem::shim {
void* real_dlsym(void* handle, const char* name);
// NULL, with the message dlerror gives for a name that is nowhere.
void* not_found(const char* name);
}  // namespace tandem::shim

extern "C" {
// Where our dlsym jumps to. Null until tandem_find_dlsym ran.
extern void* tandem_real_dlsym __attribute__((visibility("hidden")));
void* tandem_find_dlsym() __attribute__((visibility("hidden")));
// The answer to a name that begins with "cu". caller_relative: tail-call the real one instead.
void* tandem_substitute(void* handle, const char* name) __attribute__((visibility("hidden")));
// The same for "nv".
void* tandem_substitute_nvml(void* handle, const char* name) __attribute__((visibility("hidden")));
}
