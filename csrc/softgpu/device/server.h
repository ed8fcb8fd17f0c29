// The edge of the engine: a listening SOCK_SEQPACKET socket, its connections and the timeline file.
// Single-threaded; it blocks only to wait for the next packet or the engine's next event.
#pragma once

#include <deque>
#include <string>
#include <unordered_map>

#include "engine.h"
#include "settings.h"
#include "unique_fd.h"

namespace tandem::softgpu {

class Server {
 public:
  Server(const Settings& settings, UniqueFd listener, UniqueFd timeline);

  // Serves until linger_ms after the last client has gone, or until a signal asks it to stop.
  void run();

 private:
  struct Connection {
    UniqueFd socket;
    uint32_t number = 0;
    std::deque<Bytes> unsent;  // until the peer reads; if they grow too large, it is closed
    size_t unsent_bytes = 0;
    bool closing = false;
  };

  bool wait_and_serve();
  int64_t time_to_sleep_ns() const;
  bool should_end();
  void accept_all();
  void accept_one(UniqueFd socket);
  void serve(uint32_t number, uint32_t events);
  bool read_packets(Connection* connection);
  void perform();
  void write_timeline(const std::string& text);
  void end_timeline(const std::string& written);
  void send(Connection* connection, Bytes packet);
  void send_unsent(Connection* connection);
  void drop(uint32_t number);
  void note_leases();

  Engine engine_;
  UniqueFd listener_, timeline_, poll_;
  uint64_t timeline_bytes_ = 0;  // bytes written, whole lines only
  size_t last_line_bytes_ = 0;   // length of the last of those lines
  uint64_t linger_ns_;
  bool serves_all_;
  bool ever_leased_ = false;
  uint64_t unleased_since_ns_;
  std::unordered_map<uint32_t, Connection> connections_;
  std::deque<uint32_t> broken_;  // to be closed when nothing iterates over connections_
};

}  // namespace tandem::softgpu
