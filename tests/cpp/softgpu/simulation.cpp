#include "simulation.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tandem::softgpu {
namespace {

template <typename Message>
Message copy(const uint8_t* from) {
  Message message;
  std::memcpy(&message, from, sizeof message);
  return message;
}

}  // namespace

Line parse_line(const std::string& text) {
  Line line;
  char kind[32] = "", name[128] = "", last[8] = "";
  const size_t quote = text.find("\"name\":\"") + 8;
  const size_t end = text.find('"', quote);
  std::sscanf(text.c_str(),
              "{\"t_start_ns\":%lu,\"t_end_ns\":%lu,\"gpu\":%u,\"context\":%lu,\"pid\":%d,"
              "\"stream\":%lu,\"kind\":\"%31[^\"]",
              &line.start, &line.end, &line.gpu, &line.context, &line.pid, &line.stream, kind);
  std::sscanf(text.c_str() + end,
              "\",\"sms\":%u,\"bytes\":%lu,\"op\":%lu,\"client\":%u,\"part\":%u,\"last\":%7[a-z]",
              &line.sms, &line.bytes, &line.op, &line.client, &line.part, last);
  std::snprintf(name, sizeof name, "%s", text.substr(quote, end - quote).c_str());
  const size_t set = text.find("\"sm_set\":\"", end) + 10;
  line.sm_set = text.substr(set, text.find('"', set) - set);
  line.kind = kind;
  line.name = name;
  line.last = std::strcmp(last, "true") == 0;
  return line;
}

Work kernel(double ns, const char* name, uint64_t stream, uint64_t blocks) {
  Work work;
  work.stream = stream;
  work.blocks = blocks;
  work.flops_per_block = ns;
  work.name = name;
  return work;
}

Work of_kind(OpKind kind, uint64_t bytes, uint64_t stream) {
  Work work;
  work.kind = kind;
  work.bytes = bytes;
  work.stream = stream;
  return work;
}

const Done* Peer::done_of(uint64_t op) const {
  for (const Done& d : done) {
    if (d.op == op) return &d;
  }
  return nullptr;
}

Settings tiny_settings(Mode mode) {
  Settings settings;
  settings.profile = find_profile("tiny");
  settings.clock = ClockKind::kVirtual;
  settings.arbitration.mode = mode;
  settings.timeline_path = "kept by the test";
  return settings;
}

Simulation::Simulation(const Settings& settings) : engine(settings, 0) {}

Simulation::~Simulation() = default;

uint32_t Simulation::join(int32_t pid, uint32_t flags) {
  const uint32_t connection = greet(pid, flags);
  if (flags == 0) {
    context(connection, 1);
    stream(connection, 1);
  }
  return connection;
}

uint32_t Simulation::greet(int32_t pid, uint32_t flags, uint32_t uid) {
  const uint32_t connection = engine.open(pid, real_ns, uid);
  peers.resize(connection + 1);
  peers[connection].connection = connection;
  Hello hello{};
  hello.protocol = kProtocol;
  hello.flags = flags;
  std::snprintf(hello.name, sizeof hello.name, "p%d", pid);
  send(connection, Type::kHello, hello);
  return connection;
}

void Simulation::send_bytes(uint32_t connection, const void* bytes, size_t size) {
  engine.handle(connection, static_cast<const uint8_t*>(bytes), size, real_ns);
  receive();
}

void Simulation::context(uint32_t connection, uint64_t number, uint32_t sm_percent) {
  send(connection, Type::kContextCreate, ContextCreate{{}, number, 0, sm_percent});
}

void Simulation::stream(uint32_t connection, uint64_t number, int32_t priority,
                        uint64_t of_context) {
  send(connection, Type::kStreamCreate, StreamCreate{{}, of_context, number, priority, 0});
}

uint64_t Simulation::submit(uint32_t connection, const Work& work, uint64_t of_context) {
  Submit message{};
  message.op = ++peers[connection].ops;
  message.context = of_context;
  message.stream = work.stream;
  message.kind = static_cast<uint32_t>(work.kind);
  message.needs_body = work.body_tells_cost ? kBodyTellsCost : work.needs_body ? kBody : kNoBody;
  message.grid_blocks = work.blocks;
  message.block_threads = work.threads;
  message.flops_per_block = work.flops_per_block;
  message.bytes_per_block = work.bytes_per_block;
  if (work.body_tells_cost) {
    const auto blocks = static_cast<double>(work.blocks);
    peers[connection].costs[message.op] = {blocks * work.flops_per_block,
                                           blocks * work.bytes_per_block};
    message.flops_per_block = message.bytes_per_block = 0;
  }
  message.bytes = work.bytes;
  std::snprintf(message.name, sizeof message.name, "%s", work.name);
  message.dep_count = static_cast<uint32_t>(work.deps.size());
  for (size_t i = 0; i < work.deps.size(); ++i) message.dep[i] = work.deps[i];
  send(connection, Type::kSubmit, message);
  return message.op;
}

void Simulation::idle(uint32_t connection) {
  send(connection, Type::kIdle, idle_of(peers[connection]));
}

Idle Simulation::idle_of(const Peer& peer) const {
  Idle message{{}, peer.received, peer.deadline_ns};
  message.look_step_ns = peer.look_step_ns;
  message.only_looked = peer.only_looked;
  message.for_time = peer.for_time;
  return message;
}

void Simulation::close(uint32_t connection) {
  peers[connection].closed = true;
  engine.close(connection, real_ns);
  receive();
}

void Simulation::run() {
  for (size_t c = 1; c < peers.size(); ++c) {
    if (!peers[c].closed && peers[c].goes_idle) idle(static_cast<uint32_t>(c));
  }
}

const Done& Simulation::done(uint32_t connection, uint64_t op) {
  const Done* found = peers[connection].done_of(op);
  if (!found) {
    std::fprintf(stderr, "operation %lu of connection %u has not ended\n",
                 static_cast<unsigned long>(op), connection);
    std::_Exit(1);
  }
  return *found;
}

std::vector<Line> Simulation::lines_of(const std::string& kind) const {
  std::vector<Line> found;
  for (const Line& line : lines) {
    if (line.kind == kind) found.push_back(line);
  }
  return found;
}

void Simulation::receive() {
  for (;;) {
    Output output = engine.take_output();
    keep_timeline(output.timeline);
    for (const std::string& line : output.log) log += line + "\n";
    if (output.packets.empty() && output.to_close.empty()) return;
    for (const Output::Packet& packet : output.packets) {
      if (!peers[packet.connection].closed) take_packet(packet);
    }
    for (const uint32_t connection : output.to_close) {
      peers[connection].closed = true;
      engine.close(connection, real_ns);
    }
  }
}

void Simulation::keep_timeline(const std::string& text) {
  timeline += text;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(parse_line(text.substr(at, end - at)));
    at = end + 1;
  }
}

void Simulation::take_packet(const Output::Packet& packet) {
  Peer& peer = peers[packet.connection];
  ++peer.received;
  std::vector<uint64_t> to_execute;
  bool event = false;
  for (size_t at = 0; at < packet.bytes.size();) {
    const uint8_t* bytes = packet.bytes.data() + at;
    const Header header = copy<Header>(bytes);
    switch (static_cast<Type>(header.type)) {
      case Type::kWelcome: peer.id = copy<Welcome>(bytes).client_id; break;
      case Type::kMigReply: peer.cuts.push_back(copy<MigReply>(bytes)); break;
      case Type::kMemReply: peer.memory.push_back(copy<MemReply>(bytes)); break;
      case Type::kEventReply:
        peer.event_replies.push_back(copy<EventReply>(bytes));
        event = true;
        break;
      case Type::kMemInfoReply: peer.infos.push_back(copy<MemInfoReply>(bytes)); break;
      case Type::kQueryReply:
        peer.texts.emplace_back(reinterpret_cast<const char*>(bytes) + sizeof(QueryReply),
                                copy<QueryReply>(bytes).text_bytes);
        break;
      case Type::kStart:
        peer.starts.push_back(copy<Start>(bytes));
        to_execute.push_back(peer.starts.back().op);
        peer.order.push_back('S');
        event = true;
        break;
      case Type::kDone:
        peer.done.push_back(copy<Done>(bytes));
        peer.order.push_back('D');
        event = true;
        break;
      case Type::kTime:
        peer.times.push_back(copy<Time>(bytes).now_ns);
        if (copy<Time>(bytes).look) peer.looks.push_back(peer.times.back());
        peer.order.push_back('T');
        peer.deadline_ns = kNever;
        event = true;
        break;
      case Type::kJoinReply: peer.joins.push_back(copy<JoinReply>(bytes)); break;
      case Type::kCheckpointReply: peer.checkpoints.push_back(copy<CheckpointReply>(bytes)); break;
      case Type::kFreeze:
        peer.freezes.push_back(copy<Freeze>(bytes));
        event = true;
        break;
      case Type::kDeviceEvent: peer.events.push_back(copy<DeviceEvent>(bytes)); break;
      case Type::kFault:
        peer.faults.push_back(copy<Fault>(bytes));
        peer.order.push_back('F');
        event = true;
        break;
      default: std::fprintf(stderr, "unexpected message %u\n", header.type); std::_Exit(1);
    }
    at += header.size;
  }
  if (peer.executes) {
    for (const uint64_t op : to_execute) {
      Body body{};
      body.op = op;
      body.status = peer.body_status;
      const auto cost = peer.costs.find(op);
      if (cost != peer.costs.end()) {
        body.flops = cost->second.first;
        body.bytes = cost->second.second;
      }
      body.header = {static_cast<uint16_t>(Type::kBody), sizeof body, 0};
      engine.handle(peer.connection, reinterpret_cast<const uint8_t*>(&body), sizeof body, real_ns);
    }
  }
  if (event && peer.goes_idle) {
    Idle message = idle_of(peer);
    message.header = {static_cast<uint16_t>(Type::kIdle), sizeof message, 0};
    engine.handle(peer.connection, reinterpret_cast<const uint8_t*>(&message), sizeof message,
                  real_ns);
  }
}

}  // namespace tandem::softgpu
