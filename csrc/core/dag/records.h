// Makes a graph of what the telemetry of a process says.
//
// Records have to come in the order in which their calls began to have effect: by in_order(), which
// puts a wait of the host where it began. What a record does not say is not guessed: a launch is
// unresolved until its parameters are known, and work of a context without a number is of one of its
// own. Of one thread; a map entry for every stream, thread and context that was seen.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "dag/order.h"
#include "shm_layout.h"

namespace tandem::dag {

// When a call began to have effect: that of a wait is what was there when it began. In ns, as `ticks`.
uint64_t effect_at(const shm::Record& record);

// It is a launch whose duration was predicted from times on other SMs: not known, whatever it says.
bool is_stale(const shm::Record& record);

// Sorts the records of one process, of which those of each thread are in its order already, and the
// first `ordered` ones sorted: that takes time in proportion to the others and what they come before.
// `ticks` have to be ns.
void in_order(std::vector<shm::Record>* records, size_t ordered = 0);

class Records {
 public:
  explicit Records(Order& order) : order_(order) {}

  // The node of the record; kNoNode for what is none: marks, segments, waits at our own gate, what
  // is no record. `is_resolved`: what a launch touches is known, and all, and will be added.
  NodeId take(const shm::Record& record, bool is_resolved = false);

  struct Stream {
    uint64_t handle;   // 0: what events of the whole context are put into
    uint32_t context;  // as the record numbers it
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
  Stream last_ = {0, 0, 0, StreamKind::kBlocking};  // most records are of the stream of the one before
  uint32_t last_number_ = kNone;
};

}  // namespace tandem::dag
