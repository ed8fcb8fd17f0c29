#include "connection.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace softgpu {
namespace {

using namespace tandem::softgpu;

constexpr int kReadyTimeoutMs = 10'000;
constexpr int kWelcomeTimeoutS = 5;
constexpr unsigned kCloseRangeCloexec = 4;  // CLOSE_RANGE_CLOEXEC of <linux/close_range.h>

const char* setting(const char* name) {
  const char* value = getenv(name);
  return value && *value ? value : nullptr;
}

// ../bin/tandem-softgpu next to this library, wherever it is installed.
std::string device_program() {
  if (const char* named = setting("TANDEM_SOFTGPU_BIN")) return named;
  Dl_info self{};
  if (!dladdr(reinterpret_cast<const void*>(&connect_to_device), &self)) return "";
  char real[PATH_MAX];
  if (!realpath(self.dli_fname, real)) return "";
  const std::string path(real);
  const std::string folder = path.substr(0, path.rfind('/'));
  return folder.substr(0, folder.rfind('/')) + "/bin/tandem-softgpu";
}

// The device's own folder is accessible to its user only. A runtime directory that has to be
// created on the way gets the mode that the daemon gives it: others can pass through to the sockets
// but cannot list it. One right in /tmp is closed to others.
void make_folders(const std::string& path) {
  const size_t name = path.rfind('/');
  const bool in_runtime_directory = path.compare(name, std::string::npos, "/softgpu") == 0;
  for (size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at + 1);
    const std::string folder = path.substr(0, at);
    const bool made = mkdir(folder.c_str(), at == std::string::npos ? 0700 : 0777) == 0;
    if (!made || !in_runtime_directory || at != name) continue;
    const bool private_one = folder.rfind('/') == 4 && folder.compare(0, 4, "/tmp") == 0;
    chmod(folder.c_str(), private_one ? 0700 : 0711);
  }
}

// Only async-signal-safe calls: other threads of the parent may hold locks.
[[noreturn]] void become_device(char* const* argv, char* const* env, int ready_fd, int log_fd) {
  setsid();
  if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) != 0) _exit(0);  // init adopts the grandchild
  const int null_fd = open("/dev/null", O_RDWR);
  dup2(null_fd, 0);
  dup2(null_fd, 1);
  dup2(log_fd >= 0 ? log_fd : null_fd, 2);
  syscall(SYS_close_range, 3U, ~0U, kCloseRangeCloexec);
  fcntl(ready_fd, F_SETFD, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(argv[0], argv, env);
  _exit(127);
}

bool wait_for_ready_byte(int fd) {
  pollfd poll_fd{fd, POLLIN, 0};
  int rc;
  do {
    rc = poll(&poll_fd, 1, kReadyTimeoutMs);
  } while (rc < 0 && errno == EINTR);
  char byte;
  return rc == 1 && read(fd, &byte, 1) == 1;
}

// The device program's last message. The usage text after a wrong setting does not count.
std::string reason_in(const std::string& log_path) {
  constexpr const char* kPrefix = "tandem-softgpu: ";
  std::string reason = "it said nothing";
  FILE* log = fopen(log_path.c_str(), "re");
  if (!log) return reason;
  for (char line[512]; fgets(line, sizeof line, log);) {
    if (strncmp(line, kPrefix, strlen(kPrefix)) != 0) continue;
    reason = line + strlen(kPrefix);
    while (!reason.empty() && reason.back() == '\n') reason.pop_back();
  }
  fclose(log);
  return reason;
}

bool start_device(const std::string& directory, std::string* problem) {
  const std::string program = device_program();
  if (access(program.c_str(), X_OK) != 0) {
    *problem = "device program '" + program + "' cannot be executed; set TANDEM_SOFTGPU_BIN";
    return false;
  }
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return false;
  const int log_fd =
      open((directory + "/softgpu.log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const std::string ready_fd = std::to_string(ready[1]);
  const char* argv[] = {program.c_str(), "--dir",          directory.c_str(),
                        "--ready-fd",    ready_fd.c_str(), nullptr};
  // The shim of the job that happens to start the device must not be loaded into the device.
  std::vector<char*> env;
  for (char** e = environ; *e; ++e) {
    if (strncmp(*e, "LD_PRELOAD=", 11) != 0) env.push_back(*e);
  }
  env.push_back(nullptr);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  // Not fork(): its handlers belong to the program, and the child needs none of them.
  const long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) become_device(const_cast<char* const*>(argv), env.data(), ready[1], log_fd);
  if (child > 0) waitpid(static_cast<pid_t>(child), nullptr, 0);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  close(ready[1]);
  if (log_fd >= 0) close(log_fd);
  const bool up = child > 0 && wait_for_ready_byte(ready[0]);
  close(ready[0]);
  if (!up) {
    const std::string log = directory + "/softgpu.log";
    *problem = "device program '" + program + "' did not start: " + reason_in(log) + "; see " + log;
  }
  return up;
}

bool shake_hands(int fd, uint32_t flags, Welcome* welcome) {
  Hello hello{};
  hello.header = {static_cast<uint16_t>(Type::kHello), sizeof hello, 0};
  hello.protocol = kProtocol;
  hello.flags = flags;
  snprintf(hello.name, sizeof hello.name, "%s", program_invocation_short_name);
  if (send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello)) {
    return false;
  }
  const timeval limit{kWelcomeTimeoutS, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ssize_t got;
  do {
    got = recv(fd, welcome, sizeof *welcome, 0);
  } while (got < 0 && errno == EINTR);
  const timeval never{0, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &never, sizeof never);
  return got == static_cast<ssize_t>(sizeof *welcome) &&
         welcome->header.type == static_cast<uint16_t>(Type::kWelcome);
}

int try_connect(const std::string& directory, uint32_t flags, Welcome* welcome) {
  const int fd = connect_socket(directory + "/softgpu.sock");
  if (fd < 0) return -1;
  if (shake_hands(fd, flags, welcome)) return fd;
  close(fd);
  return -1;
}

}  // namespace

int connect_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    fprintf(stderr, "softgpu: socket path '%s' is longer than %zu bytes\n", path.c_str(),
            sizeof address.sun_path - 1);
    return -1;
  }
  memcpy(address.sun_path, path.c_str(), path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  int rc;
  do {
    rc = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (rc != 0 && errno == EINTR);
  if (rc == 0) return fd;
  close(fd);
  return -1;
}

std::string device_directory() {
  if (const char* own = setting("TANDEM_SOFTGPU_DIR")) return own;
  for (const char* name : {"TANDEM_RUNTIME_DIR", "RUNTIME_DIRECTORY"}) {
    if (const char* folder = setting(name)) return std::string(folder) + "/softgpu";
  }
  if (const char* xdg = setting("XDG_RUNTIME_DIR")) return std::string(xdg) + "/tandem/softgpu";
  if (access("/run/tandem", W_OK) == 0) return "/run/tandem/softgpu";
  return "/tmp/tandem-" + std::to_string(getuid()) + "/softgpu";
}

int connect_to_device(uint32_t hello_flags, bool may_start, Welcome* welcome) {
  const std::string directory = device_directory();
  int fd = try_connect(directory, hello_flags, welcome);
  if (fd >= 0 || !may_start) return fd;
  make_folders(directory);
  const std::string lock_path = directory + "/softgpu.start";
  const int lock = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) {
    fprintf(stderr, "softgpu: cannot open '%s': %s; set TANDEM_SOFTGPU_DIR\n", lock_path.c_str(),
            strerror(errno));
    return -1;
  }
  while (flock(lock, LOCK_EX) != 0 && errno == EINTR) {
  }
  // Try again under the lock: another process may have started the device. Twice, because a device
  // that was about to end may have accepted the first connection and taken it along.
  std::string problem;
  for (int attempt = 0; attempt < 2 && fd < 0; ++attempt) {
    fd = try_connect(directory, hello_flags, welcome);
    if (fd < 0 && start_device(directory, &problem)) {
      fd = try_connect(directory, hello_flags, welcome);
    }
  }
  if (fd < 0 && !problem.empty()) fprintf(stderr, "softgpu: %s\n", problem.c_str());
  close(lock);
  if (fd >= 0 && welcome->client_id == 0) {
    fprintf(stderr, "softgpu: the device process in '%s' speaks protocol %u, this library %u\n",
            directory.c_str(), welcome->protocol, kProtocol);
    close(fd);
    return -1;
  }
  return fd;
}

}  // namespace softgpu
