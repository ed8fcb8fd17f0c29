#include "dag/gaps.h"

#include <algorithm>

namespace tandem::dag {
namespace {

using shm::RecordKind;

RecordKind kind_of(const shm::Record& record) { return static_cast<RecordKind>(record.kind); }

}  // namespace

bool GapFinder::concerns(const shm::Record& record) {
  const RecordKind kind = kind_of(record);
  return shm::is_launch(record) || kind == RecordKind::kCopy || kind == RecordKind::kMemset ||
         kind == RecordKind::kSync;
}

void GapFinder::take(const shm::Record& record) {
  if (!concerns(record)) return;
  if (kind_of(record) == RecordKind::kSync) wait(record);
  else submit(record);
}

void GapFinder::lose() {
  gaps_.clear();
  std::fill_n(streams_, kStreams, Stream{});
  busy_until_ns_ = kNotKnown;
}

GapFinder::Stream& GapFinder::stream_of(const shm::Record& record) {
  const uint64_t hash = (record.stream + shm::context_of(record)) * 0x9e3779b97f4a7c15u;
  return streams_[(hash >> 32) % kStreams];
}

void GapFinder::submit(const shm::Record& record) {
  const bool is_over = record.flags & shm::kRecordHostWaited;  // by the time it was recorded
  const bool is_known = record.duration_ns || !shm::is_launch(record);
  const uint64_t back = is_over ? std::min(record.duration_ns, record.ticks) : 0;
  end_gap(record.ticks - back);
  Stream& stream = stream_of(record);
  stream.context = shm::context_of(record);
  const uint64_t start = std::max(record.ticks, stream.end_ns);
  const bool fits = is_known && record.duration_ns < kNotKnown - start;
  if (is_over) set_end(stream, record.ticks);
  else set_end(stream, fits ? start + record.duration_ns : kNotKnown);
}

void GapFinder::end_gap(uint64_t at_ns) {
  if (at_ns > busy_until_ns_ && at_ns - busy_until_ns_ >= kShortestNs)
    gaps_.add(at_ns - busy_until_ns_);
}

void GapFinder::wait(const shm::Record& record) {
  const auto what = static_cast<shm::SyncOf>(shm::low_value(record));
  const bool waited = !(record.flags & shm::kRecordQueried) && record.duration_ns >= kNoticedNs;
  const auto settle = [&](Stream& stream) {
    if (waited || record.ticks < stream.end_ns) set_end(stream, record.ticks);
  };
  if (what == shm::SyncOf::kStream) settle(stream_of(record));
  if (what != shm::SyncOf::kContext) return;
  for (Stream& stream : streams_) {
    if (stream.end_ns && stream.context == shm::context_of(record)) settle(stream);
  }
}

void GapFinder::set_end(Stream& stream, uint64_t end_ns) {
  const bool was_latest = stream.end_ns == busy_until_ns_ || busy_until_ns_ == kNotKnown;
  stream.end_ns = end_ns;
  if (end_ns >= busy_until_ns_ || !was_latest) {
    busy_until_ns_ = std::max(busy_until_ns_, end_ns);
    return;
  }
  busy_until_ns_ = 0;
  for (const Stream& one : streams_) busy_until_ns_ = std::max(busy_until_ns_, one.end_ns);
}

}  // namespace tandem::dag
