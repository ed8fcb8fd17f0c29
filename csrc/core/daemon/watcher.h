// The attached processes, and one round over them: copy each state page, look for iterations in its
// telemetry and pass that on, charge GPU time. No thread, lock or clock of its own.
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
  // `detects`: look in the telemetry for iterations, phases, gaps and memory, and take windows. Without
  // it what the rest costs is told apart (bench/dag_live.py).
  explicit Watcher(bool detects = true) : detects_(detects) {}

  // False if the process is watched already.
  bool add(std::shared_ptr<const Pages> pages, int64_t group, int gpu);
  // A last look at it, its telemetry left out: what a process did just before it ended counts, too.
  // Nothing if it is not watched.
  std::optional<Snapshot> remove(uint64_t process_id);
  // False if it is not.
  bool regroup(uint64_t process_id, int64_t group);
  // What intervals that it shares with others are split by from now on (charge.h). False if it is not.
  bool weigh(uint64_t process_id, uint32_t sms, uint32_t most_sms);

  bool watches(uint64_t process_id) const { return find(process_id) != nullptr; }

  // True if something notable changed. The interval since the last round is charged to those that
  // were busy then: what was seen is taken to have lasted until now.
  bool round(uint64_t now_ns);
  // Was some process busy or waiting in the last round?
  bool active() const { return active_; }
  uint64_t last_round_ns() const { return last_round_ns_; }

  // Takes a window of the process, to be had from window() once it is complete. False if the process
  // is not watched.
  bool want_window(uint64_t process_id);
  // The newest; null if there is none, or not such a process.
  std::shared_ptr<const Window> window(uint64_t process_id) const;

  // The requests of the process that ended since the last call. From the first call on they are looked
  // for, marked ones from the first mark on. Idle is who asks nothing of the GPU for `idle_ns`. One that
  // takes longer than `limit_ns` is notable; 0 = none is. Nothing if the process is not watched.
  std::optional<Requests> take_requests(uint64_t process_id, uint64_t idle_ns, uint64_t limit_ns);

  void stamp(uint64_t tick_ns) const;
  std::vector<Snapshot> snapshots() const;  // by process_id
  std::vector<MemoryClaim> memory_claims() const;  // of each, looked at now and not in the last round
  // Only those that are new, or differ from what the last call had of them.
  std::vector<Snapshot> changed();
  std::vector<RecordBuffer::Run> take_records(size_t limit, uint32_t kinds = RecordBuffer::kAllKinds);

  // Asks a process for the parameters of its launches. Returns the sample's number: 0 = one is under
  // way, or its window; nothing = the process is not watched.
  std::optional<uint32_t> begin_sample(uint64_t process_id, const SampleLimits& limits);
  // The sample of that number of a process, once it and its window have ended, and then no more.
  std::optional<Sample> take_sample(uint64_t process_id, uint32_t number);

  // Appends every doorbell with the value the last round saw, and a reference that keeps it mapped.
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
    uint32_t used_rings = 0;  // one past the last that ever had a record
    uint32_t reads = 0;
    Iterating iterating;
    LiveMemory memory;
    WindowTaker window;
    std::unique_ptr<Sampler> sampler;  // from the first sample on
    std::unique_ptr<GapWatch> gaps;  // while it is of the latency class
    std::unique_ptr<RequestWatch> requests;  // once somebody asked, or the process marks one
  };

  // Threads take the lowest free ring, so most looks end one past the last ever used. Whoever took one
  // out of order, because those before it have written nothing yet, is found by every so manieth.
  static constexpr uint32_t kAllRingsEvery = 16;

  using Place = std::vector<std::unique_ptr<Watched>>::const_iterator;

  Place place_of(uint64_t process_id) const;  // the end if it is not watched
  Watched* find(uint64_t process_id) const;   // null then
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
  std::vector<std::unique_ptr<Watched>> watched_;  // by gpu, group, process_id: as charge() wants
  RecordBuffer records_;
  std::vector<shm::Record> scratch_;
  uint64_t last_round_ns_ = 0;
  bool active_ = false;
  bool somebody_lacks_memory_ = false;  // what others give back is news for it
};

}  // namespace tandem::daemon
