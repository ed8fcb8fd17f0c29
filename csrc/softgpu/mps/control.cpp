#include "control.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace tandem::softgpu::mps {
namespace {

constexpr int kConnectionFailed = 805;  // CUDA_ERROR_MPS_CONNECTION_FAILED
constexpr int kMostStarts = 6;

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

std::string not_found(pid_t pid) { return "Server " + std::to_string(pid) + " not found\n"; }

}  // namespace

int Control::Order::number(size_t i) const {
  return i < words.size() ? std::atoi(words[i].c_str()) : 0;
}

void Control::client_came(int connection, pid_t pid, uid_t uid) {
  if (quitting_) return world_->reply(connection, "error " + std::to_string(kConnectionFailed));
  const bool somebody_waits = clients_of(0) > 0;  // then the new client queues behind them
  clients_[connection] = {pid, uid, 0, ++clients_so_far_};
  const bool is_ready = !somebody_waits && !servers_.empty() &&
                        servers_.begin()->second.uid == uid &&
                        servers_.begin()->second.state != State::kStarting;
  world_->log("NEW CLIENT " + std::to_string(pid) + " from user " + std::to_string(uid) +
              (is_ready ? ": Server already exists"
                        : ": Server is not ready, push client to pending list"));
  admit();
}

void Control::connection_closed(int connection) {
  if (quitter_ == connection) quitter_ = -1;
  if (clients_.erase(connection) > 0) admit();
}

// Assigns waiting clients to the server in order of arrival; starts and ends servers for them.
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
    return;  // later clients wait behind it
  }
  if (servers_.empty() && !wanted_.empty() && !quitting_) {
    const uid_t uid = wanted_.front();
    wanted_.erase(wanted_.begin());
    start(uid);
  }
  for (auto& [pid, server] : servers_) {
    const bool is_to_end = quitting_ || server.told_to_end || !wanted_.empty();
    const bool can_end = quitting_ || server.state != State::kStarting;
    if (is_to_end && can_end && server.state != State::kEnding && clients_of(pid) == 0) {
      end(pid, false);
    }
  }
}

void Control::start(uid_t uid) {
  ++starts_;
  const pid_t pid = world_->start_server(uid);
  if (pid < 0) return;
  Server& server = servers_[pid];
  server.uid = uid;
  server.limits = defaults;
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
  for (size_t i = 0; i < kMaxDevices; ++i) {
    all += " " + std::to_string(std::min(server.limits.memory.bytes[i],
                                         server.limits.environment_memory.bytes[i]));
  }
  const char* between = " ";
  for (const std::string& device : server.devices) {
    all += between + device;
    between = ",";
  }
  return all;
}

// Handles a server's message: "ready NUMBER UUID...", "fault STATUS" or "active".
void Control::server_said(pid_t pid, const std::string& text) {
  const auto found = servers_.find(pid);
  const std::vector<std::string> words = words_of(text);
  if (found == servers_.end() || words.empty()) return;
  Server& server = found->second;
  if (words[0] == "ready" && words.size() >= 2) {
    world_->log("NEW SERVER " + std::to_string(pid) + ": Ready");
    server.number = static_cast<uint32_t>(std::stoul(words[1]));
    server.devices.assign(words.begin() + 2, words.end());
    server.state = State::kActive;
    starts_ = 0;
  } else if (server.state != State::kEnding) {
    server.state = words[0] == "fault" ? State::kFault : State::kActive;
  }
  admit();
}

void Control::server_ended(pid_t pid, int status) {
  const auto found = servers_.find(pid);
  if (found == servers_.end()) return;
  world_->log("Server " + std::to_string(pid) + " exited with status " + std::to_string(status));
  all_ended_well_ = all_ended_well_ && status == 0;
  servers_.erase(found);
  const bool is_given_up = starts_ >= kMostStarts;
  bool is_awaited = false;
  for (auto it = clients_.begin(); it != clients_.end();) {
    Client& client = it->second;
    if (is_given_up && client.server == 0) {
      world_->reply(it->first, "error " + std::to_string(kConnectionFailed));
      it = clients_.erase(it);
    } else {
      is_awaited = is_awaited || client.server == 0;
      it = client.server == pid ? clients_.erase(it) : std::next(it);
    }
  }
  if (!is_awaited) starts_ = 0;
  admit();
  if (finished() && quitter_ >= 0) world_->reply(quitter_, all_ended_well_ ? "" : "\1");
}

void Control::time_is_up() {
  quit_timeout_s_ = -1;
  for (auto& [pid, server] : servers_) {
    world_->log("Force shutting down server " + std::to_string(pid));
    end(pid, true);
  }
}

const Control::Command Control::kCommands[] = {
    {"get_server_list", &Control::get_server_list},
    {"get_server_status", &Control::get_server_status},
    {"start_server", &Control::start_server},
    {"shutdown_server", &Control::shutdown_server},
    {"get_client_list", &Control::get_client_list},
    {"get_device_client_list", &Control::get_device_client_list},
    {"set_default_active_thread_percentage", &Control::set_default_percentage},
    {"get_default_active_thread_percentage", &Control::get_default_percentage},
    {"set_active_thread_percentage", &Control::set_percentage},
    {"get_active_thread_percentage", &Control::get_percentage},
    {"set_default_device_pinned_mem_limit", &Control::set_default_memory},
    {"get_default_device_pinned_mem_limit", &Control::get_default_memory},
    {"set_device_pinned_mem_limit", &Control::set_memory},
    {"get_device_pinned_mem_limit", &Control::get_memory},
    {"set_default_client_priority", &Control::set_default_priority},
    {"get_default_client_priority", &Control::get_default_priority},
    {"ps", &Control::ps},
    {"terminate_client", &Control::terminate_client},
    {"quit", &Control::quit},
};

void Control::command(int connection, uid_t uid, const std::string& line) {
  world_->log("Cmd:" + line);
  const Order order{uid, words_of(line)};
  const std::string name = order.words.empty() ? "" : order.words[0];
  std::string answer = "Unknown command \"" + name + "\"\n";
  for (const Command& command : kCommands) {
    if (name == command.name) answer = (this->*command.handler)(order);
  }
  std::istringstream lines(answer);
  for (std::string one; std::getline(lines, one);) world_->log(one);
  if (name == "quit" && quitting_) {
    if (!finished()) {
      quitter_ = connection;
      return;
    }
    answer = all_ended_well_ ? "" : "\1";
  }
  world_->reply(connection, answer);
}

std::string Control::get_server_list(const Order&) {
  std::vector<std::string> lines;
  for (const auto& [pid, server] : servers_) lines.push_back(std::to_string(pid));
  return join(lines);
}

Control::Server* Control::find_server(pid_t pid, std::string* error) {
  const auto found = servers_.find(pid);
  if (found != servers_.end()) return &found->second;
  *error = not_found(pid);
  return nullptr;
}

// The server that the order's first argument names, if the user may control it; otherwise null,
// with the reason in `error`.
Control::Server* Control::find_own_server(const Order& order, const char* what,
                                          std::string* error) {
  Server* server = find_server(order.number(1), error);
  if (!server || order.uid == 0 || order.uid == server->uid) return server;
  *error = "Insufficient privileges for UID " + std::to_string(order.uid) +
           ". Only the root user may " + what + " another user's server.\n";
  return nullptr;
}

std::string Control::get_server_status(const Order& order) {
  if (order.number(1) == 0) return "A server PID is required\n";
  std::string error;
  const Server* server = find_server(order.number(1), &error);
  if (!server) return error;
  if (server->state == State::kStarting) return "INITIALIZING\n";
  return server->state == State::kFault ? "FAULT\n" : "ACTIVE\n";
}

std::string Control::start_server(const Order& order) {
  char* end = nullptr;
  const bool has_uid = order.words.size() > 2 && order.words[1] == "-uid";
  const auto uid = has_uid ? static_cast<uid_t>(std::strtol(order.words[2].c_str(), &end, 10)) : 0;
  if (!has_uid || end == order.words[2].c_str()) {
    return "A user id (UID) is required to start a new server\n";
  }
  if (order.uid != 0 && order.uid != uid) {
    return "Insufficient privileges for UID " + std::to_string(order.uid) +
           ". Only the root user may start server for another user.\n";
  }
  if (servers_.empty() || servers_.begin()->second.uid != uid) wanted_.push_back(uid);
  admit();
  return "";
}

std::string Control::shutdown_server(const Order& order) {
  std::string error;
  Server* server = find_own_server(order, "shutdown", &error);
  if (!server) return error;
  if (order.words.size() > 2 && order.words[2] == "-f") {
    end(order.number(1), true);
  } else {
    server->told_to_end = true;
    admit();
  }
  return "";
}

std::string Control::get_client_list(const Order& order) {
  std::string error;
  if (!find_server(order.number(1), &error)) return error;
  std::vector<std::string> lines;
  for (const auto& [connection, client] : clients_) {
    if (client.server == order.number(1)) lines.push_back(std::to_string(client.pid));
  }
  return join(lines);
}

std::string Control::get_device_client_list(const Order& order) {
  std::string error;
  const bool is_one = order.words.size() > 1;
  if (is_one && !find_server(order.number(1), &error)) return error;
  std::vector<std::string> lines;
  for (const auto& [pid, server] : servers_) {
    if (is_one && pid != order.number(1)) continue;
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

// Lists the clients of one server, or of all.
std::string Control::ps(const Order& order) {
  const bool is_one = order.words.size() > 2 && order.words[1] == "-p";
  if (is_one && servers_.count(order.number(2)) == 0) {
    return not_found(order.number(2)) + not_found(order.number(2)) + "\n";
  }
  if (servers_.empty()) return "Server not found\n";
  std::string out = "PID       ID    SERVER    DEVICE                                    COMMAND\n";
  for (const auto& [connection, client] : clients_) {
    const auto server = servers_.find(client.server);
    if (server == servers_.end() || (is_one && client.server != order.number(2))) continue;
    for (const std::string& device : server->second.devices) {
      char row[160];
      std::snprintf(row, sizeof row, "%-10d%-6llu%-10d%-42s", client.pid,
                    static_cast<unsigned long long>(client.order), client.server, device.c_str());
      out += row + world_->command_of(client.pid) + "\n";
    }
  }
  return out;
}

std::string Control::terminate_client(const Order& order) {
  std::string error;
  const pid_t pid = order.number(1);
  if (servers_.count(pid) == 0) {
    return not_found(pid) + "Server " + std::to_string(pid) + " not found!\n1\n";
  }
  if (!find_own_server(order, "terminate clients on", &error)) return error;
  for (const auto& [connection, client] : clients_) {
    if (client.server != pid || client.pid != order.number(2)) continue;
    world_->tell_server(pid, "terminate " + std::to_string(client.pid));
    return "";
  }
  return "Invalid process " + std::to_string(order.number(2)) + "!\n";
}

// Without a timeout, waits for the clients to end.
std::string Control::quit(const Order& order) {
  if (order.uid != owner_ && order.uid != 0) {
    return "Not enough privilege to execute quit command\n";
  }
  if (order.words.size() > 2 && order.words[1] == "-t") {
    char* end = nullptr;
    const double seconds = std::strtod(order.words[2].c_str(), &end);
    if (end != order.words[2].c_str() && seconds >= 0) {
      quit_timeout_s_ = seconds;
      world_->log("quit command issued with timeout of " +
                  std::to_string(static_cast<unsigned>(seconds)));
    }
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
