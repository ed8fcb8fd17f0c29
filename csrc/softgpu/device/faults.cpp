#include "faults.h"

#include <charconv>

namespace tandem::softgpu {
namespace {

constexpr uint64_t kLargestFactor = 1'000'000;

struct Kind {
  std::string_view word;
  FaultKind fault;
  enum Argument { kNoArgument, kName, kFactor } argument;
};
constexpr Kind kKinds[] = {
    {"oom", FaultKind::kOutOfMemory, Kind::kNoArgument},
    {"launch", FaultKind::kLaunchFailed, Kind::kName},
    {"hang", FaultKind::kHang, Kind::kName},
    {"lost", FaultKind::kDeviceLost, Kind::kName},
    {"slow", FaultKind::kSlowCopy, Kind::kFactor},
};

// A whole decimal number from 1, else 0.
uint64_t positive(std::string_view text) {
  uint64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc() && end == text.data() + text.size() ? n : 0;
}

}  // namespace

std::string Faults::parse(std::string_view list) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    const std::string_view spec = list.substr(0, comma);
    if (!add(spec)) {
      return "unknown fault '" + std::string(spec) +
             "'; known are oom@N, launch:NAME@N, hang:NAME@N, lost:NAME@N and slow:FACTOR@N "
             "with N from 1";
    }
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  }
  return {};
}

bool Faults::add(std::string_view spec) {
  const size_t at = spec.rfind('@');
  if (at == std::string_view::npos) return false;
  const uint64_t n = positive(spec.substr(at + 1));
  const std::string_view what = spec.substr(0, at);
  const size_t colon = what.find(':');
  const std::string_view word = what.substr(0, colon);
  const std::string_view argument =
      colon == std::string_view::npos ? std::string_view() : what.substr(colon + 1);
  for (const Kind& kind : kKinds) {
    if (kind.word != word) continue;
    const bool has_argument = colon != std::string_view::npos && !argument.empty();
    if (n == 0 || has_argument != (kind.argument != Kind::kNoArgument)) return false;
    if (!has_argument && colon != std::string_view::npos) return false;
    const uint64_t factor = kind.argument == Kind::kFactor ? positive(argument) : 1;
    if (factor == 0 || factor > kLargestFactor) return false;
    planned_.push_back({kind.fault, std::string(argument), factor, n});
    return true;
  }
  return false;
}

bool Faults::refuse_reservation() {
  bool refuse = false;
  for (Planned& planned : planned_) {
    if (planned.fault != FaultKind::kOutOfMemory || planned.countdown == 0) continue;
    if (--planned.countdown == 0) refuse = true;
  }
  return refuse;
}

FaultKind Faults::next_kernel(std::string_view name) {
  FaultKind fault = FaultKind::kNone;
  for (Planned& planned : planned_) {
    const bool of_copies_or_memory =
        planned.fault == FaultKind::kOutOfMemory || planned.fault == FaultKind::kSlowCopy;
    if (of_copies_or_memory || planned.countdown == 0 || planned.name != name) continue;
    if (--planned.countdown == 0) fault = planned.fault;
  }
  return fault;
}

uint64_t Faults::next_copy_factor() {
  uint64_t factor = 1;
  for (Planned& planned : planned_) {
    if (planned.fault != FaultKind::kSlowCopy || planned.countdown == 0) continue;
    if (--planned.countdown == 0) factor = planned.factor;
  }
  return factor;
}

}  // namespace tandem::softgpu
