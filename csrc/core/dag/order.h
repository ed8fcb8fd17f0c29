// The rules by which a job's operations wait for each other (CUDA Driver API: Stream Management,
// Event Management, "Stream synchronization behavior"; CUDA C++ Programming Guide, "Asynchronous
// Concurrent Execution").
//
//   stream   the operations of a stream run one after the other; but a programmatic launch may
//            begin while the preceding kernel runs (Guide, "Programmatic Dependent Launch"), and
//            everything after it waits for both
//   event    a wait comes after everything before the record that is the event's latest at the time
//            of the call
//   legacy   an operation of the legacy default stream comes after everything in the blocking
//            streams of its context, and before everything that these get later
//   host     what a thread submits comes after whatever the thread has waited for
//
// Where an order is not certain, none is claimed and the node says so (kUnknownOrder). Used by one
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "dag/graph.h"

namespace tandem::dag {

enum class StreamKind : uint8_t { kBlocking, kNonBlocking, kLegacy };

class Order {
 public:
  explicit Order(Graph& graph) : graph_(graph) {}

  // Streams and threads that may exist at once, together: a clock has an entry for each.
  static constexpr uint32_t kMostChains = 4096;
  static constexpr uint32_t kMostContexts = 65536;  // in total

  // Numbers for use in operations; kNone if there are too many, or the context does not exist. An
  // event shared by two processes must have the same number in both. A context has one legacy
  // stream: adding a second returns the first.
  uint32_t add_context();
  uint32_t add_stream(uint32_t context, StreamKind kind);
  uint32_t add_thread(uint32_t context);  // its context-wide waits are for `context`
  void use_context(uint32_t thread, uint32_t context);

  // The stream or thread gets no further operations. Those in it continue; once the graph has
  // forgotten them, the number is reused. The legacy stream does not end.
  void end(uint32_t chain);
  bool is_legacy(uint32_t stream) const { return chains_[stream].kind == StreamKind::kLegacy; }
  // Forgets what the event stands for: another event may get its number.
  void end_event(uint64_t event) { recorded_.erase(event); }

  // Adds the next operation, in the order of the calls. kSyncEvent, kEventWait and kEventRecord
  // name the event in `object`; kSyncStream names its stream in `stream`. Returns kNoNode if the
  // window is full, or the thread or stream does not exist: then the operation counts as missing,
  // as after lose().
  NodeId add(const Operation& op);

  // Operations are missing here: what events stand for is no longer known.
  void lose();

  // Compacts the graph, and forgets events recorded by nodes that the graph has forgotten.
  void compact();

  size_t bytes() const;

 private:
  struct Chain {
    uint32_t context;
    StreamKind kind;
    bool is_thread;
    bool is_active = false;  // a blocking stream used since the last legacy operation
    bool has_ended = false;
    NodeId last = kNoNode;           // of a thread: the last thing that it waited for
    NodeId kernel = kNoNode;         // its last launch, if followed only by event records
    NodeId before_kernel = kNoNode;  // what had surely ended when that launch began
    Clocks::Row clock = Clocks::kNothing;
  };
  struct Context {
    uint32_t legacy = kNone;        // the context's legacy stream
    std::vector<uint32_t> streams;  // all of them
    std::vector<uint32_t> active;   // those with is_active
  };
  struct Reason {
    NodeId from;
    EdgeKind kind;
  };

  uint32_t add_chain(const Chain& chain);
  bool is_chain(uint32_t number, bool is_thread) const;
  bool can_follow(const Operation& op) const;
  void because(NodeId from, EdgeKind kind);
  void because_of_stream(uint32_t stream);
  void because_of_event(uint64_t event, Operation& op);
  void because_of_legacy(uint32_t stream);
  void because_of_context(uint32_t context);
  bool can_overlap(const Operation& op) const;
  NodeId append(const Operation& op, uint32_t chain);
  NodeId append_overlapping(const Operation& op, uint32_t chain);
  Clocks::Row clock_of_kernel(const Chain& chain, uint32_t number);
  void note_kernel(Chain& chain, NodeId before, NodeId id);
  bool can_reuse(uint32_t chain) const;
  void remove_from_context(uint32_t stream);
  void sort_reasons();
  NodeId add_to_stream(Operation op);
  NodeId add_to_host(Operation op);

  Graph& graph_;
  std::vector<Chain> chains_;
  std::deque<uint32_t> ended_;  // chains, in the order in which they ended
  std::vector<Context> contexts_;
  std::unordered_map<uint64_t, NodeId> recorded_;  // by event
  bool lost_ = false;                              // events may have been recorded unseen
  std::vector<Reason> reasons_;                    // of the operation being added
};

}  // namespace tandem::dag
