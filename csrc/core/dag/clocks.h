// Vector clocks: one position per chain of a graph, 0 = nothing is known of the chain. A row is one
// clock. Rows never change, so all nodes of a chain between two joins share one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::dag {

class Clocks {
 public:
  using Row = uint32_t;
  static constexpr Row kNothing = 0;

  Clocks() { spans_.push_back({0, 0}); }

  uint32_t at(Row row, uint32_t chain) const {
    const Span span = spans_[row];
    return chain < span.width ? data_[span.begin + chain] : 0;
  }

  // Returns a row with what `row` and `other` know together, and that `chain` has reached
  // `position`.
  Row join(Row row, Row other, uint32_t chain, uint32_t position);
  // Returns what both rows know together; no new row if one of them knows it all.
  Row merge(Row row, Row other);

  size_t entries() const { return data_.size(); }
  size_t bytes() const {
    return data_.capacity() * sizeof(uint32_t) + spans_.capacity() * sizeof(Span);
  }

  class Mover;

 private:
  bool covers(Row row, Row other) const;

  struct Span {
    uint32_t begin;
    uint32_t width;
  };
  std::vector<uint32_t> data_;
  std::vector<Span> spans_;
};

// Keeps the rows passed to move(), makes positions count from `gone` on, and renumbers the rows.
class Clocks::Mover {
 public:
  Mover(Clocks& clocks, uint32_t gone);
  void move(Row& row);
  void finish();

 private:
  Clocks& clocks_;
  uint32_t gone_;
  std::vector<Row> moved_;  // by old row; kNothing = not moved yet
  Clocks kept_;
};

}  // namespace tandem::dag
