#include "dag/clocks.h"

#include <algorithm>

namespace tandem::dag {

Clocks::Row Clocks::join(Row row, Row other, uint32_t chain, uint32_t position) {
  const uint32_t width = std::max({spans_[row].width, spans_[other].width, chain + 1});
  const auto begin = static_cast<uint32_t>(data_.size());
  data_.resize(begin + width);
  for (uint32_t i = 0; i < width; ++i) data_[begin + i] = std::max(at(row, i), at(other, i));
  data_[begin + chain] = std::max(data_[begin + chain], position);
  spans_.push_back({begin, width});
  return static_cast<Row>(spans_.size() - 1);
}

bool Clocks::covers(Row row, Row other) const {
  for (uint32_t i = 0; i < spans_[other].width; ++i) {
    if (at(row, i) < at(other, i)) return false;
  }
  return true;
}

Clocks::Row Clocks::merge(Row row, Row other) {
  if (covers(row, other)) return row;
  return covers(other, row) ? other : join(row, other, 0, 0);
}

Clocks::Mover::Mover(Clocks& clocks, uint32_t gone)
    : clocks_(clocks), gone_(gone), moved_(clocks.spans_.size(), kNothing) {}

void Clocks::Mover::move(Row& row) {
  if (row == kNothing) return;
  Row& moved = moved_[row];
  if (moved == kNothing) {
    const Span span = clocks_.spans_[row];
    const auto begin = static_cast<uint32_t>(kept_.data_.size());
    for (uint32_t i = 0; i < span.width; ++i) {
      const uint32_t position = clocks_.data_[span.begin + i];
      kept_.data_.push_back(position > gone_ ? position - gone_ : 0);
    }
    kept_.spans_.push_back({begin, span.width});
    moved = static_cast<Row>(kept_.spans_.size() - 1);
  }
  row = moved;
}

void Clocks::Mover::finish() { clocks_ = std::move(kept_); }

}  // namespace tandem::dag
