// What the MPS control program knows and decides: servers, their clients, limits, commands.
//
// Rules
// 1. A server serves clients of one user; there is at most one.
// 2. A client waits until a server of its user is up. Another user's server is ended once it has no
//    clients, and clients that came later wait behind those that wait already.
// 3. A server that does not come up is started again for those who wait, kMostStarts times in all.
// 4. Limits set for a server, and defaults for servers to come, hold for clients that come later.
// 5. Answers, and lines of the log, are word for word those of NVIDIA's program of driver 555
//    (tests/data/mps), as far as they can be seen without a GPU. What is wrong with a command is
//    often said in the log alone.
//
// Does no I/O: the edge (daemon.cpp) tells it what happened and does what World asks.
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
  virtual pid_t start_server(uid_t uid) = 0;  // -1: it cannot be started
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
  MpsMemoryLimits environment_memory;  // of the control daemon; no command shows or changes it
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
  void time_is_up();  // of `quit -t`

  bool quitting() const { return quitting_; }
  bool finished() const { return quitting_ && servers_.empty(); }
  int exit_code() const { return all_ended_well_ ? 0 : 1; }
  double quit_timeout_s() const { return quit_timeout_s_; }  // negative: none runs

 private:
  enum class State { kStarting, kActive, kFault, kEnding };
  struct Server {
    uid_t uid = 0;
    State state = State::kStarting;
    bool told_to_end = false;
    uint32_t number = 0;  // of the device process
    std::vector<std::string> devices;
    Limits limits;
  };
  struct Client {
    pid_t pid = 0;
    uid_t uid = 0;
    pid_t server = 0;  // 0: waits for one
    uint64_t order = 0;
  };
  using Words = std::vector<std::string>;
  struct Order {
    uid_t uid;  // whose it is
    Words words;
    int number(size_t i) const;  // 0 where there is none
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
  uid_t owner_;  // who started it
  std::map<pid_t, Server> servers_;
  std::map<int, Client> clients_;  // by connection
  uint64_t clients_so_far_ = 0;
  std::vector<uid_t> wanted_;  // by start_server, while there was another user's
  int starts_ = 0;             // since a server came up last
  bool all_ended_well_ = true;
  bool quitting_ = false;
  double quit_timeout_s_ = -1;
  int quitter_ = -1;  // its connection is answered when all is done
};

}  // namespace tandem::softgpu::mps
