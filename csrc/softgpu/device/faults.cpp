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
    {"ecc-corrected", FaultKind::kEccCorrected, Kind::kName},
    {"ecc-uncorrectable", FaultKind::kEccUncorrectable, Kind::kName},
    {"slow", FaultKind::kSlowCopy, Kind::kFactor},
    {"copy", FaultKind::kCopyFailed, Kind::kNoArgument},
    {"map", FaultKind::kMapRefused, Kind::kNoArgument},
};

template <typename Number>
bool read_number(std::string_view text, Number* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

std::string wrong(std::string_view spec, const std::string& why) {
  return "fault '" + std::string(spec) + "': " + why;
}

std::string unknown(std::string_view spec) {
  std::string known;
  for (const Kind& kind : kKinds) {
    known += std::string(kind.word);
    if (kind.argument == Kind::kName) known += ":NAME";
    if (kind.argument == Kind::kFactor) known += ":FACTOR";
    known += ", ";
  }
  return "unknown fault '" + std::string(spec) + "'; known are " + known +
         "each followed by @N (N from 1) or %P (P above 0, up to 1), and seed=N";
}

// Mixes three numbers well, with the same result on every machine (the finaliser of splitmix64).
uint64_t mix(uint64_t seed, uint64_t which, uint64_t count) {
  uint64_t z = seed * 0x9e3779b97f4a7c15 + which * 0xbf58476d1ce4e5b9 + count * 0x94d049bb133111eb;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

std::string Faults::parse(std::string_view list) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string error = add(list.substr(0, comma));
    if (!error.empty()) return error;
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  }
  return {};
}

std::string Faults::add(std::string_view spec) {
  if (spec.substr(0, 5) == "seed=") {
    if (read_number(spec.substr(5), &seed_)) return {};
    return wrong(spec, "a seed is a whole number from 0");
  }
  const size_t mark = spec.find_last_of("@%");
  if (mark == std::string_view::npos) return unknown(spec);
  const std::string_view what = spec.substr(0, mark);
  const size_t colon = what.find(':');
  const std::string_view argument =
      colon == std::string_view::npos ? std::string_view() : what.substr(colon + 1);
  for (const Kind& kind : kKinds) {
    if (kind.word != what.substr(0, colon)) continue;
    const bool takes_one = kind.argument != Kind::kNoArgument;
    if (takes_one == argument.empty() || (!takes_one && colon != std::string_view::npos)) {
      return unknown(spec);
    }
    Planned planned;
    planned.fault = kind.fault;
    if (kind.argument == Kind::kName) planned.name = argument;
    const bool is_factor = kind.argument == Kind::kFactor;
    if (is_factor && (!read_number(argument, &planned.factor) || planned.factor == 0 ||
                      planned.factor > kLargestFactor)) {
      return wrong(spec, "'" + std::string(argument) + "' is not a factor from 1 to " +
                             std::to_string(kLargestFactor));
    }
    std::string error = read_moment(spec, spec[mark], spec.substr(mark + 1), &planned);
    if (error.empty()) planned_.push_back(planned);
    return error;
  }
  return unknown(spec);
}

std::string Faults::read_moment(std::string_view spec, char mark, std::string_view text,
                                Planned* planned) const {
  if (mark == '@') {
    if (read_number(text, &planned->nth) && planned->nth > 0) return {};
    return wrong(spec, "'" + std::string(text) + "' is not a whole number from 1");
  }
  const bool number = read_number(text, &planned->probability);
  if (number && planned->probability > 0 && planned->probability <= 1) return {};
  return wrong(spec, "'" + std::string(text) + "' is not a probability above 0 and up to 1");
}

bool Faults::happens(Planned* planned) const {
  ++planned->seen;
  if (planned->nth > 0) return planned->seen == planned->nth;
  const auto which = static_cast<uint64_t>(planned - planned_.data());
  const double drawn = static_cast<double>(mix(seed_, which, planned->seen) >> 11) * 0x1p-53;
  return drawn < planned->probability;
}

bool Faults::next_of(FaultKind fault) {
  bool now = false;
  for (Planned& planned : planned_) {
    if (planned.fault == fault && happens(&planned)) now = true;
  }
  return now;
}

// Only kernel faults have a name.
FaultKind Faults::next_kernel(std::string_view name) {
  FaultKind fault = FaultKind::kNone;
  for (Planned& planned : planned_) {
    if (planned.name.empty() || planned.name != name) continue;
    if (happens(&planned)) fault = planned.fault;
  }
  return fault;
}

Faults::Copy Faults::next_copy() {
  Copy copy;
  for (Planned& planned : planned_) {
    if (planned.fault == FaultKind::kSlowCopy && happens(&planned)) copy.factor = planned.factor;
  }
  copy.fails = next_of(FaultKind::kCopyFailed);
  return copy;
}

}  // namespace tandem::softgpu
