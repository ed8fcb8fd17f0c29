#include "control.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

namespace tandem::softgpu::mps {
namespace {

constexpr int kConnectionFailed = 805;  // CUDA_ERROR_MPS_CONNECTION_FAILED

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace

void Control::client_came(int connection, pid_t pid, uid_t uid) {
  if (quitting_) return world_->reply(connection, "error " + std::to_string(kConnectionFailed));
  clients_[connection] = {pid, uid, 0, ++clients_so_far_};
  admit();
}

void Control::connection_closed(int connection) {
  if (quitter_ == connection) quitter_ = -1;
  if (clients_.erase(connection) > 0) admit();
}

// Gives waiting clients, in the order they came, to the server; starts and ends servers for them.
void Control::admit() {
  std::vector<int> waiting;
  for (const auto& [connection, client] : clients_) {
    if (client.server == 0) waiting.push_back(connection);
  }
  std::sort(waiting.begin(), waiting.end(),
            [&](int a, int b) { return clients_[a].order < clients_[b].order; });
  for (const int connection : waiting) {
    Client& client = clients_[connection];
    if (servers_.empty()) start(client.uid);
    if (servers_.empty()) {
      world_->reply(connection, "error " + std::to_string(kConnectionFailed));
      clients_.erase(connection);
      continue;
    }
    auto& [pid, server] = *servers_.begin();
    const bool up = server.state == State::kActive || server.state == State::kFault;
    if (up && server.uid == client.uid) {
      client.server = pid;
      world_->reply(connection, welcome(server));
      continue;
    }
    if (up && clients_of(pid) == 0) end(pid, false);
    return;  // those behind it wait as well
  }
  if (!quitting_) return;
  for (auto& [pid, server] : servers_) {
    if (server.state != State::kEnding && clients_of(pid) == 0) end(pid, false);
  }
}

void Control::start(uid_t uid) {
  const pid_t pid = world_->start_server(uid);
  if (pid < 0) return world_->log("cannot start a server for uid " + std::to_string(uid));
  Server& server = servers_[pid];
  server.uid = uid;
  server.limits = defaults;
  world_->log("Starting new server " + std::to_string(pid) + " for user " + std::to_string(uid));
}

void Control::end(pid_t pid, bool by_force) {
  servers_[pid].state = State::kEnding;
  world_->end_server(pid, by_force);
}

size_t Control::clients_of(pid_t server) const {
  size_t count = 0;
  for (const auto& [connection, client] : clients_) count += client.server == server ? 1 : 0;
  return count;
}

std::string Control::welcome(const Server& server) const {
  char text[64];
  std::snprintf(text, sizeof text, "ok %u %.3f %u", server.number, server.limits.percent,
                server.limits.priority);
  std::string all = text;
  for (const uint64_t limit : server.limits.memory.bytes) all += " " + std::to_string(limit);
  const char* between = " ";
  for (const std::string& device : server.devices) {
    all += between + device;
    between = ",";
  }
  return all;
}

// "ready NUMBER UUID...", "fault STATUS" or "active".
void Control::server_said(pid_t pid, const std::string& text) {
  const auto found = servers_.find(pid);
  const std::vector<std::string> words = words_of(text);
  if (found == servers_.end() || words.empty()) return;
  Server& server = found->second;
  world_->log("server " + std::to_string(pid) + ": " + text);
  if (words[0] == "ready" && words.size() >= 2) {
    server.number = static_cast<uint32_t>(std::stoul(words[1]));
    server.devices.assign(words.begin() + 2, words.end());
    server.state = State::kActive;
  } else if (server.state != State::kEnding) {
    server.state = words[0] == "fault" ? State::kFault : State::kActive;
  }
  admit();
}

void Control::server_ended(pid_t pid) {
  const auto found = servers_.find(pid);
  if (found == servers_.end()) return;
  const bool never_came_up = found->second.state == State::kStarting;
  world_->log("Server " + std::to_string(pid) +
              (found->second.state == State::kEnding ? " exited with status 0" : " ended unexpectedly"));
  servers_.erase(found);
  for (auto it = clients_.begin(); it != clients_.end();) {
    Client& client = it->second;
    if (never_came_up && client.server == 0) {
      // Not again and again: whatever kept it from starting is still there.
      world_->reply(it->first, "error " + std::to_string(kConnectionFailed));
      it = clients_.erase(it);
    } else {
      it = client.server == pid ? clients_.erase(it) : std::next(it);
    }
  }
  admit();
  if (finished() && quitter_ >= 0) world_->reply(quitter_, "");
}

void Control::time_is_up() {
  quit_timeout_s_ = -1;
  for (auto& [pid, server] : servers_) end(pid, true);
}

const Control::Command Control::kCommands[] = {
    {"get_server_list", 0, 0, &Control::get_server_list, ""},
    {"get_server_status", 1, 1, &Control::get_server_status, "<PID>"},
    {"start_server", 2, 2, &Control::start_server, "-uid <user id>"},
    {"shutdown_server", 1, 2, &Control::shutdown_server, "<PID> [-f]"},
    {"get_client_list", 1, 1, &Control::get_client_list, "<PID>"},
    {"get_device_client_list", 0, 1, &Control::get_device_client_list, "[<PID>]"},
    {"set_default_active_thread_percentage", 1, 1, &Control::set_default_percentage,
     "<percentage>"},
    {"get_default_active_thread_percentage", 0, 0, &Control::get_default_percentage, ""},
    {"set_active_thread_percentage", 2, 2, &Control::set_percentage, "<PID> <percentage>"},
    {"get_active_thread_percentage", 1, 1, &Control::get_percentage, "<PID>"},
    {"set_default_device_pinned_mem_limit", 2, 2, &Control::set_default_memory, "<dev> <value>"},
    {"get_default_device_pinned_mem_limit", 1, 1, &Control::get_default_memory, "<dev>"},
    {"set_device_pinned_mem_limit", 3, 3, &Control::set_memory, "<PID> <dev> <value>"},
    {"get_device_pinned_mem_limit", 2, 2, &Control::get_memory, "<PID> <dev>"},
    {"set_default_client_priority", 1, 1, &Control::set_default_priority, "<priority>"},
    {"get_default_client_priority", 0, 0, &Control::get_default_priority, ""},
    {"ps", 0, 2, &Control::ps, "[-p <PID>]"},
    {"terminate_client", 2, 2, &Control::terminate_client, "<server PID> <client PID>"},
    {"quit", 0, 2, &Control::quit, "[-t <timeout s>]"},
};

void Control::command(int connection, uid_t uid, const std::string& line) {
  const Words words = words_of(line);
  if (words.empty()) return world_->reply(connection, "");
  world_->log("command of uid " + std::to_string(uid) + ": " + line);
  for (const Command& command : kCommands) {
    if (words[0] != command.name) continue;
    const size_t count = words.size() - 1;
    if (count < command.fewest || count > command.most) {
      return world_->reply(connection, "usage: " + words[0] + " " + command.usage + "\n");
    }
    const std::string answer = (this->*command.handler)(words);
    if (words[0] == "quit" && answer.empty() && !finished()) {
      quitter_ = connection;
      return;
    }
    return world_->reply(connection, answer);
  }
  world_->reply(connection, "unknown command '" + words[0] + "'\n");
}

std::string Control::get_server_list(const Words&) {
  std::vector<std::string> lines;
  for (const auto& [pid, server] : servers_) {
    if (server.state != State::kEnding) lines.push_back(std::to_string(pid));
  }
  return join(lines);
}

Control::Server* Control::find_server(const std::string& text, std::string* error) {
  char* end = nullptr;
  const long pid = std::strtol(text.c_str(), &end, 10);
  const auto found = *end == '\0' ? servers_.find(static_cast<pid_t>(pid)) : servers_.end();
  if (found != servers_.end()) return &found->second;
  *error = "no server has PID '" + text + "'; get_server_list shows them\n";
  return nullptr;
}

std::string Control::get_server_status(const Words& words) {
  std::string error;
  const Server* server = find_server(words[1], &error);
  if (!server) return error;
  if (quitting_) return "SHUTTING_DOWN\n";
  switch (server->state) {
    case State::kStarting: return "INITIALIZING\n";
    case State::kActive: return "ACTIVE\n";
    case State::kFault: return "FAULT\n";
    case State::kEnding: break;
  }
  return "SHUTTING_DOWN\n";
}

std::string Control::start_server(const Words& words) {
  char* end = nullptr;
  const unsigned long uid = std::strtoul(words[2].c_str(), &end, 10);
  if (words[1] != "-uid" || *end != '\0') return "usage: start_server -uid <user id>\n";
  if (quitting_) return "the control daemon is shutting down\n";
  if (!servers_.empty()) return "a server is running already\n";
  start(static_cast<uid_t>(uid));
  return servers_.empty() ? "cannot start a server\n" : "";
}

std::string Control::shutdown_server(const Words& words) {
  std::string error;
  if (!find_server(words[1], &error)) return error;
  const bool by_force = words.size() > 2 && words[2] == "-f";
  if (words.size() > 2 && !by_force) return "usage: shutdown_server <PID> [-f]\n";
  const auto pid = static_cast<pid_t>(std::stol(words[1]));
  if (!by_force && clients_of(pid) > 0) return "the server has clients; -f ends them too\n";
  end(pid, by_force);
  return "";
}

std::string Control::get_client_list(const Words& words) {
  std::string error;
  if (!find_server(words[1], &error)) return error;
  const auto pid = static_cast<pid_t>(std::stol(words[1]));
  std::vector<std::string> lines;
  for (const auto& [connection, client] : clients_) {
    if (client.server == pid) lines.push_back(std::to_string(client.pid));
  }
  return join(lines);
}

std::string Control::get_device_client_list(const Words& words) {
  std::string error;
  if (words.size() > 1 && !find_server(words[1], &error)) return error;
  std::vector<std::string> lines;
  for (const auto& [pid, server] : servers_) {
    if (words.size() > 1 && words[1] != std::to_string(pid)) continue;
    for (const std::string& device : server.devices) {
      std::string line = device;
      for (const auto& [connection, client] : clients_) {
        if (client.server == pid) line += " " + std::to_string(client.pid);
      }
      lines.push_back(line);
    }
  }
  return join(lines);
}

std::string Control::ps(const Words& words) {
  if (words.size() == 2 || (words.size() == 3 && words[1] != "-p")) return "usage: ps [-p <PID>]\n";
  std::string out = "PID       ID    SERVER    DEVICE                                    COMMAND\n";
  for (const auto& [connection, client] : clients_) {
    const auto server = servers_.find(client.server);
    const std::string pid = std::to_string(client.pid);
    if (server == servers_.end() || (words.size() == 3 && words[2] != pid)) continue;
    for (const std::string& device : server->second.devices) {
      char row[160];
      std::snprintf(row, sizeof row, "%-10s%-6llu%-10d%-42s", pid.c_str(),
                    static_cast<unsigned long long>(client.order), client.server, device.c_str());
      out += row + world_->command_of(client.pid) + "\n";
    }
  }
  return out;
}

std::string Control::terminate_client(const Words& words) {
  std::string error;
  if (!find_server(words[1], &error)) return error;
  const auto pid = static_cast<pid_t>(std::stol(words[1]));
  for (const auto& [connection, client] : clients_) {
    if (client.server != pid || std::to_string(client.pid) != words[2]) continue;
    world_->tell_server(pid, "terminate " + words[2]);
    return "";
  }
  return "server " + words[1] + " has no client with PID '" + words[2] + "'\n";
}

// Without a timeout the clients are waited for.
std::string Control::quit(const Words& words) {
  if (words.size() > 1) {
    char* end = nullptr;
    const double seconds = words.size() == 3 ? std::strtod(words[2].c_str(), &end) : -1;
    if (words[1] != "-t" || seconds < 0 || *end != '\0') return "usage: quit [-t <timeout s>]\n";
    quit_timeout_s_ = seconds;
  }
  quitting_ = true;
  for (auto it = clients_.begin(); it != clients_.end();) {
    if (it->second.server == 0) {
      world_->reply(it->first, "error " + std::to_string(kConnectionFailed));
      it = clients_.erase(it);
    } else {
      ++it;
    }
  }
  admit();
  return "";
}

}  // namespace tandem::softgpu::mps
