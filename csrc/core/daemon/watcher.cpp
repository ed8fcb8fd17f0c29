#include "daemon/watcher.h"

#include <algorithm>
#include <tuple>

#include "daemon/charge.h"

namespace tandem::daemon {

bool Watcher::add(std::shared_ptr<const Pages> pages, int64_t group, int gpu) {
  const uint64_t id = pages->process_id();
  for (const auto& other : watched_) {
    if (other->pages->process_id() == id) return false;
  }
  auto added = std::make_unique<Watched>();
  added->gpu = gpu;
  added->group = group;
  added->snapshot.process_id = id;
  added->pages = std::move(pages);
  put(std::move(added));
  return true;
}

bool Watcher::remove(uint64_t process_id) { return take(process_id) != nullptr; }

bool Watcher::regroup(uint64_t process_id, int64_t group) {
  auto watched = take(process_id);
  if (!watched) return false;
  watched->group = group;
  put(std::move(watched));
  return true;
}

std::unique_ptr<Watcher::Watched> Watcher::take(uint64_t process_id) {
  const auto found = std::find_if(watched_.begin(), watched_.end(), [&](const auto& w) {
    return w->pages->process_id() == process_id;
  });
  if (found == watched_.end()) return nullptr;
  auto taken = std::move(*found);
  watched_.erase(found);
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
  charge_since(now_ns > last_round_ns_ ? now_ns - last_round_ns_ : 0);
  const bool recording = records_.wanted(now_ns);
  bool changed = false;
  active_ = false;
  for (const auto& watched : watched_) {
    const Snapshot before = watched->snapshot;
    watched->looker.look(*watched->pages, now_ns, &watched->snapshot);
    recording ? keep_records(*watched, now_ns) : pass_over_records(*watched);
    changed |= notable(before, watched->snapshot);
    active_ |= watched->snapshot.busy || watched->snapshot.waiting_threads != 0;
  }
  last_round_ns_ = now_ns;
  return changed;
}

void Watcher::charge_since(uint64_t interval_ns) {
  if (!active_) return;
  std::vector<Claim> claims;
  for (const auto& w : watched_) {
    if (w->snapshot.busy) claims.push_back({w->gpu, w->group, 0, 0});
  }
  charge(interval_ns, claims.data(), claims.size());
  auto claim = claims.begin();
  for (const auto& w : watched_) {
    if (!w->snapshot.busy) continue;
    w->snapshot.exclusive_ns += claim->exclusive_ns;
    w->snapshot.shared_ns += claim->shared_ns;
    ++claim;
  }
}

void Watcher::keep_records(Watched& watched, uint64_t now_ns) {
  const TickClock clock = tick_clock(*watched.pages);
  shm::Record* const begin = records_.end();
  size_t count = 0;
  size_t rings_with_records = 0;
  for (uint32_t i = 0; i < shm::kRingCount; ++i) {
    const RingReader::Result result = watched.rings[i].read(
        watched.pages->ring_headers()[i], watched.pages->ring(i), begin + count,
        records_.room() - count);
    watched.snapshot.records += result.copied;
    watched.snapshot.dropped_records += result.dropped;
    count += result.copied;
    rings_with_records += result.copied != 0 ? 1 : 0;
  }
  for (shm::Record* r = begin; r != begin + count; ++r) r->ticks = clock.to_ns(r->ticks, now_ns);
  if (rings_with_records > 1) {
    std::stable_sort(begin, begin + count, [](const shm::Record& left, const shm::Record& right) {
      return left.ticks < right.ticks;
    });
  }
  records_.append(watched.pages->process_id(), count);
}

void Watcher::pass_over_records(Watched& watched) {
  for (uint32_t i = 0; i < shm::kRingCount; ++i) {
    watched.snapshot.records += watched.rings[i].skip(watched.pages->ring_headers()[i]);
  }
}

void Watcher::stamp(uint64_t tick_ns) const {
  for (const auto& watched : watched_) watched->pages->stamp(tick_ns);
}

std::vector<Snapshot> Watcher::snapshots() const {
  std::vector<Snapshot> out;
  out.reserve(watched_.size());
  for (const auto& watched : watched_) out.push_back(watched->snapshot);
  std::sort(out.begin(), out.end(), [](const Snapshot& left, const Snapshot& right) {
    return left.process_id < right.process_id;
  });
  return out;
}

std::vector<RecordBuffer::Run> Watcher::take_records(size_t limit) {
  records_.want(last_round_ns_);
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
