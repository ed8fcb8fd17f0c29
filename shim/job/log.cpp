#include "log.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace tandem::shim {
namespace {

std::atomic<bool> g_said{false};

struct Line {
  char text[400];
  size_t length = 0;

  void add(const char* part) {
    const size_t room = sizeof(text) - 1 - length;
    const size_t wanted = std::strlen(part);
    const size_t taken = wanted < room ? wanted : room;
    std::memcpy(text + length, part, taken);
    length += taken;
  }
};

}  // namespace

void say_once(const char* what, const char* value, const char* rest) {
  if (g_said.exchange(true, std::memory_order_relaxed)) return;
  Line line;
  line.add("tandem: ");
  line.add(what);
  line.add(" '");
  line.add(value);
  line.add("' ");
  line.add(rest);
  line.text[line.length++] = '\n';
  const int saved = errno;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.text, line.length);
  errno = saved;
}

}  // namespace tandem::shim
