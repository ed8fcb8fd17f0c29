// glibc's dlsym, found past the shim's own.
#pragma once

namespace tandem::shim {
void* real_dlsym(void* handle, const char* name);
// Returns NULL and sets the message that dlerror gives for an unknown name.
void* not_found(const char* name);
}  // namespace tandem::shim

extern "C" {
// The function that the shim's dlsym jumps to. Null until tandem_find_dlsym has run.
extern void* tandem_real_dlsym __attribute__((visibility("hidden")));
void* tandem_find_dlsym() __attribute__((visibility("hidden")));
// The answer for a name that begins with "cu", with any handle but RTLD_NEXT.
void* tandem_substitute(void* handle, const char* name) __attribute__((visibility("hidden")));
// The same for names that begin with "nv".
void* tandem_substitute_nvml(void* handle, const char* name) __attribute__((visibility("hidden")));
}
