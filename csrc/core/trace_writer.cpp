#include "trace_writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <ctime>

#include "clock.h"
#include "system_calls.h"

namespace tandem::trace {
namespace {

constexpr size_t kHeaderBytes = kTraceDataOffset;
constexpr uint64_t kFirstPauseNs = 20'000;
constexpr uint64_t kLongestPauseNs = 1'000'000;

// Waits in real time, even on the software GPU's virtual clock, because it waits for the tracer.
void pause_ns(uint64_t ns) {
  const timespec length{0, static_cast<long>(ns)};
  nanosleep(&length, nullptr);
}

}  // namespace

bool TraceMap::open(const char* place) {
  const char* colon = std::strrchr(place, ':');
  char path[64];
  if (!colon || static_cast<size_t>(colon - place) >= sizeof(path)) return false;
  std::memcpy(path, place, static_cast<size_t>(colon - place));
  path[colon - place] = '\0';
  uint64_t key = 0;  // from glibc 2.38 on, strtoull is a different symbol
  std::from_chars(colon + 1, colon + 1 + std::strlen(colon + 1), key, 16);
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat found{};
  void* base = MAP_FAILED;
  if (file_status(fd, &found) && static_cast<size_t>(found.st_size) == kTraceBytes)
    base = mmap(nullptr, kHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    close(fd);
    return false;
  }
  auto* header = static_cast<TraceHeader*>(base);
  if (header->magic != kTraceMagic || header->version != kTraceVersion || header->key != key) {
    munmap(base, kHeaderBytes);
    close(fd);
    return false;
  }
  header_ = header;
  rings_ = reinterpret_cast<TraceRing*>(static_cast<char*>(base) + sizeof(TraceHeader));
  fd_ = fd;
  return true;
}

bool TraceWriter::claim(const TraceMap& map, uint32_t pid, uint32_t tid, bool patient) {
  const uint64_t me = uint64_t{pid} << 32 | tid;
  wait_ms_ = map.header().wait_ms;
  const uint64_t start = monotonic_ns();
  do {
    for (uint32_t i = 0; i < kTraceRings; ++i) {
      uint64_t free = 0;
      TraceRing& ring = map.ring(i);
      // acquire: sees what the reader reset before it freed the ring.
      if (ring.owner.owner.load(std::memory_order_relaxed) != 0 ||
          !ring.owner.owner.compare_exchange_strong(free, me, std::memory_order_acquire)) {
        continue;
      }
      void* data =
          mmap(nullptr, kTraceRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, map.descriptor(),
               static_cast<off_t>(kTraceDataOffset + size_t{i} * kTraceRingBytes));
      if (data == MAP_FAILED) {
        ring.owner.owner.store(0, std::memory_order_release);
        return false;
      }
      ring_ = &ring;
      data_ = static_cast<shm::Record*>(data);
      head_ = ring.writer.head.load(std::memory_order_relaxed);
      tail_ = ring.reader.tail.load(std::memory_order_acquire);
      is_stalled_ = false;
      return true;
    }
    if (patient) pause_ns(kLongestPauseNs);
  } while (patient && monotonic_ns() - start < uint64_t{wait_ms_} * 1'000'000);
  return false;
}

void TraceWriter::enter(uint64_t call, uint64_t number, uint64_t now_ns) {
  ring_->writer.inside_since.store(now_ns, std::memory_order_relaxed);
  ring_->writer.inside_number.store(number, std::memory_order_relaxed);
  ring_->writer.inside.store(call + 1, std::memory_order_release);
}

void TraceWriter::leave() { ring_->writer.inside.store(0, std::memory_order_relaxed); }

bool TraceWriter::put(const shm::Record& head, const uint64_t* words, const char* text) {
  if (!wait_for_room(records_for(head.grid_blocks, head.block_threads))) {
    ring_->writer.lost.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  write_event(head, words, text,
              [this]() -> shm::Record& { return data_[head_++ % kTraceRingRecords]; });
  ring_->writer.head.store(head_, std::memory_order_release);  // tracer: acquire
  return true;
}

bool TraceWriter::wait_for_room(uint64_t records) {
  const auto has_room = [&] { return head_ + records - tail_ <= kTraceRingRecords; };
  if (has_room()) return true;
  uint64_t since = monotonic_ns();
  for (uint64_t pause = kFirstPauseNs;; pause = pause < kLongestPauseNs ? 2 * pause : pause) {
    // acquire: pairs with the reader's release, after which it looks at those records no more.
    const uint64_t tail = ring_->reader.tail.load(std::memory_order_acquire);
    if (tail != tail_) {
      tail_ = tail;
      is_stalled_ = false;
      since = monotonic_ns();
    }
    if (has_room()) return true;
    if (is_stalled_ || monotonic_ns() - since >= uint64_t{wait_ms_} * 1'000'000) {
      is_stalled_ = true;
      return false;
    }
    pause_ns(pause);
  }
}

void TraceWriter::give_back() {
  if (!ring_) return;
  munmap(data_, kTraceRingBytes);
  ring_->owner.ended.store(1, std::memory_order_release);  // tracer: acquire
  *this = TraceWriter{};
}

void TraceWriter::forget() {
  if (ring_) munmap(data_, kTraceRingBytes);
  *this = TraceWriter{};
}

}  // namespace tandem::trace
