// The device as a pure state machine: packets in, packets out. It has no I/O, no threads and no
// clock; the same calls give the same answers, byte for byte. The edges (server.h) hand it packets
// and the real time, send what `take_output` returns and call again at `next_wake_real_ns`.
//
// On the real clock, device time is real time. On the virtual clock, device time stands still while
// any client is busy, and otherwise advances to the next event; see protocol.h.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpu.h"
#include "model.h"
#include "settings.h"
#include "timeline.h"

namespace tandem::softgpu {

struct Output {
  struct Packet {
    uint32_t connection;
    Bytes bytes;
  };
  std::vector<Packet> packets;     // in order
  std::vector<uint32_t> to_close;  // after their packets were sent; the edge then calls close()
  std::string timeline;            // must be written before the packets are sent
  std::vector<std::string> log;
};

class Engine {
 public:
  Engine(const Settings& settings, uint64_t real_now_ns);

  // Returns the new connection's number. A `uid` of 0 may do what root may.
  uint32_t open(int32_t pid, uint64_t real_now_ns, uint32_t uid = 0);
  void handle(uint32_t connection, const uint8_t* packet, size_t bytes, uint64_t real_now_ns);
  void close(uint32_t connection, uint64_t real_now_ns);
  void advance(uint64_t real_now_ns);

  // The timeline can no longer be written; the status says so.
  void end_timeline();

  uint64_t next_wake_real_ns() const { return wake_real_ns_; }
  Output take_output();
  uint64_t now_ns() const { return now_ns_; }

  // Clients that keep the process alive: all but queries.
  size_t lease_count() const;
  std::string status_json() const;
  std::string nvml_json() const;

 private:
  struct ById {
    bool operator()(const Op* a, const Op* b) const {
      return std::make_pair(a->client->id, a->id) < std::make_pair(b->client->id, b->id);
    }
  };

  // Messages. Each handler returns what is wrong with its message: text for the log, or nullptr.
  const char* dispatch(Client* client, Type type, const uint8_t* message, size_t bytes);
  const char* hello(Client* client, const Hello& message);
  const char* context_create(Client* client, const ContextCreate& message);
  const char* context_destroy(Client* client, const ContextDestroy& message);
  const char* stream_create(Client* client, const StreamCreate& message);
  const char* stream_confine(Client* client, const StreamConfine& message);
  const char* stream_destroy(Client* client, const StreamDestroy& message);
  const char* mem_reserve(Client* client, const MemReserve& message);
  const char* mem_release(Client* client, const MemRelease& message);
  const char* mem_retain(Client* client, const MemRetain& message);
  const char* mem_info(Client* client, const MemInfo& message);
  const char* query(Client* client, const Query& message);
  const char* idle(Client* client, const Idle& message);
  const char* submit(Client* client, const Submit& message);
  Pending* make_pending(Stream* stream, const Submit& message);
  const char* body(Client* client, const Body& message);
  const char* join_mps(Client* client, const JoinMps& message);
  const char* checkpoint(Client* client, const Checkpoint& message);
  const char* frozen(Client* client, const Frozen& message);
  const char* mps_terminate(Client* client, const MpsTerminate& message);
  void condemn(Client* client, const std::string& why);

  // Operations from SUBMIT to DONE (engine_ops.cpp).
  void begin_first(Stream* stream);
  Op* make_op(Pending* submitted);
  bool held_by_dependency(Stream* stream);
  void stop_waiting(Stream* stream);
  void withdraw(Op* op);
  void forget(Pending* submitted);
  void settle();
  bool collect_ended();
  void start(Op* op);
  void ask_ahead(Pending* first);
  void ask(Pending* submitted, const SmSet& place);
  void finish(Op* op);
  void leave_stream(Stream* stream);
  void send_done(const Pending& submitted, uint64_t start_ns, uint32_t status);
  void retry_waits_of(const Client* client);
  void cancel_all(Context* context, uint32_t status);
  void poison(const Context& context, uint32_t status);
  void suffer(const Op& op);
  void announce(uint32_t gpu, uint64_t type, uint64_t data);
  void drop_everything_of(Client* client);
  uint64_t next_device_event_ns() const;

  // How devices are partitioned (engine_mig.cpp).
  const char* mig_change(Client* client, const MigChange& message);
  MigStatus change_mig(uint32_t uid, const MigChange& message, uint32_t* created);
  void make_gpus();
  // MPS (engine_mps.cpp).
  size_t mps_client_count(uint32_t server) const;
  void end_mps_client(Client* client, uint32_t status);
  void note_mps_fault(const Client& client, uint32_t status);
  void leave_mps(const Client& gone);
  // What clients share (engine_shared.cpp).
  const char* event_share(Client* client, const EventShare& message);
  const char* event_open(Client* client, const EventOpen& message);
  const char* event_release(Client* client, const EventRelease& message);
  const char* event_watch(Client* client, const EventWatch& message);
  SharedEvent* held_event(const Client* client, uint64_t event);
  const char* depend(Pending* submitted, Client* client, const Submit& message);
  Pending* find_op(const OpRef& ref);
  void answer_watches(const OpRef& ended);
  void drop_shares_of(const Client* client);

  // Checkpoints (engine_checkpoint.cpp).
  Client* worker_of(uint32_t pid);
  void begin_lock(Client* target, Client* requester, const Checkpoint& message);
  void end_lock(Client* target, uint32_t status);
  uint32_t suspend(Client* target);
  uint32_t resume(Client* target);
  uint32_t unlock(Client* target);
  void reply_checkpoint(Client* to, uint64_t request, uint32_t status, const Client* of);
  void look_at_locks();
  uint64_t next_lock_deadline_ns() const;

  // Time (engine_clock.cpp).
  void run(uint64_t real_now_ns);
  void run_real();
  void run_virtual();
  bool someone_is_busy();
  bool deliver_to_next();
  bool wake_next_sleeper();
  uint64_t next_virtual_ns() const;
  uint64_t next_look_ns(const Client& client) const;
  uint64_t pace() const;
  bool held_back_until(uint64_t next_ns);
  void flush(Outbox* outbox, Client* client);
  template <typename Message>
  void tell(Client* client, Type type, const Message& message) {
    client->events.add(type, message);
    client->attention.due = true;
  }
  void tell_done(Client* client, OpKind kind, const Done& done);
  bool deliver_kept();

  Client* find(uint32_t connection);

  const Profile* profile_;
  ClockKind clock_;
  Arbitration arbitration_;
  Mode mode_;
  uint32_t start_clients_;
  Faults faults_;
  Timeline timeline_;
  const char* timeline_state_;    // off, complete or incomplete
  MigLayout mig_;                 // for each device
  std::vector<bool> has_mig_on_;  // a device with MIG on may have no instance
  std::deque<Gpu> gpus_;          // a deque, so that they never move

  Pool<Pending> pending_;
  Pool<Dependency> dependencies_;
  Pool<Op> ops_;
  Names names_;

  std::map<uint32_t, std::unique_ptr<Client>> clients_;     // by connection
  std::vector<std::pair<uint32_t, Client*>> participants_;  // by id, which decides every tie
  std::set<uint32_t> locking_;                              // connections with a pending lock
  std::map<uint32_t, Client*> mps_servers_;  // by id, numbered separately from clients
  uint32_t last_connection_ = 0;
  uint32_t last_worker_ = 0, last_observer_ = 0, last_query_ = 0, last_mps_server_ = 0;
  uint64_t last_allocation_ = 0;
  std::map<uint64_t, SharedEvent> shared_events_;
  std::map<std::pair<uint32_t, uint64_t>, std::vector<Watch>> watches_;  // by connection and op
  uint64_t last_shared_event_ = 0;
  uint64_t ops_done_ = 0;

  std::set<Op*, ById> instant_;  // ready and take no device time; looked at when time stands still
  std::set<Op*, ById> waits_;    // kMemOpWait whose condition did not hold yet

  uint64_t now_ns_ = 0;   // the device's time
  uint64_t changes_ = 0;  // how often a client did work that others may see
  uint64_t started_real_ns_;
  uint64_t real_now_ns_;
  uint64_t wake_real_ns_ = kNever;
  // Virtual time runs at most this many times as fast as real time, from these two on; 0: no limit.
  uint64_t tied_pace_ = 0;
  uint64_t tied_real_ns_ = 0, tied_now_ns_ = 0;

  Output output_;
};

}  // namespace tandem::softgpu
