#include "log.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <initializer_list>

namespace tandem::shim {
namespace {

std::atomic<bool> g_said{false};  // the line was printed, or none is wanted

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

// Whether writing neither waits for a reader nor raises SIGPIPE for want of one.
bool is_heard() {
  pollfd error{STDERR_FILENO, POLLOUT, 0};
  return poll(&error, 1, 0) == 1 && error.revents == POLLOUT;
}

void say_parts(std::initializer_list<const char*> parts) {
  if (g_said.exchange(true, std::memory_order_relaxed)) return;
  Line line;
  line.add("tandem: ");
  for (const char* part : parts) line.add(part);
  line.text[line.length++] = '\n';
  const int saved = errno;
  if (is_heard()) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.text, line.length);
  }
  errno = saved;
}

}  // namespace

void say_nothing() { g_said.store(true, std::memory_order_relaxed); }

void say_once(const char* what, const char* value, const char* rest) {
  say_parts({what, " '", value, "' ", rest});
}

void say_once(const char* text) { say_parts({text}); }

void say_once(const char* what, const char* why) { say_parts({what, ": ", why}); }

void say_mib_once(const char* before, uint64_t bytes, const char* after) {
  if (g_said.load(std::memory_order_relaxed)) return;
  char amount[32];
  std::snprintf(amount, sizeof(amount), " %llu MiB ", static_cast<unsigned long long>(bytes >> 20));
  say_parts({before, amount, after});
}

}  // namespace tandem::shim
