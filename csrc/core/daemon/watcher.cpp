#include "daemon/watcher.h"

#include <algorithm>
#include <tuple>

#include "daemon/charge.h"

namespace tandem::daemon {
namespace {

std::vector<Snapshot> by_process(std::vector<Snapshot> snapshots) {
  std::sort(snapshots.begin(), snapshots.end(), [](const Snapshot& left, const Snapshot& right) {
    return left.process_id < right.process_id;
  });
  return snapshots;
}

}  // namespace

bool Watcher::add(std::shared_ptr<const Pages> pages, int64_t group, int gpu) {
  const uint64_t id = pages->process_id();
  if (find(id)) return false;
  auto added = std::make_unique<Watched>();
  added->gpu = gpu;
  added->group = group;
  added->snapshot.process_id = id;
  added->pages = std::move(pages);
  put(std::move(added));
  return true;
}

std::optional<Snapshot> Watcher::remove(uint64_t process_id) {
  const auto watched = take(process_id);
  if (!watched) return std::nullopt;
  if (watched->sampler && watched->sampler->under_way()) watched->pages->end_sample();
  watched->looker.look(*watched->pages, last_round_ns_, &watched->snapshot);
  return watched->snapshot;
}

bool Watcher::regroup(uint64_t process_id, int64_t group) {
  auto watched = take(process_id);
  if (!watched) return false;
  watched->group = group;
  put(std::move(watched));
  return true;
}

bool Watcher::weigh(uint64_t process_id, uint32_t sms, uint32_t most_sms) {
  Watched* watched = find(process_id);
  if (!watched) return false;
  watched->sms = sms;
  watched->most_sms = most_sms;
  return true;
}

Watcher::Place Watcher::place_of(uint64_t process_id) const {
  return std::find_if(watched_.begin(), watched_.end(),
                      [&](const auto& w) { return w->pages->process_id() == process_id; });
}

Watcher::Watched* Watcher::find(uint64_t process_id) const {
  const Place place = place_of(process_id);
  return place == watched_.end() ? nullptr : place->get();
}

std::optional<uint32_t> Watcher::begin_sample(uint64_t process_id, const SampleLimits& limits) {
  Watched* watched = find(process_id);
  if (!watched) return std::nullopt;
  if (!watched->sampler) watched->sampler = std::make_unique<Sampler>();
  // The window of a sample may continue after the sample.
  if (watched->sampler->under_way() || watched->window.wants_sampled()) return 0;
  if (limits.with_window) watched->window.want_sampled(last_round_ns_, watched->memory);
  return watched->sampler->begin(*watched->pages, limits);
}

std::optional<Sample> Watcher::take_sample(uint64_t process_id, uint32_t number) {
  Watched* watched = find(process_id);
  if (!watched || !watched->sampler || watched->window.wants_sampled()) return std::nullopt;
  std::optional<Sample> sample = watched->sampler->take(number);
  if (sample) sample->window = watched->window.take_sampled();
  return sample;
}

std::unique_ptr<Watcher::Watched> Watcher::take(uint64_t process_id) {
  const Place place = place_of(process_id);
  if (place == watched_.end()) return nullptr;
  auto taken = std::move(watched_[static_cast<size_t>(place - watched_.begin())]);
  watched_.erase(place);
  return taken;
}

void Watcher::put(std::unique_ptr<Watched> watched) {
  const auto key = [](const Watched& w) {
    return std::make_tuple(w.gpu, w.group, w.pages->process_id());
  };
  const auto place = std::find_if(watched_.begin(), watched_.end(),
                                  [&](const auto& w) { return key(*watched) < key(*w); });
  watched_.insert(place, std::move(watched));
}

bool Watcher::round(uint64_t now_ns) {
  charge_until(std::max(now_ns, last_round_ns_));
  const bool recording = records_.wanted(now_ns);
  bool changed = false;
  const bool room_matters = somebody_lacks_memory_;
  active_ = somebody_lacks_memory_ = false;
  for (const auto& watched : watched_) {
    const Snapshot before = watched->snapshot;
    const uint64_t overruns_before = overruns(*watched);
    watched->looker.look(*watched->pages, now_ns, &watched->snapshot);
    read_records(*watched, now_ns, recording);
    Snapshot& after = watched->snapshot;
    if (after.iterations != before.iterations) after.iteration_bytes = after.device_bytes;
    if (watched->sampler) watched->sampler->look(*watched->pages, watched->window.wanted(), now_ns);
    changed |= notable(before, after) || overruns(*watched) != overruns_before ||
               (room_matters && after.device_bytes != before.device_bytes);
    somebody_lacks_memory_ |= after.memory_ticket != 0;
    active_ |= after.busy || after.waiting_threads != 0 || after.memory_ticket != 0;
  }
  last_round_ns_ = now_ns;
  return changed;
}

void Watcher::charge_until(uint64_t now_ns) {
  if (!active_) return;
  std::vector<Claim> claims;
  for (const auto& w : watched_) {
    if (w->snapshot.busy) claims.push_back({w->gpu, w->group, w->sms, w->most_sms});
  }
  charge(now_ns - last_round_ns_, claims.data(), claims.size());
  auto claim = claims.begin();
  for (const auto& w : watched_) {
    if (!w->snapshot.busy) continue;
    w->snapshot.exclusive_ns += claim->exclusive_ns;
    w->snapshot.shared_ns += claim->shared_ns;
    w->snapshot.even_ns += claim->even_ns;
    w->window.charge(last_round_ns_, now_ns, claim->even_ns != 0);
    ++claim;
  }
}

void Watcher::read_records(Watched& watched, uint64_t now_ns, bool recording) {
  const TickClock clock = tick_clock(*watched.pages);
  scratch_.resize(shm::kRingRecords);
  shm::Record* const begin = recording ? records_.end() : nullptr;
  size_t count = 0;
  size_t rings_with_records = 0;
  if (detects_) choose_gaps(watched);
  const bool full = watched.reads++ % kAllRingsEvery == 0;
  for (uint32_t i = 0; i < shm::kRingCount; ++i) {
    if (!full && i > watched.used_rings) break;
    const RingReader::Result result = watched.rings[i].read(
        watched.pages->ring_headers()[i], watched.pages->ring(i), scratch_.data(), scratch_.size());
    watched.snapshot.dropped_records += result.dropped;
    if (result.copied == 0 && result.dropped == 0) continue;
    watched.used_rings = std::max(watched.used_rings, i + 1);
    for (size_t r = 0; r < result.copied; ++r)
      scratch_[r].ticks = clock.to_ns(scratch_[r].ticks, now_ns);
    for (size_t r = 0; r < result.copied; ++r) add_work(scratch_[r], &watched.snapshot);
    if (detects_) detect(watched, i, result);
    watched.snapshot.records += result.copied;
    if (!recording) continue;
    const size_t before = count;
    size_t lost = 0;
    for (size_t r = 0; r < result.copied; ++r) {
      if (!records_.wants(scratch_[r].kind)) continue;
      if (count < records_.room()) begin[count++] = scratch_[r];
      else ++lost;
    }
    watched.snapshot.records -= lost;
    watched.snapshot.dropped_records += lost;
    rings_with_records += count != before ? 1 : 0;
  }
  if (detects_) tell(watched, now_ns);
  if (!recording) return;
  if (rings_with_records > 1) {
    std::stable_sort(begin, begin + count, [](const shm::Record& left, const shm::Record& right) {
      return left.ticks < right.ticks;
    });
  }
  records_.append(watched.pages->process_id(), count);
}

// Feeds the records of `ring`, which are in scratch_, to the detectors.
void Watcher::detect(Watched& watched, uint32_t ring, const RingReader::Result& result) const {
  const shm::Record* records = scratch_.data();
  watched.iterating.take(ring, records, result.copied, result.dropped != 0);
  watched.memory.take(records, result.copied, result.dropped);
  watched.window.take(records, result.copied, result.dropped);
  if (watched.gaps) watched.gaps->take(records, result.copied, result.dropped);
  choose_requests(watched, records, result.copied);
  if (watched.requests) watched.requests->take(records, result.copied, result.dropped);
}

// Call after all rings: brings the snapshot up to date.
void Watcher::tell(Watched& watched, uint64_t now_ns) const {
  watched.memory.settle();
  watched.iterating.tell(&watched.snapshot);
  if (watched.gaps) watched.gaps->look(&watched.snapshot);
  if (watched.requests) {
    watched.requests->look(watched.snapshot, now_ns);
    watched.snapshot.marks_requests = watched.requests->kind() == dag::RequestKind::kMarked;
  }
  if (watched.window.wanted()) {
    watched.window.look(watched.snapshot.iterations, watched.iterating.last_end(),
                        watched.snapshot.iteration_ns, now_ns);
  }
}

void Watcher::add_work(const shm::Record& record, Snapshot* snapshot) {
  if (is_step(record)) snapshot->step_work_ns = snapshot->work_ns;
  const uint64_t work_ns = work_of(record);
  if (work_ns == 0) return;
  snapshot->work_ns = std::min<uint64_t>(snapshot->work_ns + work_ns, INT64_MAX);
  ++snapshot->timed_count;
}

// Only the gaps of the latency class matter to others.
void Watcher::choose_gaps(Watched& watched) {
  const uint32_t job_class =
      watched.pages->command().gate.job_class.load(std::memory_order_relaxed);
  const bool wanted = job_class == static_cast<uint32_t>(shm::JobClass::kLatency);
  if (wanted == (watched.gaps != nullptr)) return;
  watched.gaps = wanted ? std::make_unique<GapWatch>() : nullptr;
  watched.snapshot.gap_p50_ns = watched.snapshot.gap_p90_ns = 0;
}

// A process that marks its requests wants them watched. Marks alone delimit them, so no idle time
// is needed.
void Watcher::choose_requests(Watched& watched, const shm::Record* records, size_t count) {
  if (watched.requests) return;
  if (std::any_of(records, records + count, &dag::RequestFinder::is_request_mark))
    watched.requests = std::make_unique<RequestWatch>(0);
}

bool Watcher::want_window(uint64_t process_id) {
  Watched* watched = find(process_id);
  if (watched) watched->window.want(last_round_ns_, watched->memory);
  return watched != nullptr;
}

std::shared_ptr<const Window> Watcher::window(uint64_t process_id) const {
  const Watched* watched = find(process_id);
  return watched ? watched->window.newest() : nullptr;
}

uint64_t Watcher::overruns(const Watched& watched) {
  return watched.requests ? watched.requests->overruns() : 0;
}

std::optional<Requests> Watcher::take_requests(uint64_t process_id, uint64_t idle_ns,
                                               uint64_t limit_ns) {
  Watched* watched = find(process_id);
  if (!watched) return std::nullopt;
  if (!watched->requests) watched->requests = std::make_unique<RequestWatch>(idle_ns);
  watched->requests->limit(limit_ns);
  return watched->requests->told();
}

void Watcher::stamp(uint64_t tick_ns) const {
  for (const auto& watched : watched_) watched->pages->stamp(tick_ns);
}

std::vector<Snapshot> Watcher::snapshots() const {
  std::vector<Snapshot> out;
  out.reserve(watched_.size());
  for (const auto& watched : watched_) out.push_back(watched->snapshot);
  return by_process(std::move(out));
}

std::vector<MemoryClaim> Watcher::memory_claims() const {
  std::vector<MemoryClaim> out;
  out.reserve(watched_.size());
  for (const auto& watched : watched_) out.push_back(claim_now(*watched->pages));
  return out;
}

std::vector<Snapshot> Watcher::changed() {
  std::vector<Snapshot> out;
  for (const auto& watched : watched_) {
    if (watched->told && !differs(*watched->told, watched->snapshot)) continue;
    watched->told = watched->snapshot;
    out.push_back(watched->snapshot);
  }
  return by_process(std::move(out));
}

std::vector<RecordBuffer::Run> Watcher::take_records(size_t limit, uint32_t kinds) {
  records_.want(last_round_ns_, kinds);
  return records_.take(limit);
}

void Watcher::doorbells(std::vector<FutexWaiter>* waiters,
                        std::vector<std::shared_ptr<const Pages>>* held) const {
  for (const auto& watched : watched_) {
    waiters->push_back({&watched->pages->state().control.doorbell, watched->snapshot.doorbell});
    held->push_back(watched->pages);
  }
}

}  // namespace tandem::daemon
