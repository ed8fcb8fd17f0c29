#include "daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
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
#include "log.h"
#include "server.h"

namespace tandem::softgpu::mps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostPipeBytes = 87;  // directory's length such that all socket paths still fit

std::string log_directory() {
  const char* named = getenv("CUDA_MPS_LOG_DIRECTORY");
  return named && *named ? named : "/var/log/nvidia-mps";
}

class Daemon : public World {
 public:
  // `server_log`: the file descriptor that servers write their log to.
  Daemon(int listener, int server_log)
      : control_(this, geteuid()), listener_(listener), server_log_(server_log) {
    read_environment();
  }
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
  void close_connection(int fd);
  void open_session(int fd);
  void serve_server(pid_t pid, int fd);

  Control control_;
  int listener_;
  int server_log_;
  int session_ = -1;  // the only connection whose commands are answered at the time
  std::vector<int> connections_;
  std::map<pid_t, int> servers_;
  bool timed_ = false;
  Clock::time_point deadline_;
};

void Daemon::read_environment() {
  const double percent = parse_mps_percentage(getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"));
  if (percent > 0) control_.defaults.percent = percent;
  const char* memory = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
  if (memory) (void)parse_mps_limits(memory, &control_.defaults.environment_memory);
  const char* priority = getenv("CUDA_MPS_CLIENT_PRIORITY");
  if (priority && std::strcmp(priority, "1") == 0) control_.defaults.priority = 1;
}

int Daemon::run() {
  log("Starting control daemon using socket " + control_path());
  log("To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY=" +
      mps_pipe_directory());
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
    // Handle disconnections before connections that came after them.
    for (size_t i = 1; i <= connections; ++i) {
      if (fds[i].revents) serve_connection(fds[i].fd);
    }
    if (fds[0].revents) accept_one();
    for (size_t i = 0; i < pids.size(); ++i) {
      if (fds[1 + connections + i].revents) serve_server(pids[i], fds[1 + connections + i].fd);
    }
  }
  log("Exit with status " + std::to_string(control_.exit_code()));
  return control_.exit_code();
}

// Milliseconds left until the timeout of `quit -t`; starts the timer for a new one. -1: no timeout.
int Daemon::wait_ms() {
  if (!timed_ && control_.quit_timeout_s() >= 0) {
    timed_ = true;
    deadline_ = Clock::now() +
                std::chrono::milliseconds(static_cast<int64_t>(control_.quit_timeout_s() * 1000));
  }
  if (!timed_) return -1;
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left) + 1;
}

void Daemon::accept_one() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return;
  connections_.push_back(fd);
  log("Accepting connection...");
}

void Daemon::serve_connection(int fd) {
  char text[8192] = "";
  const ssize_t got = recv(fd, text, sizeof text - 1, 0);
  if (got <= 0) return close_connection(fd);
  ucred peer{};
  socklen_t size = sizeof peer;
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  std::string line(text, static_cast<size_t>(got));
  if (fd == session_) {
    line.erase(line.find_last_not_of('\n') + 1);
    control_.command(fd, peer.uid, line);
  } else if (line == "client") {
    control_.client_came(fd, peer.pid, peer.uid);
  } else {
    open_session(fd);
  }
}

void Daemon::close_connection(int fd) {
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    if (*it != fd) continue;
    connections_.erase(it);
    break;
  }
  close(fd);
  if (fd == session_) {
    session_ = -1;
    log("UI closed");
  }
  control_.connection_closed(fd);
}

// Refused while there is another session, and once the daemon is quitting: the session that gave
// the command waits for the end.
void Daemon::open_session(int fd) {
  if (session_ >= 0 || control_.quitting()) return reply(fd, "busy");
  session_ = fd;
  log("NEW UI");
  reply(fd, "");
}

void Daemon::serve_server(pid_t pid, int fd) {
  char text[4096] = "";
  const ssize_t got = recv(fd, text, sizeof text - 1, 0);
  if (got > 0) return control_.server_said(pid, std::string(text, static_cast<size_t>(got)));
  close(fd);
  servers_.erase(pid);
  int status = 0;
  waitpid(pid, &status, 0);
  // Like NVIDIA's program, this makes no difference between an exit and a death by signal.
  control_.server_ended(pid, WEXITSTATUS(status));
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
  log("Starting new server " + std::to_string(getpid()) + " for user " + std::to_string(uid));
  if (uid != geteuid() && setuid(uid) != 0) {
    log("Failed to start server using uid " + std::to_string(uid) +
        ", error: " + std::strerror(errno));
    _exit(1);
  }
  prctl(PR_SET_NAME, "nvidia-cuda-mps");
  dup2(server_log_, 1);
  _exit(serve(pair[1]));
}

void Daemon::tell_server(pid_t server, const std::string& text) {
  const auto found = servers_.find(server);
  if (found != servers_.end()) (void)!send(found->second, text.data(), text.size(), MSG_NOSIGNAL);
}

void Daemon::end_server(pid_t server, bool by_force) {
  // Either way the server's connection to the device process closes, and its remaining clients end.
  kill(server, by_force ? SIGKILL : SIGTERM);
}

void Daemon::reply(int connection, const std::string& text) {
  // An empty packet would read as the end of the connection.
  const std::string packet = text.empty() ? std::string(1, '\0') : text;
  (void)!send(connection, packet.data(), packet.size(), MSG_NOSIGNAL);
}

void Daemon::log(const std::string& line) { write_log("Control", line); }

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
  std::printf("%s\n", what.c_str());
  return 1;
}

int listen_at(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return -1;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  unlink(path.c_str());  // left by a dead daemon, since we hold the lock
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const bool listens = fd >= 0 &&
                       bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                       listen(fd, 128) == 0;
  return listens ? fd : -1;
}

void write_pid(const std::string& path) {
  FILE* file = std::fopen(path.c_str(), "we");
  if (!file) return;
  std::fprintf(file, "%d", getpid());
  std::fclose(file);
}

int open_log(const char* name) {
  const std::string path = log_directory() + "/" + name;
  return open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

// Detaches from the terminal and sends the daemon's log to a file. Returns the file descriptor of
// its servers' log.
int leave_terminal() {
  setsid();
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  const int log = open_log("control.log"), server_log = open_log("server.log");
  dup2(null, 0);
  dup2(log >= 0 ? log : null, 1);
  dup2(null, 2);
  return server_log >= 0 ? server_log : null;
}

bool lock_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  struct flock whole{};  // `struct` tells it from the function of the same name
  whole.l_type = F_WRLCK;
  return file >= 0 && fcntl(file, F_SETLK, &whole) == 0;
}

void make_socket_of_debuggers(const std::string& path, mode_t mask) {
  umask(mask);
  (void)listen_at(path);  // left open; nobody is answered
}

// `started` is a pipe, written to once the daemon listens; negative to stay in the foreground.
int serve_in(const std::string& directory, int started) {
  const mode_t mask = umask(0);
  const bool is_there = mkdir(directory.c_str(), 0777) == 0 || errno == EEXIST;
  if (!is_there || access((directory + "/.").c_str(), R_OK | W_OK | X_OK) != 0) {
    return fail("Cannot access CUDA_MPS_PIPE_DIRECTORY=" + directory);
  }
  if (!lock_file(directory + "/control_lock")) {
    return fail("An instance of this daemon is already running");
  }
  const std::string pid_path = directory + "/nvidia-cuda-mps-control.pid";
  const std::string log_pipe = directory + "/log";
  (void)mkfifo(log_pipe.c_str(), 0777);  // exists only for show: nothing writes to it
  if (directory.size() > kMostPipeBytes) return 1;
  const int listener = listen_at(control_path());
  if (listener < 0) return 1;
  (void)chmod(control_path().c_str(), 0666);
  write_pid(pid_path);
  make_socket_of_debuggers(directory + "/control_privileged", mask);
  umask(mask);
  int server_log = 1;
  if (started >= 0) {
    std::fflush(stdout);
    server_log = leave_terminal();
    (void)!write(started, "", 1);
    close(started);
  }
  const int code = Daemon(listener, server_log).run();
  unlink(log_pipe.c_str());
  unlink(pid_path.c_str());
  return code;
}

}  // namespace

std::string control_path() { return mps_pipe_directory() + "/control"; }

int run_daemon(bool in_background) {
  const std::string directory = mps_pipe_directory();
  const std::string logs = log_directory();
  if (mkdir(logs.c_str(), 0700) != 0 && access(logs.c_str(), W_OK) != 0) {
    std::printf("Warning: Failed writing log files to directory [%s]. No logs will be available.\n",
                logs.c_str());
  }
  std::fflush(stdout);
  if (!in_background) return serve_in(directory, -1);
  int pair[2];
  if (pipe2(pair, O_CLOEXEC) != 0) return fail(std::strerror(errno));
  const pid_t child = fork();
  if (child < 0) return fail(std::strerror(errno));
  if (child == 0) {
    close(pair[0]);
    return serve_in(directory, pair[1]);
  }
  close(pair[1]);
  char byte;
  return read(pair[0], &byte, 1) == 1 ? 0 : 1;
}

}  // namespace tandem::softgpu::mps
