// Tracks what is taken of one slab: parts of whole cells, first fit. Knows offsets only; not
// locked.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::shim::swap {

// All zeros is an empty slab: it lives in fresh pages, of which it touches only what it needs.
class Slab {
 public:
  static constexpr uint32_t kBytes = 2 << 20;
  static constexpr uint32_t kCell = 512;  // the driver's alignment, which textures need too
  static constexpr uint32_t kCells = kBytes / kCell;

  struct Part {
    uint32_t at = 0;
    uint32_t bytes = 0;   // as requested; 0 = no part
    uint32_t number = 0;  // as passed to `take`
  };

  // False: there is no room. `bytes`: 1 to kBytes.
  bool take(uint32_t bytes, uint32_t number, uint32_t* at);
  // False: no part begins there.
  bool give_back(uint32_t at);
  // The part to which the byte belongs.
  [[nodiscard]] Part part_at(uint32_t at) const;

  [[nodiscard]] bool is_empty() const { return taken_ == 0; }

  // Whether visit(part) is true for any part.
  template <class Visit>
  [[nodiscard]] bool any_part(Visit visit) const {
    for (uint32_t cell = next(0, true); cell < kCells; cell = next(end_of(cell), true)) {
      if (visit(Part{cell * kCell, parts_[cell].bytes, parts_[cell].number})) return true;
    }
    return false;
  }

 private:
  static constexpr uint32_t kWords = kCells / 64;
  struct Begin {
    uint32_t bytes;  // 0 = no part begins at this cell
    uint32_t number;
  };

  static constexpr uint32_t cells_of(uint32_t bytes) { return (bytes + kCell - 1) / kCell; }
  [[nodiscard]] uint32_t end_of(uint32_t cell) const { return cell + cells_of(parts_[cell].bytes); }
  // The first cell from `from` on that is taken, or free; kCells = none.
  [[nodiscard]] uint32_t next(uint32_t from, bool taken) const;
  void mark(uint32_t from, uint32_t count, bool taken);

  uint64_t words_[kWords];  // one bit per cell: taken
  Begin parts_[kCells];
  uint32_t taken_;      // cells
  uint32_t too_large_;  // no run of this many cells was found at the last search; 0 = not known
};

}  // namespace tandem::shim::swap
