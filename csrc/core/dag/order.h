// The rules by which operations of a job wait for each other (CUDA Driver API: Stream Management,
// Event Management, "Stream synchronization behavior"; CUDA C++ Programming Guide, "Asynchronous
// Concurrent Execution").
//
//   stream   the operations of a stream run one after the other
//   event    a wait comes after what its event was last recorded behind, at the time of the call
//   legacy   an operation of the legacy default stream comes after everything in the blocking
//            streams of its context, and what these get later comes after it
//   host     what a thread submits comes after whatever the thread has waited for
//
// Where it is not sure that operations are ordered nothing is claimed, and the node says so
// (kUnknownOrder). Of one thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "dag/graph.h"

namespace tandem::dag {

enum class StreamKind : uint8_t { kBlocking, kNonBlocking, kLegacy };

class Order {
 public:
  explicit Order(Graph& graph) : graph_(graph) {}

  // Numbers to be used in operations. The same event of two processes has to have the same number.
  uint32_t add_context();
  uint32_t add_stream(uint32_t context, StreamKind kind);
  uint32_t add_thread(uint32_t context);  // whose context-wide waits are those of `context`
  void use_context(uint32_t thread, uint32_t context);

  // The next operation, in the order of the calls. kSyncEvent, kEventWait and kEventRecord name the
  // event in `object`; kSyncStream its stream in `stream`.
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
    NodeId last = kNoNode;       // of a thread: the last thing that it has waited for
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
  void because(NodeId from, EdgeKind kind);
  void because_of_stream(uint32_t stream);
  void because_of_event(uint64_t event, Operation& op);
  void because_of_legacy(uint32_t stream);
  void because_of_context(uint32_t context);
  NodeId append(const Operation& op, uint32_t chain);
  NodeId add_to_stream(Operation op);
  NodeId add_to_host(Operation op);

  Graph& graph_;
  std::vector<Chain> chains_;
  std::vector<Context> contexts_;
  std::unordered_map<uint64_t, NodeId> recorded_;  // by event
  bool lost_ = false;  // events may have been recorded without our seeing it
  std::vector<Reason> reasons_;  // of the operation being added
};

}  // namespace tandem::dag
