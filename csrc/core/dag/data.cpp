#include "dag/data.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace tandem::dag {
namespace {

uint64_t end_of(const Access& access) {
  const uint64_t end = access.address + access.bytes;
  return end < access.address ? UINT64_MAX : end;
}

bool uses_memory(Kind kind) {
  return kind <= Kind::kHostFunc || kind == Kind::kAlloc || kind == Kind::kFree;
}

}  // namespace

void Data::add(const Access* accesses, size_t count) {
  const NodeId id = graph_.end() - 1;
  const Operation op = graph_.node(id).op;
  accesses_.clear();
  reasons_.clear();
  if (accesses) {
    for (size_t i = 0; i < count; ++i) note(accesses[i]);
  } else if (uses_memory(op.kind)) {
    add_own(op);
  }
  if (graph_.node(id).op.flags & kUnresolved) block(id);
  else apply(id, op.kind);
  add_edges(id);
}

void Data::note(const Access& access) {
  if (access.bytes == 0) return;
  accesses_.push_back(access);
  graph_.add_access(access);
}

// Adds what the operation itself says about the memory it uses.
void Data::add_own(const Operation& op) {
  uint64_t bytes = op.bytes;
  if (op.kind == Kind::kAlloc && allocated_.size() < kMostAllocations)
    allocated_[op.object] = bytes;
  if (op.kind == Kind::kFree) {
    const auto found = allocated_.find(op.object);
    if (found != allocated_.end()) {
      if (bytes == 0) bytes = found->second;
      allocated_.erase(found);
    }
  }
  const bool says_all =
      op.kind == Kind::kMemset || op.kind == Kind::kAlloc || op.kind == Kind::kFree;
  if (says_all && bytes != 0) note({op.object, bytes, false});
  else graph_.set_flags(kUnresolved);
}

// All reads before all writes, or the node would seem to read what it has written itself.
void Data::apply(NodeId id, Kind kind) {
  for (const Access& access : accesses_) {
    if (access.is_const) read(id, access.address, end_of(access));
  }
  for (const Access& access : accesses_) {
    if (access.is_const) continue;
    if (kind != Kind::kAlloc) write(id, access.address, end_of(access));
    if (kind == Kind::kAlloc || kind == Kind::kFree) forget(access.address, end_of(access));
  }
}

void Data::because(NodeId from, EdgeKind kind) {
  if (from != kNoNode && graph_.has(from)) reasons_.push_back({from, kind});
}

// Splits the range that contains `address`, if any. Returns the first range at or after the
// address.
Data::Uses::iterator Data::split(uint64_t address) {
  const auto next = uses_.lower_bound(address);
  if (next == uses_.begin()) return next;
  const auto cut = std::prev(next);
  if (cut->second.end <= address) return next;
  const auto behind = uses_.emplace_hint(next, address, cut->second);
  cut->second.end = address;
  return behind;
}

void Data::read(NodeId id, uint64_t begin, uint64_t end) {
  split(end);
  auto use = split(begin);
  while (begin < end) {
    const uint64_t gap_end = use == uses_.end() ? end : std::min(end, use->first);
    if (begin < gap_end) {  // not used since the barrier
      because_of_barrier();
      use = std::next(uses_.emplace_hint(use, begin, Use{gap_end, barrier_, {id}}));
      begin = gap_end;
    } else {
      begin = use->second.end;
      read_use(id, use++->second);
    }
  }
}

void Data::read_use(NodeId id, Use& use) {
  const bool is_unknown = use.writer == barrier_;
  because(use.writer, is_unknown ? EdgeKind::kUnknownData : EdgeKind::kReadAfterWrite);
  if (!use.readers.empty() && use.readers.back() == id) return;
  if (use.readers.size() >= kMostReaders) {
    for (const NodeId reader : use.readers) because(reader, EdgeKind::kUnknownData);
    use.readers.clear();
  }
  use.readers.push_back(id);
}

void Data::write(NodeId id, uint64_t begin, uint64_t end) {
  split(end);
  const auto first = split(begin);
  uint64_t covered = begin;
  auto use = first;
  for (; use != uses_.end() && use->first < end; ++use) {
    if (covered < use->first) because_of_barrier();
    after_uses(use->second, EdgeKind::kWriteAfterRead, EdgeKind::kWriteAfterWrite);
    covered = use->second.end;
  }
  if (covered < end) because_of_barrier();
  uses_.emplace_hint(uses_.erase(first, use), begin, Use{end, id, {}});
}

void Data::after_uses(const Use& use, EdgeKind after_reads, EdgeKind after_writes) {
  for (const NodeId reader : use.readers) because(reader, after_reads);
  if (!use.readers.empty()) return;
  because(use.writer, use.writer == barrier_ ? EdgeKind::kUnknownData : after_writes);
}

void Data::forget(uint64_t begin, uint64_t end) {
  const auto last = split(end);
  uses_.erase(split(begin), last);
}

void Data::block(NodeId id) {
  because_of_barrier();
  for (const auto& [begin, use] : uses_)
    after_uses(use, EdgeKind::kUnknownData, EdgeKind::kUnknownData);
  uses_.clear();
  barrier_ = id;
}

void Data::add_edges(NodeId id) {
  const auto order = [](const Reason& reason) { return std::tuple(reason.from, reason.kind); };
  std::sort(reasons_.begin(), reasons_.end(),
            [&](const Reason& a, const Reason& b) { return order(a) > order(b); });
  const auto last = std::unique(reasons_.begin(), reasons_.end(),
                                [&](auto& a, auto& b) { return order(a) == order(b); });
  for (auto reason = reasons_.begin(); reason != last; ++reason) {
    if (reason->from != id) graph_.add_edge(reason->from, reason->kind);
  }
}

void Data::lose() {
  uses_.clear();
  allocated_.clear();
  barrier_ = kNoNode;
}

void Data::compact() {
  const auto is_gone = [this](NodeId id) { return !graph_.has(id); };
  for (auto entry = uses_.begin(); entry != uses_.end();) {
    Use& use = entry->second;
    if (use.writer != kNoNode && is_gone(use.writer)) use.writer = kNoNode;
    use.readers.erase(std::remove_if(use.readers.begin(), use.readers.end(), is_gone),
                      use.readers.end());
    entry = use.writer == kNoNode && use.readers.empty() ? uses_.erase(entry) : std::next(entry);
  }
  if (barrier_ != kNoNode && is_gone(barrier_)) barrier_ = kNoNode;
}

size_t Data::bytes() const {
  constexpr size_t kTreeNode = 4 * sizeof(void*);  // of libstdc++, in addition to the value
  constexpr size_t kHashNode = sizeof(void*) + 2 * sizeof(uint64_t);
  size_t total = uses_.size() * (kTreeNode + sizeof(Uses::value_type)) +
                 allocated_.bucket_count() * sizeof(void*) + allocated_.size() * kHashNode +
                 accesses_.capacity() * sizeof(Access) + reasons_.capacity() * sizeof(Reason);
  for (const auto& [begin, use] : uses_) total += use.readers.capacity() * sizeof(NodeId);
  return total;
}

}  // namespace tandem::dag
