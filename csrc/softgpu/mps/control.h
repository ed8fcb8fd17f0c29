// The state and decisions of the MPS control program: servers, their clients, limits, commands.
//
// Rules
// 1. A server serves the clients of one user; there is at most one server.
// 2. A client waits until a server of its user is up. Another user's server is ended once it has no
//    clients, and later clients queue behind those already waiting.
// 3. A server that fails to come up is restarted for waiting clients, up to kMostStarts starts.
// 4. Limits set for a server, and defaults for future servers, apply to clients that come later.
// 5. Answers and log lines are word for word those of NVIDIA's program of driver 555
//    (tests/data/mps), as far as they can be seen without a GPU. What is wrong with a command is
//    often said only in the log.
//
// Does no I/O: the caller (daemon.cpp) reports what happened and does what World asks.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mps_settings.h"

namespace tandem::softgpu::mps {

class World {
 public:
  virtual ~World() = default;
  virtual pid_t start_server(uid_t uid) = 0;  // -1 if it cannot be started
  virtual void tell_server(pid_t server, const std::string& text) = 0;
  virtual void end_server(pid_t server, bool by_force) = 0;
  virtual void reply(int connection, const std::string& text) = 0;
  virtual void log(const std::string& line) = 0;
  virtual std::string command_of(pid_t pid) = 0;  // for `ps`
};

struct Limits {
  double percent = 100;
  uint32_t priority = 0;
  MpsMemoryLimits memory;
  MpsMemoryLimits environment_memory;  // from the daemon's environment; no command shows or sets it
};

class Control {
 public:
  Control(World* world, uid_t owner) : world_(world), owner_(owner) {}

  Limits defaults;

  void client_came(int connection, pid_t pid, uid_t uid);
  void connection_closed(int connection);
  void server_said(pid_t server, const std::string& text);
  void server_ended(pid_t server, int status);
  void command(int connection, uid_t uid, const std::string& line);
  void time_is_up();  // the timeout of `quit -t` has expired

  bool quitting() const { return quitting_; }
  bool finished() const { return quitting_ && servers_.empty(); }
  int exit_code() const { return all_ended_well_ ? 0 : 1; }
  double quit_timeout_s() const { return quit_timeout_s_; }  // negative: no timeout

 private:
  enum class State { kStarting, kActive, kFault, kEnding };
  struct Server {
    uid_t uid = 0;
    State state = State::kStarting;
    bool told_to_end = false;
    uint32_t number = 0;  // given by the device process
    std::vector<std::string> devices;
    Limits limits;
  };
  struct Client {
    pid_t pid = 0;
    uid_t uid = 0;
    pid_t server = 0;  // 0: waits for a server
    uint64_t order = 0;
  };
  using Words = std::vector<std::string>;
  struct Order {
    uid_t uid;  // of the user who gave it
    Words words;
    int number(size_t i) const;  // word i as a number; 0 if there is none
  };
  using Handler = std::string (Control::*)(const Order& order);
  struct Command {
    const char* name;
    Handler handler;
  };
  static const Command kCommands[];

  void admit();
  void start(uid_t uid);
  void end(pid_t server, bool by_force);
  size_t clients_of(pid_t server) const;
  std::string welcome(const Server& server) const;
  Server* find_server(pid_t pid, std::string* error);
  bool may_change(uid_t uid, std::string* error) const;
  Server* find_own_server(const Order& order, const char* what, std::string* error);

  std::string get_server_list(const Order& order);
  std::string get_server_status(const Order& order);
  std::string start_server(const Order& order);
  std::string shutdown_server(const Order& order);
  std::string get_client_list(const Order& order);
  std::string get_device_client_list(const Order& order);
  std::string set_default_percentage(const Order& order);
  std::string get_default_percentage(const Order& order);
  std::string set_percentage(const Order& order);
  std::string get_percentage(const Order& order);
  std::string set_default_memory(const Order& order);
  std::string get_default_memory(const Order& order);
  std::string set_memory(const Order& order);
  std::string get_memory(const Order& order);
  std::string set_default_priority(const Order& order);
  std::string get_default_priority(const Order& order);
  std::string ps(const Order& order);
  std::string terminate_client(const Order& order);
  std::string quit(const Order& order);

  World* world_;
  uid_t owner_;  // the user who started the daemon
  std::map<pid_t, Server> servers_;
  std::map<int, Client> clients_;  // by connection
  uint64_t clients_so_far_ = 0;
  std::vector<uid_t> wanted_;  // users whose start_server waits for another's server to end
  int starts_ = 0;             // since a server last came up
  bool all_ended_well_ = true;
  bool quitting_ = false;
  double quit_timeout_s_ = -1;
  int quitter_ = -1;  // connection of the `quit` command, answered when all servers have ended
};

}  // namespace tandem::softgpu::mps
