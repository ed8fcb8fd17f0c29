// What the fuzzer of the dependency graph does with its bytes; see bodies.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "dag/builder.h"

namespace fuzz {

namespace dag = tandem::dag;

inline void promise(bool kept) {
  if (!kept) __builtin_trap();
}

// Operations that may or may not make sense, on numbers that may or may not exist, in a small
// window.
class Dag {
 public:
  static constexpr uint64_t kWindow = 64;

  explicit Dag(dag::NodeId first) : builder_(kWindow, first) {
    for (int i = 0; i < 2; ++i) contexts_.push_back(order().add_context());
  }

  // Each 8 bytes are one step: an action, a thread, a stream, an event or address, and an access.
  void run(const uint8_t* bytes, size_t size) {
    for (; size >= kStep; bytes += kStep, size -= kStep) step(bytes);
    for (dag::NodeId id = graph().begin(); id < graph().end(); ++id) check(id);
    promise(graph().size() <= kWindow && builder_.bytes() < kMostBytes);
  }

 private:
  static constexpr size_t kStep = 8;
  static constexpr size_t kMostBytes = 4 << 20;
  static constexpr size_t kMostChains = 64;

  const dag::Graph& graph() const { return builder_.graph(); }
  dag::Order& order() { return builder_.order(); }

  void step(const uint8_t* bytes) {
    switch (bytes[0] % 32) {
      case 0: return builder_.lose();
      case 1: return builder_.retire(graph().begin() + bytes[1]);
      case 2: return add_stream(bytes[1], bytes[2]);
      case 3: return add_thread(bytes[1]);
      case 4: return order().end(chain(bytes[1]));
      case 5: return order().end_event(bytes[3]);
      case 6: return order().use_context(chain(bytes[1]), bytes[2]);
      default: return add(bytes);
    }
  }

  void add_stream(uint8_t context, uint8_t kind) {
    if (chains_.size() < kMostChains)
      chains_.push_back(order().add_stream(context % 4, static_cast<dag::StreamKind>(kind % 3)));
  }

  void add_thread(uint8_t context) {
    if (chains_.size() < kMostChains) chains_.push_back(order().add_thread(context % 4));
  }

  // A stream, a thread, one that has ended, or none: the callee must check.
  uint32_t chain(uint8_t number) const {
    return number < chains_.size() ? chains_[number] : dag::kNone - number % 2;
  }

  void add(const uint8_t* bytes) {
    dag::Operation op;
    op.kind = static_cast<dag::Kind>(bytes[0] % 32 % dag::kKindCount);
    op.thread = chain(bytes[1]);
    op.stream = chain(bytes[2]);
    op.object = bytes[3];
    op.bytes = bytes[4];
    op.flags = bytes[5] & (dag::kHostWaits | dag::kUnresolved | dag::kProgrammatic);
    const uint64_t far = bytes[7] & 2 ? UINT64_MAX - 20 : 0;
    const dag::Access access = {far + bytes[3], bytes[6], (bytes[7] & 1) != 0};
    const dag::NodeId next = graph().end();
    const bool was_full = graph().is_full();
    const dag::NodeId id = bytes[7] & 4 ? builder_.add(op, &access, 1) : builder_.add(op);
    promise(id == dag::kNoNode || (id == next && !was_full));
    promise(graph().end() == next + (id == dag::kNoNode ? 0 : 1));
  }

  void check(dag::NodeId id) const {
    std::set<std::pair<dag::NodeId, dag::EdgeKind>> seen;
    graph().each_edge(id, [&](dag::NodeId from, dag::EdgeKind kind) {
      promise(graph().has(from) && from < id && seen.insert({from, kind}).second);
      promise(graph().before(from, id) == (kind != dag::EdgeKind::kOverlap));
    });
    graph().each_data_edge(id, [&](dag::NodeId from, dag::EdgeKind kind) {
      promise(graph().has(from) && from < id && seen.insert({from, kind}).second);
      promise(kind == dag::EdgeKind::kUnknownData || graph().may_overlap(from, id));
      promise(!graph().independent(from, id) || kind == dag::EdgeKind::kUnknownData);
    });
    for (dag::NodeId other = graph().begin(); other < graph().end(); ++other) {
      const bool is_ordered = graph().before(id, other) || graph().before(other, id);
      promise(!(graph().before(id, other) && graph().before(other, id)));
      promise(!graph().independent(id, other) || !is_ordered);
      promise(graph().independent(id, other) == graph().independent(other, id));
    }
  }

  dag::Builder builder_;
  std::vector<uint32_t> contexts_;
  std::vector<uint32_t> chains_;
};

}  // namespace fuzz
