// nvidia-cuda-mps-control of the software GPU: the daemon and the client that sends it commands.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "daemon.h"

namespace {

using namespace tandem::softgpu::mps;

int connect_to_daemon() {
  const std::string path = control_path();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return -1;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? fd : -1;
}

bool ask(int fd, const std::string& text, std::string* answer) {
  static char packet[60 * 1024];
  if (send(fd, text.data(), text.size(), MSG_NOSIGNAL) < 0) return false;
  const ssize_t got = recv(fd, packet, sizeof packet, 0);
  if (got > 0) answer->assign(packet, static_cast<size_t>(got));
  return got > 0;
}

// Sends commands from stdin, one per line; prints the answers to stdout.
int talk() {
  const int fd = connect_to_daemon();
  if (fd < 0) {
    std::fprintf(stderr, "Cannot find MPS control daemon process\n");
    return 1;
  }
  std::string answer;
  const bool is_heard = ask(fd, "session", &answer) && answer != "busy";
  for (char line[4096]; std::fgets(line, sizeof line, stdin);) {
    if (!is_heard) {
      std::fprintf(stderr, "Cannot send command to MPS control daemon process\n");
      return 1;
    }
    if (!ask(fd, line, &answer)) break;  // the daemon has quit
    if (answer[0] == '\1') return 1;     // the daemon has quit, and a server had failed
    if (answer[0] != '\0') std::fputs(answer.c_str(), stdout);
  }
  close(fd);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string option = argc > 1 ? argv[1] : "";
  if (argc == 1) return talk();
  if (argc == 2 && (option == "-d" || option == "-f")) return run_daemon(option == "-d");
  if (argc == 2 && option == "-v") {
    std::printf("nvidia-cuda-mps-control of the Tandem Software GPU\n");
    return 0;
  }
  std::fprintf(stderr,
               "usage: %s [-d | -f | -v]\nWithout an option commands are read from stdin.\n",
               argv[0]);
  return 2;
}
