// The rules by which operations of a job wait for each other (CUDA Driver API: Stream Management,
// Event Management, "Stream synchronization behavior"; CUDA C++ Programming Guide, "Asynchronous
// Concurrent Execution").
//
//   stream   the operations of a stream run one after the other; but a programmatic launch may
//            begin while the kernel before it runs (Guide, "Programmatic Dependent Launch"), and
//            after it all wait for both
//   event    a wait comes after what its event was last recorded behind, at the time of the call
//   legacy   an operation of the legacy default stream comes after everything in the blocking
//            streams of its context, and what these get later comes after it
//   host     what a thread submits comes after whatever the thread has waited for
//
// Where it is not sure that operations are ordered nothing is claimed, and the node says so
// (kUnknownOrder). Of one thread.
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

  // Streams and threads together that there may be at once: a clock has an entry for each.
  static constexpr uint32_t kMostChains = 4096;
  static constexpr uint32_t kMostContexts = 65536;  // ever

  // Numbers to be used in operations; kNone if there are too many, or the context is none. The same event of two processes
  // has to have the same number. A context has one legacy stream: the second is the first.
  uint32_t add_context();
  uint32_t add_stream(uint32_t context, StreamKind kind);
  uint32_t add_thread(uint32_t context);  // whose context-wide waits are those of `context`
  void use_context(uint32_t thread, uint32_t context);

  // The stream or thread gets nothing more. What is in it goes on; when the graph has forgotten
  // that, the number is given anew. The legacy stream does not end.
  void end(uint32_t chain);
  bool is_legacy(uint32_t stream) const { return chains_[stream].kind == StreamKind::kLegacy; }
  // What the event stands for is forgotten: the next one may have its number.
  void end_event(uint64_t event) { recorded_.erase(event); }

  // The next operation, in the order of the calls. kSyncEvent, kEventWait and kEventRecord name the
  // event in `object`; kSyncStream its stream in `stream`. kNoNode if the window is full, or its
  // thread or stream is none: then the operation is one that is missing, as by lose().
  NodeId add(const Operation& op);

  // Operations are missing here: what events stand for is not known any more.
  void lose();

  // Compacts the graph, and forgets events recorded by nodes that it has forgotten.
  void compact();

  size_t bytes() const;

 private:
  struct Chain {
    uint32_t context;
    StreamKind kind;
    bool is_thread;
    bool is_active = false;      // a blocking stream with something since the last legacy operation
    bool has_ended = false;
    NodeId last = kNoNode;       // of a thread: the last thing that it has waited for
    NodeId kernel = kNoNode;     // its last launch, if only records of events came after that
    NodeId before_kernel = kNoNode;  // what had surely ended when that began
    Clocks::Row clock = Clocks::kNothing;
  };
  struct Context {
    uint32_t legacy = kNone;         // its legacy stream
    std::vector<uint32_t> streams;   // all
    std::vector<uint32_t> active;    // those with is_active
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
  bool lost_ = false;  // events may have been recorded without our seeing it
  std::vector<Reason> reasons_;  // of the operation being added
};

}  // namespace tandem::dag
