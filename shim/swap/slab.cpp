#include "slab.h"

namespace tandem::shim::swap {

uint32_t Slab::next(uint32_t from, bool taken) const {
  for (uint32_t word = from / 64; word < kWords; ++word) {
    uint64_t bits = taken ? words_[word] : ~words_[word];
    if (word == from / 64) bits &= ~uint64_t{0} << from % 64;
    if (bits) return word * 64 + static_cast<uint32_t>(__builtin_ctzll(bits));
  }
  return kCells;
}

void Slab::mark(uint32_t from, uint32_t count, bool taken) {
  for (uint32_t end = from + count; from < end;) {
    const uint32_t here = end - from < 64 - from % 64 ? end - from : 64 - from % 64;
    const uint64_t bits = (here == 64 ? ~uint64_t{0} : (uint64_t{1} << here) - 1) << from % 64;
    if (taken) words_[from / 64] |= bits;
    else words_[from / 64] &= ~bits;
    from += here;
  }
  taken_ = taken ? taken_ + count : taken_ - count;
}

bool Slab::take(uint32_t bytes, uint32_t number, uint32_t* at) {
  const uint32_t wanted = cells_of(bytes);
  if (wanted > kCells - taken_ || (too_large_ && wanted >= too_large_)) return false;
  for (uint32_t cell = next(0, false); cell < kCells;) {
    const uint32_t end = next(cell, true);
    if (end - cell >= wanted) {
      mark(cell, wanted, true);
      parts_[cell] = {bytes, number};
      *at = cell * kCell;
      return true;
    }
    cell = next(end, false);
  }
  too_large_ = wanted;
  return false;
}

bool Slab::give_back(uint32_t at) {
  if (at % kCell || at >= kBytes || !parts_[at / kCell].bytes) return false;
  const uint32_t cell = at / kCell;
  mark(cell, cells_of(parts_[cell].bytes), false);
  parts_[cell] = {};
  too_large_ = 0;
  return true;
}

Slab::Part Slab::part_at(uint32_t at) const {
  if (at >= kBytes) return {};
  uint32_t cell = at / kCell;
  if (!(words_[cell / 64] >> cell % 64 & 1)) return {};
  while (!parts_[cell].bytes) --cell;  // a taken cell's part begins at it or before it
  const Part part{cell * kCell, parts_[cell].bytes, parts_[cell].number};
  return at - part.at < part.bytes ? part : Part{};
}

}  // namespace tandem::shim::swap
