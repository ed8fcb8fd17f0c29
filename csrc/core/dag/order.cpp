#include "dag/order.h"

#include <algorithm>
#include <iterator>

namespace tandem::dag {
namespace {

bool is_wait_of_host(Kind kind) { return kind >= Kind::kSyncStream && kind <= Kind::kSyncContext; }

}  // namespace

uint32_t Order::add_context() {
  if (contexts_.size() >= kMostContexts) return kNone;
  contexts_.emplace_back();
  return static_cast<uint32_t>(contexts_.size() - 1);
}

uint32_t Order::add_chain(const Chain& chain) {
  if (!ended_.empty() && can_reuse(ended_.front())) {
    const uint32_t again = ended_.front();
    ended_.pop_front();
    if (!chains_[again].is_thread) remove_from_context(again);
    chains_[again] = chain;
    return again;
  }
  if (chains_.size() >= kMostChains) return kNone;
  chains_.push_back(chain);
  return static_cast<uint32_t>(chains_.size() - 1);
}

uint32_t Order::add_stream(uint32_t context, StreamKind kind) {
  if (context >= contexts_.size()) return kNone;
  const bool is_legacy = kind == StreamKind::kLegacy;
  if (is_legacy && contexts_[context].legacy != kNone) return contexts_[context].legacy;
  const uint32_t stream = add_chain({context, kind, false});
  if (stream == kNone) return kNone;
  contexts_[context].streams.push_back(stream);
  if (is_legacy) contexts_[context].legacy = stream;
  return stream;
}

uint32_t Order::add_thread(uint32_t context) {
  if (context >= contexts_.size()) return kNone;
  return add_chain({context, StreamKind::kNonBlocking, true});
}

void Order::end(uint32_t chain) {
  if (!is_chain(chain, false) && !is_chain(chain, true)) return;
  if (is_legacy(chain)) return;
  chains_[chain].has_ended = true;
  ended_.push_back(chain);
}

// Old positions in clocks do no harm, since those of new nodes are larger.
bool Order::can_reuse(uint32_t chain) const {
  const NodeId last = chains_[chain].last;
  return last == kNoNode || !graph_.has(last);
}

void Order::remove_from_context(uint32_t stream) {
  Context& context = contexts_[chains_[stream].context];
  for (std::vector<uint32_t>* streams : {&context.streams, &context.active})
    streams->erase(std::remove(streams->begin(), streams->end(), stream), streams->end());
}

void Order::use_context(uint32_t thread, uint32_t context) {
  if (is_chain(thread, true) && context < contexts_.size()) chains_[thread].context = context;
}

bool Order::is_chain(uint32_t number, bool is_thread) const {
  return number < chains_.size() && chains_[number].is_thread == is_thread &&
         !chains_[number].has_ended;
}

bool Order::can_follow(const Operation& op) const {
  const bool needs_stream = op.kind <= Kind::kSyncStream;
  return is_chain(op.thread, true) &&
         (op.stream == kNone ? !needs_stream : is_chain(op.stream, false));
}

NodeId Order::add(const Operation& op) {
  if (graph_.is_full() || !can_follow(op)) {
    lose();
    return kNoNode;
  }
  reasons_.clear();
  because(chains_[op.thread].last, EdgeKind::kHost);
  const bool of_host = op.stream == kNone || is_wait_of_host(op.kind);
  return of_host ? add_to_host(op) : add_to_stream(op);
}

void Order::because(NodeId from, EdgeKind kind) {
  if (from != kNoNode && graph_.has(from)) reasons_.push_back({from, kind});
}

void Order::because_of_stream(uint32_t stream) { because(chains_[stream].last, EdgeKind::kHost); }

void Order::because_of_event(uint64_t event, Operation& op) {
  const auto found = recorded_.find(event);
  if (found != recorded_.end()) {
    because(found->second, op.kind == Kind::kEventWait ? EdgeKind::kEvent : EdgeKind::kHost);
  } else if (lost_) {  // else it was never recorded, and the wait is no wait
    op.flags |= kUnknownOrder;
  }
}

void Order::because_of_legacy(uint32_t stream) {
  Chain& chain = chains_[stream];
  if (chain.kind == StreamKind::kNonBlocking) return;
  Context& context = contexts_[chain.context];
  if (chain.kind == StreamKind::kBlocking) {
    if (context.legacy != kNone) because(chains_[context.legacy].last, EdgeKind::kLegacy);
    if (!chain.is_active) context.active.push_back(stream);
    chain.is_active = true;
    return;
  }
  for (const uint32_t other : context.active) {
    because(chains_[other].last, EdgeKind::kLegacy);
    chains_[other].is_active = false;
  }
  context.active.clear();
}

void Order::because_of_context(uint32_t context) {
  for (const uint32_t stream : contexts_[context].streams) because_of_stream(stream);
}

NodeId Order::add_to_stream(Operation op) {
  const bool overlaps = can_overlap(op);
  if (!overlaps) op.flags &= static_cast<uint8_t>(~kProgrammatic);
  const NodeId before = chains_[op.stream].last;
  if (!overlaps) because(before, EdgeKind::kStream);
  because_of_legacy(op.stream);
  if (op.kind == Kind::kEventWait) because_of_event(op.object, op);
  if (op.kind == Kind::kMemOp) op.flags |= kUnknownOrder;  // anybody may write the value
  const NodeId id = overlaps ? append_overlapping(op, op.stream) : append(op, op.stream);
  note_kernel(chains_[op.stream], before, id);
  if (op.kind == Kind::kEventRecord) recorded_[op.object] = id;
  if (op.flags & kHostWaits) {
    Chain& thread = chains_[op.thread];
    thread.last = id;
    thread.clock = graph_.node(id).clock;
  }
  return id;
}

bool Order::can_overlap(const Operation& op) const {
  return op.flags & kProgrammatic && op.kind == Kind::kLaunch &&
         chains_[op.stream].kernel != kNoNode;
}

// An event record may not make a launch wait, so the kernel before the record still counts.
void Order::note_kernel(Chain& chain, NodeId before, NodeId id) {
  const Operation& op = graph_.node(id).op;
  if (op.kind == Kind::kEventRecord) return;
  const bool is_kernel = op.kind == Kind::kLaunch || op.kind == Kind::kGraph;
  chain.kernel = is_kernel ? id : kNoNode;
  if (!(op.flags & kProgrammatic)) chain.before_kernel = before;
}

NodeId Order::add_to_host(Operation op) {
  op.flags &= static_cast<uint8_t>(~kProgrammatic);
  switch (op.kind) {
    case Kind::kSyncStream: because_of_stream(op.stream); break;
    case Kind::kSyncEvent: because_of_event(op.object, op); break;
    case Kind::kSyncContext: because_of_context(chains_[op.thread].context); break;
    default: break;
  }
  return append(op, op.thread);
}

// Newest reasons first: what they imply is then known and needs no edge.
void Order::sort_reasons() {
  if (reasons_.size() < 2) return;
  std::sort(reasons_.begin(), reasons_.end(),
            [](const Reason& a, const Reason& b) { return a.from > b.from; });
}

NodeId Order::append(const Operation& op, uint32_t chain) {
  sort_reasons();
  Chain& own = chains_[chain];
  if (op.flags & kUnknownOrder) graph_.doubt();
  const NodeId id = graph_.append(op, chain, own.clock);
  Clocks::Row clock = own.clock;
  bool in_chain = false;  // an edge from the node's own chain is there, which covers all older ones
  for (const auto& [from, kind] : reasons_) {
    const Graph::Node& source = graph_.node(from);
    const bool same_chain = source.chain == chain;
    if ((same_chain && in_chain) || graph_.knows(clock, from)) continue;
    graph_.add_edge(from, kind);
    in_chain |= same_chain;
    // What the own chain knows is in its clock already.
    if (!same_chain)
      clock = graph_.clocks().join(clock, source.clock, source.chain, graph_.position(from));
  }
  graph_.set_clock(clock);
  own.clock = clock;
  own.last = id;
  return id;
}

// What had ended when the preceding kernel began has ended when this one begins. Its clock also
// says how far its own chain had come, which here is not up to the preceding node.
NodeId Order::append_overlapping(const Operation& op, uint32_t chain) {
  sort_reasons();
  Chain& own = chains_[chain];
  Clocks::Row clock = clock_of_kernel(own, chain);
  const NodeId id = graph_.append(op, chain, clock);
  for (const auto& [from, kind] : reasons_) {
    if (graph_.knows(clock, from)) continue;
    const Graph::Node& source = graph_.node(from);
    graph_.add_edge(from, kind);
    clock = graph_.clocks().join(clock, source.clock, source.chain, graph_.position(from));
  }
  if (!graph_.knows(clock, own.kernel)) graph_.add_edge(own.kernel, EdgeKind::kOverlap);
  graph_.set_clock(clock);
  own.clock = graph_.clocks().merge(clock, own.clock);
  own.last = id;
  return id;
}

Clocks::Row Order::clock_of_kernel(const Chain& chain, uint32_t number) {
  if (!graph_.has(chain.kernel)) return Clocks::kNothing;
  const Clocks::Row row = graph_.node(chain.kernel).clock;
  const uint32_t known = graph_.position(chain.before_kernel);
  if (graph_.clocks().at(row, number) >= known) return row;
  return graph_.clocks().join(row, row, number, known);
}

void Order::lose() {
  recorded_.clear();
  lost_ = true;
  graph_.doubt();
}

void Order::compact() {
  graph_.compact([this](auto keep) {
    for (Chain& chain : chains_) keep(chain.clock);
  });
  for (auto entry = recorded_.begin(); entry != recorded_.end();)
    entry = graph_.has(entry->second) ? std::next(entry) : recorded_.erase(entry);
}

size_t Order::bytes() const {
  constexpr size_t kHashNode = sizeof(void*) + 2 * sizeof(uint64_t);
  size_t total = chains_.capacity() * sizeof(Chain) + contexts_.capacity() * sizeof(Context) +
                 recorded_.bucket_count() * sizeof(void*) + recorded_.size() * kHashNode +
                 reasons_.capacity() * sizeof(Reason);
  for (const Context& context : contexts_)
    total += (context.streams.capacity() + context.active.capacity()) * sizeof(uint32_t);
  return total;
}

}  // namespace tandem::dag
