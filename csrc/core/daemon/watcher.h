// The attached processes, and one round over them: copies each state page, looks for iterations in
// the telemetry and passes it on, charges GPU time. Has no thread, lock or clock of its own.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "daemon/futex.h"
#include "daemon/gap_watch.h"
#include "daemon/iterating.h"
#include "daemon/live_memory.h"
#include "daemon/record_buffer.h"
#include "daemon/request_watch.h"
#include "daemon/ring_reader.h"
#include "daemon/sampler.h"
#include "daemon/shared.h"
#include "daemon/snapshot.h"
#include "daemon/window.h"

namespace tandem::daemon {

class Watcher {
 public:
  // `detects`: look for iterations, phases, gaps and memory in the telemetry, and take windows.
  // Without it, the cost of the rest can be measured separately (bench/dag_live.py).
  explicit Watcher(bool detects = true) : detects_(detects) {}

  // Returns false if the process is watched already.
  bool add(std::shared_ptr<const Pages> pages, int64_t group, int gpu);
  // Takes a last look at the process without its telemetry: what it did just before it ended
  // counts, too. Returns nothing if it is not watched.
  std::optional<Snapshot> remove(uint64_t process_id);
  // Returns false if the process is not watched.
  bool regroup(uint64_t process_id, int64_t group);
  // Sets the weight by which intervals shared with others are split from now on (charge.h). Returns
  // false if the process is not watched.
  bool weigh(uint64_t process_id, uint32_t sms, uint32_t most_sms);

  bool watches(uint64_t process_id) const { return find(process_id) != nullptr; }

  // Returns true if something notable changed. Charges the interval since the last round to the
  // processes that were busy then, assuming that what that round saw has lasted until now.
  bool round(uint64_t now_ns);
  // True if some process was busy or waiting in the last round.
  bool active() const { return active_; }
  uint64_t last_round_ns() const { return last_round_ns_; }

  // Takes a window of the process, which window() returns once it is complete. Returns false if the
  // process is not watched.
  bool want_window(uint64_t process_id);
  // The newest window; null if there is none, or the process is not watched.
  std::shared_ptr<const Window> window(uint64_t process_id) const;

  // Returns the requests of the process that ended since the last call. Requests are looked for
  // from the first call on, marked ones from the first mark on. The process counts as idle once it
  // asks nothing of the GPU for `idle_ns`. A request that takes longer than `limit_ns` is notable;
  // 0 = none is. Returns nothing if the process is not watched.
  std::optional<Requests> take_requests(uint64_t process_id, uint64_t idle_ns, uint64_t limit_ns);

  void stamp(uint64_t tick_ns) const;
  std::vector<Snapshot> snapshots() const;         // by process_id
  std::vector<MemoryClaim> memory_claims() const;  // of each, read now, not in the last round
  // Only snapshots that are new or differ from what the last call returned.
  std::vector<Snapshot> changed();
  std::vector<RecordBuffer::Run> take_records(size_t limit,
                                              uint32_t kinds = RecordBuffer::kAllKinds);

  // Asks a process for the parameters of its launches. Returns the sample's number; 0 = another
  // sample, or its window, is in progress; nothing = the process is not watched.
  std::optional<uint32_t> begin_sample(uint64_t process_id, const SampleLimits& limits);
  // Returns that sample of the process, once, after it and its window have ended.
  std::optional<Sample> take_sample(uint64_t process_id, uint32_t number);

  // Appends each doorbell with the value that the last round saw, and a reference that keeps it
  // mapped.
  void doorbells(std::vector<FutexWaiter>* waiters,
                 std::vector<std::shared_ptr<const Pages>>* held) const;

 private:
  struct Watched {
    std::shared_ptr<const Pages> pages;
    int gpu;
    int64_t group;
    uint32_t sms = 0;  // as in Claim
    uint32_t most_sms = 0;
    Looker looker;
    Snapshot snapshot;
    std::optional<Snapshot> told;  // by changed()
    RingReader rings[shm::kRingCount];
    uint32_t used_rings = 0;  // one past the last ring that ever had a record
    uint32_t reads = 0;
    Iterating iterating;
    LiveMemory memory;
    WindowTaker window;
    std::unique_ptr<Sampler> sampler;        // from the first sample on
    std::unique_ptr<GapWatch> gaps;          // while the process is of the latency class
    std::unique_ptr<RequestWatch> requests;  // once somebody asked, or the process marks a request
  };

  // Threads take the lowest free ring, so most looks end one past the last ring ever used. A ring
  // taken out of order, because those before it have no records yet, is found by every
  // kAllRingsEvery-th look.
  static constexpr uint32_t kAllRingsEvery = 16;

  using Place = std::vector<std::unique_ptr<Watched>>::const_iterator;

  Place place_of(uint64_t process_id) const;  // the end if it is not watched
  Watched* find(uint64_t process_id) const;   // null if it is not watched
  std::unique_ptr<Watched> take(uint64_t process_id);
  void put(std::unique_ptr<Watched> watched);
  void charge_until(uint64_t now_ns);
  void read_records(Watched& watched, uint64_t now_ns, bool recording);
  void detect(Watched& watched, uint32_t ring, const RingReader::Result& result) const;
  void tell(Watched& watched, uint64_t now_ns) const;
  static uint64_t overruns(const Watched& watched);
  static void choose_gaps(Watched& watched);
  static void choose_requests(Watched& watched, const shm::Record* records, size_t count);
  static void add_work(const shm::Record& record, Snapshot* snapshot);

  const bool detects_;
  std::vector<std::unique_ptr<Watched>> watched_;  // by gpu, group, process_id, for charge()
  RecordBuffer records_;
  std::vector<shm::Record> scratch_;
  uint64_t last_round_ns_ = 0;
  bool active_ = false;
  bool somebody_lacks_memory_ = false;  // then memory that others give back is notable
};

}  // namespace tandem::daemon
