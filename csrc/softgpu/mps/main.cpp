// nvidia-cuda-mps-control of the software GPU: the daemon, and what talks to it.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iostream>
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

// Commands from stdin, one a line; answers to stdout.
int talk() {
  const int fd = connect_to_daemon();
  if (fd < 0) {
    std::fprintf(stderr, "Cannot find MPS control daemon process\n");
    return 1;
  }
  char answer[60 * 1024];
  for (std::string line; std::getline(std::cin, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (send(fd, line.data(), line.size(), MSG_NOSIGNAL) < 0) break;
    const ssize_t got = recv(fd, answer, sizeof answer, 0);
    if (got <= 0) break;  // it has quit
    if (answer[0] != '\0') (void)!write(1, answer, static_cast<size_t>(got));
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
  std::fprintf(stderr, "usage: %s [-d | -f | -v]\nWithout an option commands are read from stdin.\n",
               argv[0]);
  return 2;
}
