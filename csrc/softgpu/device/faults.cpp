#include "faults.h"

#include <charconv>

namespace tandem::softgpu {

std::string Faults::parse(std::string_view list) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    const std::string_view spec = list.substr(0, comma);
    if (!add(spec)) {
      return "unknown fault '" + std::string(spec) +
             "'; known are oom@N, launch:NAME@N and hang:NAME@N with N from 1";
    }
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  }
  return {};
}

bool Faults::add(std::string_view spec) {
  const size_t at = spec.rfind('@');
  if (at == std::string_view::npos) return false;
  const std::string_view count = spec.substr(at + 1);
  uint64_t n = 0;
  const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), n);
  if (error != std::errc() || end != count.data() + count.size() || n == 0) return false;

  const std::string_view what = spec.substr(0, at);
  if (what == "oom") {
    planned_.push_back({KernelFault::kNone, {}, n});
    return true;
  }
  const size_t colon = what.find(':');
  if (colon == std::string_view::npos || colon + 1 == what.size()) return false;
  const std::string_view kind = what.substr(0, colon);
  if (kind != "launch" && kind != "hang") return false;
  const KernelFault fault = kind == "hang" ? KernelFault::kHang : KernelFault::kLaunchFailed;
  planned_.push_back({fault, std::string(what.substr(colon + 1)), n});
  return true;
}

bool Faults::refuse_reservation() {
  bool refuse = false;
  for (Planned& planned : planned_) {
    if (planned.fault != KernelFault::kNone || planned.countdown == 0) continue;
    if (--planned.countdown == 0) refuse = true;
  }
  return refuse;
}

KernelFault Faults::next_kernel(std::string_view name) {
  KernelFault fault = KernelFault::kNone;
  for (Planned& planned : planned_) {
    if (planned.fault == KernelFault::kNone || planned.countdown == 0) continue;
    if (planned.name == name && --planned.countdown == 0) fault = planned.fault;
  }
  return fault;
}

}  // namespace tandem::softgpu
