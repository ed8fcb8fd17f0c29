#include "daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

#include "control.h"
#include "server.h"

namespace tandem::softgpu::mps {
namespace {

using Clock = std::chrono::steady_clock;

std::string log_directory() {
  const char* named = getenv("CUDA_MPS_LOG_DIRECTORY");
  return named && *named ? named : "/var/log/nvidia-mps";
}

class Daemon : public World {
 public:
  explicit Daemon(int listener) : control_(this), listener_(listener) { read_environment(); }
  int run();

  pid_t start_server(uid_t uid) override;
  void tell_server(pid_t server, const std::string& text) override;
  void end_server(pid_t server, bool by_force) override;
  void reply(int connection, const std::string& text) override;
  void log(const std::string& line) override;
  std::string command_of(pid_t pid) override;

 private:
  void read_environment();
  int wait_ms();
  void accept_one();
  void serve_connection(int fd);
  void serve_server(pid_t pid, int fd);

  Control control_;
  int listener_;
  std::vector<int> connections_;
  std::map<pid_t, int> servers_;
  bool timed_ = false;
  Clock::time_point deadline_;
};

void Daemon::read_environment() {
  const double percent = parse_mps_percentage(getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"));
  if (percent > 0) control_.defaults.percent = percent;
  const char* memory = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
  if (memory) (void)parse_mps_limits(memory, &control_.defaults.memory);
  const char* priority = getenv("CUDA_MPS_CLIENT_PRIORITY");
  if (priority && std::strcmp(priority, "1") == 0) control_.defaults.priority = 1;
}

int Daemon::run() {
  log("control daemon " + std::to_string(getpid()) + " listens in " + mps_pipe_directory());
  while (!control_.finished()) {
    std::vector<pollfd> fds{{listener_, POLLIN, 0}};
    for (const int fd : connections_) fds.push_back({fd, POLLIN, 0});
    std::vector<pid_t> pids;
    for (const auto& [pid, fd] : servers_) {
      pids.push_back(pid);
      fds.push_back({fd, POLLIN, 0});
    }
    const size_t connections = connections_.size();
    if (poll(fds.data(), fds.size(), wait_ms()) < 0 && errno != EINTR) return 1;
    if (timed_ && Clock::now() >= deadline_) {
      timed_ = false;
      control_.time_is_up();
    }
    if (fds[0].revents) accept_one();
    for (size_t i = 1; i <= connections; ++i) {
      if (fds[i].revents) serve_connection(fds[i].fd);
    }
    for (size_t i = 0; i < pids.size(); ++i) {
      if (fds[1 + connections + i].revents) serve_server(pids[i], fds[1 + connections + i].fd);
    }
  }
  log("control daemon has quit");
  return 0;
}

// Until the timeout of `quit -t`; a new one begins to run here.
int Daemon::wait_ms() {
  if (!timed_ && control_.quit_timeout_s() >= 0) {
    timed_ = true;
    deadline_ = Clock::now() + std::chrono::milliseconds(
                                   static_cast<int64_t>(control_.quit_timeout_s() * 1000));
  }
  if (!timed_) return -1;
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left) + 1;
}

void Daemon::accept_one() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd >= 0) connections_.push_back(fd);
}

void Daemon::serve_connection(int fd) {
  char text[512] = "";
  const ssize_t got = recv(fd, text, sizeof text - 1, 0);
  if (got <= 0) {
    for (auto it = connections_.begin(); it != connections_.end(); ++it) {
      if (*it != fd) continue;
      connections_.erase(it);
      break;
    }
    close(fd);
    return control_.connection_closed(fd);
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  const std::string line(text, static_cast<size_t>(got));
  if (line == "client") return control_.client_came(fd, peer.pid, peer.uid);
  // Commands are for who started the daemon.
  if (peer.uid != geteuid() && peer.uid != 0) return reply(fd, "permission denied\n");
  control_.command(fd, peer.uid, line);
}

void Daemon::serve_server(pid_t pid, int fd) {
  char text[4096] = "";
  const ssize_t got = recv(fd, text, sizeof text - 1, 0);
  if (got > 0) return control_.server_said(pid, std::string(text, static_cast<size_t>(got)));
  close(fd);
  servers_.erase(pid);
  waitpid(pid, nullptr, 0);
  control_.server_ended(pid);
}

pid_t Daemon::start_server(uid_t uid) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return -1;
  const pid_t pid = fork();
  if (pid != 0) {
    close(pair[1]);
    if (pid < 0) {
      close(pair[0]);
    } else {
      servers_[pid] = pair[0];
    }
    return pid;
  }
  close(listener_);
  for (const int fd : connections_) close(fd);
  for (const auto& [other, fd] : servers_) close(fd);
  close(pair[0]);
  if (uid != geteuid() && setuid(uid) != 0) _exit(1);
  prctl(PR_SET_NAME, "nvidia-cuda-mps");
  const std::string path = log_directory() + "/server.log";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file >= 0) dup2(file, 2);
  _exit(serve(pair[1]));
}

void Daemon::tell_server(pid_t server, const std::string& text) {
  const auto found = servers_.find(server);
  if (found != servers_.end()) (void)!send(found->second, text.data(), text.size(), MSG_NOSIGNAL);
}

void Daemon::end_server(pid_t server, bool by_force) {
  // Either way its connection to the device process ends, and with it what clients it still has.
  kill(server, by_force ? SIGKILL : SIGTERM);
}

void Daemon::reply(int connection, const std::string& text) {
  // An empty packet would read as the end of the connection.
  const std::string packet = text.empty() ? std::string(1, '\0') : text;
  (void)!send(connection, packet.data(), packet.size(), MSG_NOSIGNAL);
}

void Daemon::log(const std::string& line) {
  char stamp[32];
  const time_t now = time(nullptr);
  tm parts;
  strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &parts));
  std::fprintf(stderr, "[%s] %s\n", stamp, line.c_str());
}

std::string Daemon::command_of(pid_t pid) {
  char name[128] = "";
  FILE* file = std::fopen(("/proc/" + std::to_string(pid) + "/comm").c_str(), "re");
  if (!file) return "";
  if (!std::fgets(name, sizeof name, file)) name[0] = '\0';
  std::fclose(file);
  name[std::strcspn(name, "\n")] = '\0';
  return name;
}

int fail(const std::string& what) {
  std::fprintf(stderr, "nvidia-cuda-mps-control: %s: %s\n", what.c_str(), std::strerror(errno));
  return 1;
}

int listen_at(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  unlink(path.c_str());  // the lock is ours: a dead daemon's
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const mode_t old_mask = umask(0);  // clients of every user may connect
  const bool listens =
      fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      listen(fd, 128) == 0;
  umask(old_mask);
  return listens ? fd : -1;
}

void write_pid(const std::string& path) {
  FILE* file = std::fopen(path.c_str(), "we");
  if (!file) return;
  std::fprintf(file, "%d\n", getpid());
  std::fclose(file);
}

void leave_terminal() {
  setsid();
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, 0);
  dup2(null, 1);
  const std::string path = log_directory() + "/control.log";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  dup2(file >= 0 ? file : null, 2);
}

}  // namespace

std::string control_path() { return mps_pipe_directory() + "/control"; }

int run_daemon(bool in_background) {
  const std::string directory = mps_pipe_directory();
  for (const std::string& folder : {directory, log_directory()}) {
    if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return fail("cannot create " + folder);
  }
  const std::string lock_path = directory + "/nvidia-cuda-mps-control.lock";
  const int lock = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0) return fail("cannot open " + lock_path);
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    std::fprintf(stderr, "An instance of this daemon is already running\n");
    return 1;
  }
  const int listener = listen_at(control_path());
  if (listener < 0) return fail("cannot listen at " + control_path());
  if (in_background) {
    const pid_t child = fork();
    if (child < 0) return fail("cannot fork");
    if (child > 0) return 0;
    leave_terminal();
  }
  const std::string pid_path = directory + "/nvidia-cuda-mps-control.pid";
  write_pid(pid_path);
  const int code = Daemon(listener).run();
  unlink(control_path().c_str());
  unlink(pid_path.c_str());
  return code;
}

}  // namespace tandem::softgpu::mps
