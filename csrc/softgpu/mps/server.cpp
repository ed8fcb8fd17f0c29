#include "server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "../driver/connection.h"
#include "../driver/context/visible_devices.h"
#include "log.h"
#include "protocol.h"

namespace tandem::softgpu::mps {
namespace {

// Names the device program, which lies beside this one. A program, unlike a library, cannot ask
// where it was loaded from, so the path comes from /proc/self/exe.
void name_device_program() {
  char path[4096];
  const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path - 1);
  if (bytes <= 0) return;
  const std::string self(path, static_cast<size_t>(bytes));
  const std::string program = self.substr(0, self.rfind('/')) + "/tandem-softgpu";
  setenv("TANDEM_SOFTGPU_BIN", program.c_str(), 0);
}

void tell(int control, const std::string& text) {
  (void)!send(control, text.data(), text.size(), MSG_NOSIGNAL);
}

// Handles a message of the control program. Returns false if that has gone.
bool obey(int control, int device) {
  char text[256] = "";
  const ssize_t got = recv(control, text, sizeof text - 1, 0);
  if (got <= 0) return false;
  unsigned pid = 0;
  if (std::sscanf(text, "terminate %u", &pid) == 1) {
    const MpsTerminate message{
        {static_cast<uint16_t>(Type::kMpsTerminate), sizeof message, 0}, pid, 0};
    (void)!send(device, &message, sizeof message, MSG_NOSIGNAL);
  }
  return true;
}

// Handles messages of the device process. Returns false if that has gone.
bool relay(int control, int device) {
  alignas(8) char packet[kMaxPacketBytes];
  const ssize_t got = recv(device, packet, sizeof packet, 0);
  if (got <= 0) return false;
  for (size_t at = 0; at + sizeof(Header) <= static_cast<size_t>(got);) {
    Header header;
    std::memcpy(&header, packet + at, sizeof header);
    if (header.size < sizeof header || header.size > static_cast<size_t>(got) - at) break;
    if (header.type == static_cast<uint16_t>(Type::kFault) && header.size == sizeof(Fault)) {
      Fault fault;
      std::memcpy(&fault, packet + at, sizeof fault);
      tell(control, fault.status ? "fault " + std::to_string(fault.status) : "active");
    }
    at += header.size;
  }
  return true;
}

int cannot_start() {
  write_log("Other", "Failed to start : no CUDA-capable device is detected");
  return 1;
}

}  // namespace

int serve(int control) {
  Welcome welcome{};
  name_device_program();
  const int device = ::softgpu::connect_to_device(kMpsServer, true, &welcome);
  if (device < 0) return cannot_start();
  // Clients see only the devices of the server's CUDA_VISIBLE_DEVICES, counted from 0.
  if (const char* list = getenv("CUDA_VISIBLE_DEVICES")) {
    ::softgpu::show_visible_devices(list, &welcome);
    if (welcome.device_count == 0) return cannot_start();
  }
  std::string ready = "ready " + std::to_string(welcome.client_id);
  for (uint32_t i = 0; i < welcome.device_count; ++i) {
    ready += " " + ::softgpu::name_of(welcome.device[i]);
  }
  tell(control, ready);
  pollfd fds[2] = {{control, POLLIN, 0}, {device, POLLIN, 0}};
  for (;;) {
    if (poll(fds, 2, -1) < 0) continue;
    if (fds[1].revents && !relay(control, device)) return 1;
    if (fds[0].revents && !obey(control, device)) return 0;
  }
}

}  // namespace tandem::softgpu::mps
