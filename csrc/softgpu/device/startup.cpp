#include "startup.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace tandem::softgpu {
namespace {

constexpr int kLockAttempts = 100;  // 10 ms apart

std::string failed(const std::string& what) { return what + ": " + std::strerror(errno); }

std::string socket_path(const std::string& dir) { return dir + "/softgpu.sock"; }

bool someone_listens(const std::string& dir) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = socket_path(dir);
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const UniqueFd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  return connect(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

void close_inherited(int keep_fd) {
  DIR* listing = opendir("/proc/self/fd");
  if (!listing) return;
  std::vector<int> fds;
  while (const dirent* entry = readdir(listing)) {
    const int fd = std::atoi(entry->d_name);
    if (fd > 2 && fd != keep_fd && fd != dirfd(listing)) fds.push_back(fd);
  }
  closedir(listing);
  for (const int fd : fds) close(fd);
}

std::string take_directory(const std::string& dir, UniqueFd* lock) {
  if (mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) {
    return failed("cannot create '" + dir + "'");
  }
  const std::string path = dir + "/softgpu.lock";
  *lock = UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!*lock) return failed("cannot open '" + path + "'");
  // Locked, but nobody listens: the last device process here is just ending, or another is
  // starting.
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    if (flock(lock->get(), LOCK_EX | LOCK_NB) == 0) return {};
    if (errno != EWOULDBLOCK) return failed("cannot lock '" + path + "'");
    if (someone_listens(dir)) break;
    usleep(10'000);
  }
  return "a device process already runs in '" + dir + "'";
}

// This process holds the lock, so a socket that is already there belongs to a dead process.
std::string listen_in(const std::string& dir, bool for_all, UniqueFd* listener) {
  const std::string path = socket_path(dir);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return "'" + path + "' is longer than a socket's path may be (" +
           std::to_string(sizeof address.sun_path - 1) + " bytes); use a shorter directory";
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  unlink(path.c_str());
  *listener = UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const mode_t old_mask = umask(for_all ? 0111 : 0177);
  const bool bound = *listener && bind(listener->get(), reinterpret_cast<sockaddr*>(&address),
                                       sizeof address) == 0;
  umask(old_mask);
  if (bound && listen(listener->get(), 1024) == 0) return {};
  return failed("cannot listen on '" + path + "'");
}

std::string open_timeline(const std::string& path, UniqueFd* timeline) {
  if (path.empty()) return {};
  // O_NONBLOCK: a pipe that nobody reads must not stop the device.
  *timeline =
      UniqueFd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0644));
  return *timeline ? std::string() : failed("cannot write the timeline '" + path + "'");
}

std::string leave_parent(const std::string& dir) {
  setsid();  // fails for a group leader: started by hand, which is fine
  const std::string path = dir + "/softgpu.log";
  const UniqueFd log(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!log || !null) return failed("cannot open '" + path + "'");
  dup2(null.get(), 0);
  dup2(log.get(), 1);
  dup2(log.get(), 2);
  prctl(PR_SET_TIMERSLACK, 1UL);  // sleeps end on time, not up to 50 us later
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  return {};
}

void say_ready(int fd) {
  if (fd < 0) return;
  const char ready = 'r';
  while (write(fd, &ready, 1) < 0 && errno == EINTR) {
  }
  close(fd);
}

void remove_socket(const std::string& dir) { unlink(socket_path(dir).c_str()); }

}  // namespace tandem::softgpu
