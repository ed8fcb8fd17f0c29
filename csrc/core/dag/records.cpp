#include "dag/records.h"

#include <algorithm>

namespace tandem::dag {
namespace {

using shm::RecordKind;

constexpr uint64_t kLegacyStream = 1, kPerThreadStream = 2;
constexpr uint64_t kStreamless = 0;  // the handle of no stream

bool is(const shm::Record& record, RecordKind kind) {
  return record.kind == static_cast<uint8_t>(kind);
}

bool has_flag(const shm::Record& record, uint8_t flag) { return (record.flags & flag) != 0; }

bool is_of_event(const shm::Record& record) {
  return is(record, RecordKind::kEventRecord) || is(record, RecordKind::kEventWait);
}

// An event of a whole context comes after what is in all its streams, or before what follows, and
// orders none of the streams with another. No rule expresses that, so it is only marked as possible
// order.
bool is_of_context(const shm::Record& record) {
  return is_of_event(record) && has_flag(record, shm::kRecordScattered);
}

StreamKind kind_of(const shm::Record& record) {
  if (is_of_context(record)) return StreamKind::kNonBlocking;
  if (record.stream == kLegacyStream) return StreamKind::kLegacy;
  return has_flag(record, shm::kRecordNonBlocking) ? StreamKind::kNonBlocking
                                                   : StreamKind::kBlocking;
}

Kind work_of(RecordKind kind) {
  switch (kind) {
    case RecordKind::kGraph: return Kind::kGraph;
    case RecordKind::kCopy: return Kind::kCopy;
    case RecordKind::kMemset: return Kind::kMemset;
    case RecordKind::kMemOp: return Kind::kMemOp;
    case RecordKind::kHostFunc: return Kind::kHostFunc;
    case RecordKind::kEventRecord: return Kind::kEventRecord;
    case RecordKind::kEventWait: return Kind::kEventWait;
    default: return Kind::kLaunch;
  }
}

// True if the record does not tell what the operation does to memory.
bool is_unresolved(const shm::Record& record) {
  switch (static_cast<RecordKind>(record.kind)) {
    case RecordKind::kLaunch:
    case RecordKind::kGraph:
    case RecordKind::kHostFunc: return true;
    case RecordKind::kCopy:
      return has_flag(record, shm::kRecordScattered) || shm::source_of(record) == 0;
    default: return has_flag(record, shm::kRecordScattered);
  }
}

uint8_t flags_of(const shm::Record& record) {
  uint8_t flags = 0;
  if (has_flag(record, shm::kRecordHostWaited)) flags |= kHostWaits;
  if (shm::is_launch(record) || is(record, RecordKind::kCopy)) flags |= kEstimated;
  if (has_flag(record, shm::kRecordProgrammatic)) flags |= kProgrammatic;
  if (is_of_context(record)) flags |= kUnknownOrder;
  else if (is_unresolved(record)) flags |= kUnresolved;
  return flags;
}

}  // namespace

bool is_stale(const shm::Record& record) {
  return shm::is_launch(record) && has_flag(record, shm::kRecordStale);
}

uint64_t effect_at(const shm::Record& record) {
  const bool waits = is(record, RecordKind::kSync) && record.duration_ns < record.ticks;
  return waits ? record.ticks - record.duration_ns : record.ticks;
}

void in_order(std::vector<shm::Record>* records, size_t ordered) {
  const auto before = [](const shm::Record& a, const shm::Record& b) {
    return effect_at(a) < effect_at(b);
  };
  const auto first = records->begin() + static_cast<ptrdiff_t>(ordered);
  if (first == records->end()) return;
  std::stable_sort(first, records->end(), before);
  // Most of what is sorted already stays in place.
  const auto reached = std::upper_bound(records->begin(), first, *first, before);
  std::inplace_merge(reached, first, records->end(), before);
}

NodeId Records::take(const shm::Record& record, bool is_resolved) {
  Operation op;
  if (!describe(record, &op)) return kNoNode;
  if (is_resolved) op.flags &= static_cast<uint8_t>(~kUnresolved);
  op.object = record.object;
  op.bytes = record.bytes;
  op.submitted_ns = effect_at(record);
  op.duration_ns = is_stale(record) ? 0 : record.duration_ns;
  return order_.add(op);
}

bool Records::describe(const shm::Record& record, Operation* op) {
  op->thread = thread(record.thread, shm::context_of(record));
  switch (static_cast<RecordKind>(record.kind)) {
    case RecordKind::kSync: return describe_sync(record, op);
    case RecordKind::kAlloc:
    case RecordKind::kFree:
      op->kind = is(record, RecordKind::kAlloc) ? Kind::kAlloc : Kind::kFree;
      if (has_flag(record, shm::kRecordInOrder)) op->stream = stream(record);
      return true;
    case RecordKind::kLaunch:
    case RecordKind::kGraph:
    case RecordKind::kCopy:
    case RecordKind::kMemset:
    case RecordKind::kMemOp:
    case RecordKind::kHostFunc:
    case RecordKind::kEventRecord:
    case RecordKind::kEventWait:
      op->kind = work_of(static_cast<RecordKind>(record.kind));
      op->stream = stream(record);
      op->flags = flags_of(record);
      if (op->kind == Kind::kLaunch) {
        op->blocks = record.grid_blocks;
        op->block_threads = static_cast<uint16_t>(std::min(record.block_threads, 65535u));
      }
      return true;
    default: return false;
  }
}

bool Records::describe_sync(const shm::Record& record, Operation* op) {
  switch (static_cast<shm::SyncOf>(shm::low_value(record))) {
    case shm::SyncOf::kStream:
      op->kind = Kind::kSyncStream;
      op->stream = stream(record);
      return true;
    case shm::SyncOf::kEvent: op->kind = Kind::kSyncEvent; return true;
    case shm::SyncOf::kContext:
      op->kind = Kind::kSyncContext;
      order_.use_context(op->thread, context(shm::context_of(record)));
      return true;
    default: return false;
  }
}

uint32_t Records::context(uint32_t number) {
  const auto found = contexts_.find(number);
  if (found != contexts_.end()) return found->second;
  return contexts_[number] = order_.add_context();
}

uint32_t Records::thread(uint32_t tid, uint32_t context_number) {
  const auto found = threads_.find(tid);
  if (found != threads_.end()) return found->second;
  const uint32_t number = order_.add_thread(context(context_number));
  tids_[number] = tid;
  return threads_[tid] = number;
}

uint32_t Records::stream(const shm::Record& record) {
  const uint64_t handle = is_of_context(record) ? kStreamless : record.stream;
  const uint32_t owner = handle == kPerThreadStream ? record.thread : 0;
  const Stream key = {handle, shm::context_of(record), owner, kind_of(record)};
  if (last_number_ != kNone && last_ == key) return last_number_;
  const auto found = numbers_.find(key);
  last_ = key;
  if (found != numbers_.end()) return last_number_ = found->second;
  last_number_ = order_.add_stream(context(key.context), key.kind);
  streams_[last_number_] = key;
  return numbers_[key] = last_number_;
}

}  // namespace tandem::dag
