// Builds a graph from the telemetry of a process.
//
// Records must come in the order in which their calls began to take effect; in_order() sorts them
// so and puts a host's wait where it began. What a record does not say is not guessed: a launch is
// unresolved until its parameters are known, and work of an unnumbered context belongs to a context
// of its own. Used by one thread. Keeps a map entry for every stream, thread and context seen.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "dag/order.h"
#include "shm_layout.h"

namespace tandem::dag {

// When a call began to take effect: a wait concerns what was there when it began. In ns, as
// `ticks`.
uint64_t effect_at(const shm::Record& record);

// True for a launch whose duration was predicted from times on other SMs: it counts as not known.
bool is_stale(const shm::Record& record);

// Sorts the records of one process by effect_at. Records of each thread must be in its order
// already, and the first `ordered` must be sorted. The cost is proportional to the rest and to what
// the rest precedes. `ticks` must be in ns.
void in_order(std::vector<shm::Record>* records, size_t ordered = 0);

class Records {
 public:
  explicit Records(Order& order) : order_(order) {}

  // Adds the node of the record. Returns kNoNode for records that make none: marks, segments, waits
  // at the shim's own gate, invalid records. `is_resolved`: everything a launch touches is known,
  // and will be added.
  NodeId take(const shm::Record& record, bool is_resolved = false);

  struct Stream {
    uint64_t handle;   // 0: the stream for events of the whole context
    uint32_t context;  // as numbered in the record
    uint32_t thread;   // of a per-thread default stream; else 0
    StreamKind kind = StreamKind::kBlocking;
    bool operator==(const Stream& other) const {
      return handle == other.handle && context == other.context && thread == other.thread;
    }
  };
  // What the numbers in operations stand for.
  const std::unordered_map<uint32_t, Stream>& streams() const { return streams_; }
  const std::unordered_map<uint32_t, uint32_t>& threads() const { return tids_; }

 private:
  struct Hash {
    size_t operator()(const Stream& stream) const {
      return (stream.handle ^ uint64_t{stream.context} << 48 ^ uint64_t{stream.thread} << 32) *
             0x9e3779b97f4a7c15u;
    }
  };

  uint32_t context(uint32_t number);
  uint32_t thread(uint32_t tid, uint32_t context_number);
  uint32_t stream(const shm::Record& record);
  bool describe(const shm::Record& record, Operation* op);
  bool describe_sync(const shm::Record& record, Operation* op);

  Order& order_;
  std::unordered_map<uint32_t, uint32_t> contexts_;
  std::unordered_map<uint32_t, uint32_t> threads_;
  std::unordered_map<uint32_t, uint32_t> tids_;
  std::unordered_map<Stream, uint32_t, Hash> numbers_;
  std::unordered_map<uint32_t, Stream> streams_;
  // Cached, since most records use the same stream as their predecessor.
  Stream last_ = {0, 0, 0, StreamKind::kBlocking};
  uint32_t last_number_ = kNone;
};

}  // namespace tandem::dag
