#include "daemon/trace_reader.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tandem::daemon {
namespace {

using trace::TraceRing;

void append(std::string* out, const shm::Record& record) {
  out->append(reinterpret_cast<const char*>(&record), sizeof(record));
}

shm::Record blank(shm::RecordKind kind, uint64_t owner) {
  shm::Record record{};
  record.kind = static_cast<uint8_t>(kind);
  record.thread = static_cast<uint32_t>(owner);
  return record;
}

void begin_chunk(std::string* out, uint64_t owner, uint64_t records) {
  shm::Record chunk = blank(shm::RecordKind::kChunk, owner);
  chunk.object = owner >> 32;
  chunk.bytes = records;
  append(out, chunk);
}

// True for a thread that has ended but has not been reaped; signals still find it.
bool is_zombie(pid_t pid, pid_t tid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, tid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT;
  char text[128] = {};
  const ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  const char* end = length > 0 ? std::strrchr(text, ')') : nullptr;
  return end && (end[2] == 'Z' || end[2] == 'X');
}

bool is_dead(uint64_t owner) {
  const auto pid = static_cast<pid_t>(owner >> 32);
  const auto tid = static_cast<pid_t>(owner & 0xffffffff);
  if (pid <= 0 || tid <= 0) return true;  // no traced thread wrote that
  if (syscall(SYS_tgkill, pid, tid, 0) != 0) return errno == ESRCH;
  return is_zombie(pid, tid);
}

}  // namespace

TraceReader::~TraceReader() {
  if (fd_ >= 0) close(fd_);
}

Failure TraceReader::open(bool device_times, uint32_t wait_ms, uint64_t key) {
  fd_ = memfd_create("tandem-trace", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd_ < 0) return {errno, "memfd_create"};
  if (fchmod(fd_, 0600) != 0) return {errno, "fchmod"};
  if (ftruncate(fd_, static_cast<off_t>(trace::kTraceBytes)) != 0) return {errno, "ftruncate"};
  if (fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return {errno, "fcntl"};
  if (Failure failure = map_.map(fd_, trace::kTraceBytes, true)) return failure;
  trace::TraceHeader& made = header();
  made.version = trace::kTraceVersion;
  made.key = key;
  made.device_times = device_times ? 1 : 0;
  made.wait_ms = wait_ms;
  made.magic = trace::kTraceMagic;
  return {};
}

bool TraceReader::drain(bool look_for_dead, std::string* out) {
  bool any = false;
  for (uint32_t i = 0; i < trace::kTraceRings; ++i) {
    TraceRing& one = ring(i);
    const uint64_t owner = one.owner.owner.load(std::memory_order_acquire);
    if (owner == 0) continue;
    // Checked before its records are read: a ring seen as ended has all of them written.
    const bool is_done =
        one.owner.ended.load(std::memory_order_acquire) != 0 || (look_for_dead && is_dead(owner));
    any |= drain_ring(i, out);
    if (is_done) finish_ring(i, out);
  }
  return any;
}

bool TraceReader::drain_ring(uint32_t index, std::string* out) {
  TraceRing& one = ring(index);
  const uint64_t owner = one.owner.owner.load(std::memory_order_relaxed);
  const uint64_t head = one.writer.head.load(std::memory_order_acquire);
  const uint64_t tail = one.reader.tail.load(std::memory_order_relaxed);
  const uint64_t lost = one.writer.lost.load(std::memory_order_relaxed);
  uint64_t count = head - tail;
  if (count > trace::kTraceRingRecords) count = 0;  // the writer has gone mad: keep nothing of it
  const uint64_t newly_lost = lost - lost_seen_[index];
  if (count == 0 && newly_lost == 0) return false;
  begin_chunk(out, owner, count + (newly_lost ? 1 : 0));
  const shm::Record* records = data(index);
  const uint64_t at = tail % trace::kTraceRingRecords;
  const uint64_t first =
      count < trace::kTraceRingRecords - at ? count : trace::kTraceRingRecords - at;
  out->append(reinterpret_cast<const char*>(records + at), first * sizeof(shm::Record));
  out->append(reinterpret_cast<const char*>(records), (count - first) * sizeof(shm::Record));
  one.reader.tail.store(tail + count, std::memory_order_release);  // writer: acquire
  if (newly_lost) {
    shm::Record record = blank(shm::RecordKind::kLost, owner);
    record.value = newly_lost;
    append(out, record);
    lost_ += newly_lost;
    lost_seen_[index] = lost;
  }
  return true;
}

void TraceReader::finish_ring(uint32_t index, std::string* out) {
  TraceRing& one = ring(index);
  const uint64_t owner = one.owner.owner.load(std::memory_order_relaxed);
  if (const uint64_t inside = one.writer.inside.load(std::memory_order_acquire)) {
    begin_chunk(out, owner, 1);
    shm::Record record = blank(shm::RecordKind::kCall, owner);
    record.ticks = one.writer.inside_since.load(std::memory_order_relaxed);
    record.flags = trace::kCallUnfinished;
    record.slot = static_cast<uint16_t>(inside - 1);
    record.stream = trace::kNoTraceStream;
    record.object = one.writer.inside_number.load(std::memory_order_relaxed);
    append(out, record);
    one.writer.inside.store(0, std::memory_order_relaxed);
  }
  one.owner.ended.store(0, std::memory_order_relaxed);
  one.owner.owner.store(0, std::memory_order_release);  // pairs with the next claimer's acquire
}

uint32_t TraceReader::threads() const {
  uint32_t count = 0;
  for (uint32_t i = 0; i < trace::kTraceRings; ++i)
    count += ring(i).owner.owner.load(std::memory_order_relaxed) != 0;
  return count;
}

uint64_t TraceReader::lost() const { return lost_ + header().lost.load(std::memory_order_relaxed); }

trace::TraceHeader& TraceReader::header() const {
  return *static_cast<trace::TraceHeader*>(map_.base());
}
TraceRing& TraceReader::ring(uint32_t index) const {
  auto* first =
      reinterpret_cast<TraceRing*>(static_cast<char*>(map_.base()) + sizeof(trace::TraceHeader));
  return first[index];
}
const shm::Record* TraceReader::data(uint32_t index) const {
  const char* base = static_cast<const char*>(map_.base()) + trace::kTraceDataOffset;
  return reinterpret_cast<const shm::Record*>(base + size_t{index} * trace::kTraceRingBytes);
}

}  // namespace tandem::daemon
