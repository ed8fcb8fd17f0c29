#include "pool_arena.h"

#include <algorithm>
#include <iterator>

namespace softgpu {

bool PoolArena::claim(size_t bytes, size_t capacity, size_t* offset) {
  size_t at = 0;
  for (const auto& [begin, segment] : segments_) {
    if (begin - at >= bytes) break;
    at = begin + segment.bytes;
  }
  if (at > capacity || bytes > capacity - at) return false;
  segments_.emplace(at, Segment{bytes, 0});
  *offset = at;
  return true;
}

void PoolArena::back(size_t offset, uint64_t allocation) {
  Segment& segment = segments_.at(offset);
  segment.allocation = allocation;
  free_.emplace(offset, Free{segment.bytes, {}});
  join_around(offset);
}

bool PoolArena::wholly_free(size_t offset, size_t bytes) const {
  auto part = free_.upper_bound(offset);
  if (part == free_.begin()) return false;
  --part;
  return part->second.freed.stream == 0 && part->first + part->second.bytes >= offset + bytes;
}

void PoolArena::forget(size_t offset) {
  const Segment gone = segments_.at(offset);
  segments_.erase(offset);
  if (gone.allocation == 0) return;
  const auto part = std::prev(free_.upper_bound(offset));
  const size_t begin = part->first, end = begin + part->second.bytes;
  free_.erase(part);
  if (begin < offset) free_.emplace(begin, Free{offset - begin, {}});
  const size_t rest = offset + gone.bytes;
  if (rest < end) free_.emplace(rest, Free{end - rest, {}});
}

void PoolArena::take(FreeMap::const_iterator part, size_t bytes) {
  const size_t offset = part->first;
  Free rest = part->second;
  free_.erase(part);
  used_.emplace(offset, bytes);
  if (rest.bytes == bytes) return;
  rest.bytes -= bytes;
  free_.emplace(offset + bytes, std::move(rest));
}

size_t PoolArena::give_back(size_t offset, FreedIn freed) {
  const auto found = used_.find(offset);
  const size_t bytes = found->second;
  used_.erase(found);
  free_.emplace(offset, Free{bytes, std::move(freed)});
  join_around(offset);
  return bytes;
}

void PoolArena::join_around(size_t offset) {
  const auto here = [&] { return std::prev(free_.upper_bound(offset)); };
  while (join_with_next(here())) {
  }
  while (here() != free_.begin() && join_with_next(std::prev(here()))) {
  }
}

bool PoolArena::join_with_next(FreeMap::iterator part) {
  const auto next = std::next(part);
  if (next == free_.end() || part->first + part->second.bytes != next->first) return false;
  FreedIn& mine = part->second.freed;
  FreedIn& other = next->second.freed;
  if (mine.stream != other.stream) return false;
  mine.position = std::max(mine.position, other.position);
  for (const uint64_t op : other.after) {
    if (std::find(mine.after.begin(), mine.after.end(), op) == mine.after.end()) {
      mine.after.push_back(op);
    }
  }
  part->second.bytes += next->second.bytes;
  free_.erase(next);
  return true;
}

}  // namespace softgpu
