// A job that writes recorded telemetry in a loop, as the shim would, at a given rate, and never
// idles. Once attached it prints "ready". For each line on stdin, a number of milliseconds, it
// writes for that long and prints how many launches, and how many records in all, it wrote.
//
//   dag_live SOCKET RECORDS LAUNCHES_PER_S
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <map>
#include <vector>

#include "attaching.h"
#include "ring_writer.h"

namespace {

using namespace tandem;

constexpr uint64_t kPaceNs = 200'000;  // how often the records that are due are written
// After a longer delay, the rest of what was due is skipped: catching up in one burst would be a
// different load.
constexpr uint64_t kLongestNs = 2'000'000;

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void sleep_until(uint64_t at_ns) {
  const timespec at{static_cast<time_t>(at_ns / 1'000'000'000),
                    static_cast<long>(at_ns % 1'000'000'000)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
}

std::vector<shm::Record> load(const char* path) {
  std::vector<shm::Record> records;
  FILE* file = fopen(path, "rb");
  shm::Record record;
  while (file && fread(&record, sizeof record, 1, file) == 1) records.push_back(record);
  if (file) fclose(file);
  return records;
}

bool is_launch(const shm::Record& record) {
  const auto kind = static_cast<shm::RecordKind>(record.kind);
  return kind == shm::RecordKind::kLaunch || kind == shm::RecordKind::kGraph;
}

class Job {
 public:
  Job(shm::StatePage* state, std::vector<shm::Record> records)
      : state_(state), records_(std::move(records)) {
    state->control.ns_per_tick_q32.store(uint64_t{1} << 32, std::memory_order_relaxed);
    auto* slot = reinterpret_cast<shm::Slot*>(reinterpret_cast<char*>(state) + shm::kSlotsOffset);
    slot->state.store(static_cast<uint32_t>(shm::SlotState::kLive), std::memory_order_relaxed);
    slot->issued.store(1, std::memory_order_release);  // never done: the process stays busy
  }

  void write_until_launched(uint64_t launches) {
    while (launches_ < launches) write_next();
  }

  uint64_t launches() const { return launches_; }
  uint64_t written() const { return written_; }

 private:
  void write_next() {
    shm::Record record = records_[written_++ % records_.size()];
    record.ticks = now_ns();
    launches_ += is_launch(record) ? 1 : 0;
    ring_of(record.thread).put(record);
  }

  RingWriter& ring_of(uint32_t thread) {
    RingWriter& ring = rings_[thread];
    if (!ring.belongs_to(state_)) ring.claim(state_, thread);
    return ring;
  }

  shm::StatePage* state_;
  std::vector<shm::Record> records_;
  std::map<uint32_t, RingWriter> rings_;
  uint64_t launches_ = 0;
  uint64_t written_ = 0;
};

void write_for(Job& job, uint64_t duration_ns, uint64_t launches_per_s) {
  const uint64_t launches = job.launches();
  const uint64_t written = job.written();
  const uint64_t end_ns = now_ns() + duration_ns;
  for (uint64_t last_ns = now_ns(); last_ns < end_ns;) {
    sleep_until(last_ns + kPaceNs);
    const uint64_t at_ns = now_ns();
    const uint64_t due_ns = std::min(at_ns - last_ns, kLongestNs);
    job.write_until_launched(job.launches() + due_ns * launches_per_s / 1'000'000'000);
    last_ns = at_ns;
  }
  printf("%llu %llu\n", static_cast<unsigned long long>(job.launches() - launches),
         static_cast<unsigned long long>(job.written() - written));
  fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  std::vector<shm::Record> records = load(argv[2]);
  const uint64_t launches_per_s = strtoull(argv[3], nullptr, 10);
  bool launches = false;
  for (const shm::Record& record : records) launches |= is_launch(record);
  if (!launches || launches_per_s == 0) return 2;
  shm::StatePage* state = bench::attach(argv[1], "dag_live");
  if (!state) return 1;
  Job job(state, std::move(records));
  puts("ready");
  fflush(stdout);
  unsigned long long milliseconds;
  while (scanf("%llu", &milliseconds) == 1)
    write_for(job, milliseconds * 1'000'000, launches_per_s);
  return 0;
}
