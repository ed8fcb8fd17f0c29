// Drives the engine on the virtual clock, with clients that execute bodies at once and say IDLE
// whenever they have nothing to do. On the profile `tiny` each of 8 SMs does 1 flop/ns and memory
// moves 1 byte per ns, so figures in tests are nanoseconds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine.h"

namespace tandem::softgpu {

struct Line {  // one line of the timeline
  unsigned long start = 0, end = 0, context = 0, stream = 0, bytes = 0, op = 0;
  unsigned gpu = 0, sms = 0, client = 0, part = 0;
  int pid = 0;
  std::string kind, name, sm_set;
  bool last = false;
};

Line parse_line(const std::string& text);

// A kernel, copy or other operation, as a test specifies it.
struct Work {
  OpKind kind = OpKind::kKernel;
  uint64_t stream = 1;
  uint64_t blocks = 8;
  uint32_t threads = 2048;  // one block fills an SM
  double flops_per_block = 0, bytes_per_block = 0;
  uint64_t bytes = 0;
  const char* name = "";
  bool needs_body = false;
  bool body_tells_cost = false;  // flops_per_block and bytes_per_block come with BODY
  std::vector<uint64_t> deps = {};
};

Work kernel(double ns, const char* name = "k", uint64_t stream = 1, uint64_t blocks = 8);

Work of_kind(OpKind kind, uint64_t bytes = 0, uint64_t stream = 1);

struct Peer {
  uint32_t connection = 0, id = 0;
  uint64_t received = 0, ops = 0, deadline_ns = kNever;
  uint64_t look_step_ns = 0;
  bool only_looked = false;
  bool for_time = true;   // its claim about its deadline
  bool executes = true;   // answers START with BODY
  bool goes_idle = true;  // says IDLE whenever it has nothing to do
  bool closed = false;
  uint32_t body_status = kSuccess;
  std::map<uint64_t, std::pair<double, double>> costs;  // flops and bytes, sent with BODY
  std::vector<Start> starts;
  std::vector<Done> done;
  std::vector<uint64_t> times;
  std::vector<uint64_t> looks;  // the `times` at which it had to look
  std::vector<MigReply> cuts;
  std::vector<MemReply> memory;
  std::vector<MemInfoReply> infos;
  std::vector<EventReply> event_replies;
  std::vector<Fault> faults;
  std::vector<DeviceEvent> events;
  std::vector<JoinReply> joins;
  std::vector<CheckpointReply> checkpoints;
  std::vector<Freeze> freezes;
  std::vector<std::string> texts;
  std::vector<char> order;  // of messages received: S, D, T, F

  const Done* done_of(uint64_t op) const;
};

Settings tiny_settings(Mode mode = Mode::kTime);

class Simulation {
 public:
  explicit Simulation(const Settings& settings = tiny_settings());
  ~Simulation();

  Engine engine;
  std::vector<Peer> peers = std::vector<Peer>(1);  // by connection; 0 is nobody
  std::vector<Line> lines;
  std::string timeline;
  std::string log;
  uint64_t real_ns = 0;

  // Joins a client, with context 1 and stream 1.
  uint32_t join(int32_t pid = 100, uint32_t flags = 0);
  uint32_t greet(int32_t pid, uint32_t flags, uint32_t uid = 0);

  template <typename Message>
  void send(uint32_t connection, Type type, Message message) {
    message.header = {static_cast<uint16_t>(type), sizeof message, 0};
    send_bytes(connection, &message, sizeof message);
  }
  void send_bytes(uint32_t connection, const void* bytes, size_t size);
  void context(uint32_t connection, uint64_t number, uint32_t sm_percent = 100);
  void stream(uint32_t connection, uint64_t number, int32_t priority = 0, uint64_t of_context = 1);
  uint64_t submit(uint32_t connection, const Work& work, uint64_t of_context = 1);
  void idle(uint32_t connection);
  Idle idle_of(const Peer& peer) const;
  void close(uint32_t connection);

  // Runs after all have submitted: lets time pass until nothing more happens by itself.
  void run();
  const Done& done(uint32_t connection, uint64_t op);
  // Returns the lines of one kind, in the order they were written.
  std::vector<Line> lines_of(const std::string& kind) const;

  void receive();

 private:
  void keep_timeline(const std::string& text);
  void take_packet(const Output::Packet& packet);
};

}  // namespace tandem::softgpu
