#include "runs.h"

#include <algorithm>

namespace tandem::shim::swap {

bool Runs::add(uint64_t at, uint64_t bytes) {
  if (!add_free(at, bytes)) return false;
  free_bytes_ += bytes;
  return true;
}

uint32_t Runs::take(uint64_t bytes) {
  if (bytes == 0 || bytes > free_bytes_) return 0;
  uint32_t first = 0;
  uint32_t last = 0;
  for (uint64_t left = bytes; left != 0;) {
    const size_t whole = first_that_holds(left);
    // If no run is large enough, takes from the front on: what is left is then in fewer runs than
    // before.
    const size_t index = whole < free_.size() ? whole : 0;
    const uint64_t part = std::min(left, free_[index].bytes);
    const uint32_t link = cut(index, part);
    if (!link) {
      give_back(first);
      return 0;
    }
    if (last) links_[last - 1].next = link;
    else first = link;
    last = link;
    left -= part;
  }
  return first;
}

void Runs::give_back(uint32_t first) {
  while (first) {
    Link& link = links_[first - 1];
    const uint32_t next = link.next;
    if (Closed* closed = closed_with(link.run.at)) {
      closed->out_bytes -= link.run.bytes;
      closed_bytes_ -= link.run.bytes;
    } else if (add_free(link.run.at, link.run.bytes)) {
      free_bytes_ += link.run.bytes;
    }
    link.next = unused_;
    unused_ = first;
    first = next;
  }
}

bool Runs::remove(uint64_t at, uint64_t bytes) {
  for (size_t i = 0; i < free_.size(); ++i) {
    if (free_[i].at != at || free_[i].bytes != bytes) continue;
    free_.erase(i);
    free_bytes_ -= bytes;
    return true;
  }
  return false;
}

bool Runs::close(uint64_t at, uint64_t bytes) {
  if (!closed_.push({{at, bytes}, 0})) return false;
  uint64_t left = 0;
  for (size_t i = 0; i < free_.size();) {
    if (free_[i].at - at >= bytes) {
      ++i;
      continue;
    }
    left += free_[i].bytes;
    free_.erase(i);
  }
  free_bytes_ -= left;
  closed_[closed_.size() - 1].out_bytes = bytes - left;
  closed_bytes_ += bytes - left;
  return true;
}

uint64_t Runs::out_of_closed(uint64_t at) {
  Closed* closed = closed_with(at);
  if (!closed) return 0;
  const uint64_t out_bytes = closed->out_bytes;
  if (!out_bytes) closed_.erase(static_cast<size_t>(closed - closed_.begin()));
  return out_bytes;
}

bool Runs::is_closed(uint64_t at) const {
  for (size_t i = 0; i < closed_.size(); ++i) {
    if (at - closed_[i].all.at < closed_[i].all.bytes) return true;
  }
  return false;
}

uint32_t Runs::look_at(uint32_t link, Run* out) const {
  *out = links_[link - 1].run;
  return links_[link - 1].next;
}

void Runs::clear() {
  free_.clear();
  closed_.clear();
  links_.clear();
  unused_ = 0;
  free_bytes_ = 0;
  closed_bytes_ = 0;
}

bool Runs::add_free(uint64_t at, uint64_t bytes) {
  const size_t after = static_cast<size_t>(
      std::lower_bound(free_.begin(), free_.end(), at,
                       [](const Run& run, uint64_t wanted) { return run.at < wanted; }) -
      free_.begin());
  const bool joins_next = after < free_.size() && free_[after].at == at + bytes;
  const bool joins_last = after > 0 && free_[after - 1].at + free_[after - 1].bytes == at;
  if (joins_last) {
    free_[after - 1].bytes += bytes;
    if (!joins_next) return true;
    free_[after - 1].bytes += free_[after].bytes;
    free_.erase(after);
    return true;
  }
  if (!joins_next) return free_.insert(after, {at, bytes});
  free_[after].at = at;
  free_[after].bytes += bytes;
  return true;
}

Runs::Closed* Runs::closed_with(uint64_t at) {
  for (Closed& closed : closed_) {
    if (at - closed.all.at < closed.all.bytes) return &closed;
  }
  return nullptr;
}

size_t Runs::first_that_holds(uint64_t bytes) const {
  size_t index = 0;
  while (index < free_.size() && free_[index].bytes < bytes) ++index;
  return index;
}

// The link of the run's first bytes.
uint32_t Runs::cut(size_t index, uint64_t bytes) {
  const uint32_t link = unused_link();
  if (!link) return 0;
  Run& run = free_[index];
  links_[link - 1] = {{run.at, bytes}, 0};
  free_bytes_ -= bytes;
  run.at += bytes;
  run.bytes -= bytes;
  if (run.bytes == 0) free_.erase(index);
  return link;
}

uint32_t Runs::unused_link() {
  if (const uint32_t link = unused_) {
    unused_ = links_[link - 1].next;
    return link;
  }
  return links_.push({}) ? static_cast<uint32_t>(links_.size()) : 0;
}

}  // namespace tandem::shim::swap
