#include "watched.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace tandem::shim {
namespace {

constexpr char kTracer[] = "\nTracerPid:\t";

bool has_tracer() {
  const int saved = errno;
  const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  char text[2048];  // the line is among the first ten
  const ssize_t got = file < 0 ? 0 : read(file, text, sizeof(text) - 1);
  if (file >= 0) close(file);
  errno = saved;
  if (got <= 0) return false;
  text[got] = '\0';
  const char* line = std::strstr(text, kTracer);
  return line && line[sizeof(kTracer) - 1] != '0';
}

// The variable that tells the driver to load a profiler (Nsight, CUPTI's injections).
bool has_injection() {
  const char* library = secure_getenv("CUDA_INJECTION64_PATH");
  return library && *library;
}

}  // namespace

bool is_watched() { return has_injection() || has_tracer(); }

}  // namespace tandem::shim
