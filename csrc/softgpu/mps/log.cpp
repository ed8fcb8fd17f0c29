#include "log.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>

namespace tandem::softgpu::mps {

void write_log(const char* who, const std::string& text) {
  const auto now = std::chrono::system_clock::now();
  const time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  char stamp[32], begin[96];
  tm parts;
  strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", localtime_r(&seconds, &parts));
  std::snprintf(begin, sizeof begin, "[%s.%03d %s %5d] ", stamp, static_cast<int>(ms), who,
                getpid());
  const std::string line = begin + text + "\n";
  (void)!write(STDOUT_FILENO, line.data(), line.size());  // a single write: servers write here, too
}

}  // namespace tandem::softgpu::mps
