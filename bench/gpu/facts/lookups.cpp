// A library to preload that records how a program finds the driver's functions, and which library
// asks.
//
// When it ends, each process writes one JSON object to the file named by LOOKUPS_FILE with its pid
// appended. dlsym itself is that of shim/dlsym.cpp; this file decides what names that begin with
// "cu" resolve to.
#include <cuda.h>
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "real_dlsym.h"

namespace {

struct Seen {
  std::mutex mutex;
  std::set<std::string> by_dlsym, by_look_up;  // names
  std::set<std::string> asked;                 // name, version and flags of look-ups
  // `askers` counts libraries that call dlsym; `versions` and `flags` count look-ups.
  std::map<std::string, size_t> askers, versions;
  std::map<std::string, size_t> flags, tables;
  size_t look_ups = 0, old_look_ups = 0;  // all, and those by the version without a status
};

Seen& seen() {
  static Seen* const one = new Seen;  // never deleted: libraries ask until the very end
  return *one;
}

std::string library_of(void* place) {
  Dl_info info;
  if (place == nullptr || dladdr(place, &info) == 0 || info.dli_fname == nullptr) return "";
  const char* const slash = strrchr(info.dli_fname, '/');
  return slash ? slash + 1 : info.dli_fname;
}

bool is_drivers(void* place) { return library_of(place).rfind("libcuda.so", 0) == 0; }

void note(const char* name, int version, cuuint64_t flags, bool is_old) {
  const std::lock_guard<std::mutex> lock(seen().mutex);
  seen().by_look_up.insert(name);
  seen().asked.insert(std::string(name) + " " + std::to_string(version) + " " +
                      std::to_string(flags));
  seen().versions[std::to_string(version)]++;
  seen().flags[std::to_string(flags)]++;
  seen().look_ups++;
  seen().old_look_ups += is_old;
}

// Keeps the driver loaded until the very end: the CUDA runtime closes it when a program ends,
// before `tell` runs.
void* kept_driver() {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver;
}

decltype(&cuGetProcAddress_v2) real_look_up;
decltype(&cuGetExportTable) real_table;

// Drivers before CUDA 12 have only this one.
CUresult (*real_old_look_up)(const char*, void**, int, cuuint64_t);

CUresult look_up(const char* name, void** found, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult* status);
CUresult old_look_up(const char* name, void** found, int version, cuuint64_t flags);
CUresult table(const void** found, const CUuuid* id) {
  char text[40] = "";
  if (id != nullptr) {
    const auto* bytes = (const unsigned char*)id->bytes;
    for (int i = 0; i < 4; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
  }
  const std::lock_guard<std::mutex> lock(seen().mutex);
  seen().tables[text]++;
  return real_table(found, id);
}

// Returns our replacement if the function hands out other functions, else the function itself.
void* in_place_of(const char* name, void* found) {
  if (found == (void*)look_up || found == (void*)old_look_up || found == (void*)table) return found;
  if (strcmp(name, "cuGetProcAddress_v2") == 0) {
    real_look_up = (decltype(real_look_up))found;
    return (void*)look_up;
  }
  if (strcmp(name, "cuGetProcAddress") == 0) {
    real_old_look_up = (decltype(real_old_look_up))found;
    return (void*)old_look_up;
  }
  if (strcmp(name, "cuGetExportTable") == 0) {
    real_table = (decltype(real_table))found;
    return (void*)table;
  }
  return found;
}

// Like in_place_of, by base name: from version 12000 on, cuGetProcAddress is the one with a status.
void* looked_up(const char* name, int version, void* found) {
  const bool is_new = strcmp(name, "cuGetProcAddress") == 0 && version >= 12000;
  return in_place_of(is_new ? "cuGetProcAddress_v2" : name, found);
}

CUresult look_up(const char* name, void** found, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult* status) {
  if (name != nullptr) note(name, version, flags, false);
  const CUresult result = real_look_up(name, found, version, flags, status);
  if (result == CUDA_SUCCESS && name != nullptr && found != nullptr && *found != nullptr)
    *found = looked_up(name, version, *found);
  return result;
}

CUresult old_look_up(const char* name, void** found, int version, cuuint64_t flags) {
  if (name != nullptr) note(name, version, flags, true);
  const CUresult result = real_old_look_up(name, found, version, flags);
  if (result == CUDA_SUCCESS && name != nullptr && found != nullptr && *found != nullptr)
    *found = looked_up(name, version, *found);
  return result;
}

// Counts, by library, the undefined symbols that the driver exports: what is linked to it. In a
// symbol table with a GNU hash, undefined symbols come before all others.
struct Linked {
  void* driver;
  std::map<std::string, size_t> libraries;
  std::set<std::string> names;
};

int look_at(dl_phdr_info* info, size_t, void* data) {
  auto* const linked = (Linked*)data;
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
      dynamic = (const ElfW(Dyn)*)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
  }
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t* gnu_hash = nullptr;
  const uint32_t* hash = nullptr;
  for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; dynamic++) {
    void* const place = (void*)dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_SYMTAB) symbols = (const ElfW(Sym)*)place;
    if (dynamic->d_tag == DT_STRTAB) strings = (const char*)place;
    if (dynamic->d_tag == DT_GNU_HASH) gnu_hash = (const uint32_t*)place;
    if (dynamic->d_tag == DT_HASH) hash = (const uint32_t*)place;
  }
  // The vDSO has addresses that nobody relocated.
  if (symbols == nullptr || strings == nullptr || (uintptr_t)symbols < info->dlpi_addr) return 0;
  const uint32_t count = gnu_hash != nullptr ? gnu_hash[1] : hash != nullptr ? hash[1] : 0;
  for (uint32_t i = 1; i < count; i++) {
    if (symbols[i].st_shndx != SHN_UNDEF) continue;
    const char* const name = strings + symbols[i].st_name;
    if (strncmp(name, "cu", 2) != 0) continue;
    if (tandem::shim::real_dlsym(linked->driver, name) == nullptr) continue;
    linked->names.insert(name);
    const char* const slash = strrchr(info->dlpi_name, '/');
    linked->libraries[slash ? slash + 1 : *info->dlpi_name ? info->dlpi_name : "program"]++;
  }
  return 0;
}

std::string counts(const std::map<std::string, size_t>& of) {
  std::string text;
  for (const auto& [name, count] : of)
    text += (text.empty() ? "\"" : ", \"") + name + "\": " + std::to_string(count);
  return "{" + text + "}";
}

std::string list(const std::set<std::string>& of) {
  std::string text;
  for (const std::string& item : of) text += (text.empty() ? "\"" : ", \"") + item + "\"";
  return "[" + text + "]";
}

__attribute__((destructor)) void tell() {
  const char* const file = getenv("LOOKUPS_FILE");
  void* const driver = kept_driver();
  if (file == nullptr || driver == nullptr) return;  // the process never loaded the driver
  Linked linked{driver, {}, {}};
  dl_iterate_phdr(look_at, &linked);
  const std::lock_guard<std::mutex> lock(seen().mutex);
  FILE* const out = fopen((file + ("." + std::to_string(getpid()))).c_str(), "w");
  if (out == nullptr) return;
  fprintf(
      out,
      "{\"linked\": %zu, \"linked_by\": %s, \"dlsym\": %zu, \"dlsym_by\": %s, \"looked_up\": %zu, "
      "\"look_ups\": %zu, \"without_status\": %zu, \"versions\": %s, \"flags\": %s, "
      "\"export_tables\": %s, \"asked\": %s}\n",
      linked.names.size(), counts(linked.libraries).c_str(), seen().by_dlsym.size(),
      counts(seen().askers).c_str(), seen().by_look_up.size(), seen().look_ups, seen().old_look_ups,
      counts(seen().versions).c_str(), counts(seen().flags).c_str(), counts(seen().tables).c_str(),
      list(seen().asked).c_str());
  fclose(out);
}

}  // namespace

// shim/dlsym.cpp jumps here, so the return address is that of the caller of dlsym.
void* tandem_substitute(void* handle, const char* name) {
  void* const asker = __builtin_return_address(0);
  void* const found = tandem::shim::real_dlsym(handle, name);
  if (found == nullptr || !is_drivers(found)) return found;
  kept_driver();
  {
    const std::lock_guard<std::mutex> lock(seen().mutex);
    seen().by_dlsym.insert(name);
    seen().askers[library_of(asker)]++;
  }
  return in_place_of(name, found);
}

void* tandem_substitute_nvml(void* handle, const char* name) {
  return tandem::shim::real_dlsym(handle, name);
}
