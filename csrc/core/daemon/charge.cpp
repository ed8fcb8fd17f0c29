#include "daemon/charge.h"

#include <algorithm>

namespace tandem::daemon {
namespace {

__extension__ using Wide = unsigned __int128;

// The first `weight` of `weights` parts of a total, rounded up, so that consecutive parts add up to
// the total.
uint64_t until(uint64_t total, uint64_t weight, uint64_t weights) {
  return static_cast<uint64_t>((static_cast<Wide>(total) * weight + weights - 1) / weights);
}

uint64_t part(uint64_t total, uint64_t parts, uint64_t index) {
  return until(total, index + 1, parts) - until(total, index, parts);
}

size_t end_of_gpu(const Claim* claims, size_t begin, size_t count) {
  size_t end = begin;
  while (end < count && claims[end].gpu == claims[begin].gpu) ++end;
  return end;
}

size_t end_of_group(const Claim* claims, size_t begin, size_t count) {
  size_t end = begin;
  while (end < count && claims[end].group == claims[begin].group) ++end;
  return end;
}

bool is_told(const Claim& claim) { return claim.sms != 0; }

// SMs that the busy processes of one group take together; 1 for every group if SMs do not count.
uint64_t weight_of(const Claim* claims, size_t count, bool by_sms) {
  if (!by_sms) return 1;
  uint64_t sms = 0;
  uint64_t most_sms = 1;
  for (size_t i = 0; i < count; ++i) {
    sms += claims[i].sms;
    most_sms = std::max<uint64_t>(most_sms, claims[i].most_sms);
  }
  return std::min(sms, most_sms);
}

void charge_gpu(uint64_t interval_ns, Claim* claims, size_t count) {
  const bool by_sms = std::all_of(claims, claims + count, is_told);
  uint64_t groups = 0;
  uint64_t weights = 0;
  for (size_t begin = 0; begin < count; ++groups) {
    const size_t end = end_of_group(claims, begin, count);
    weights += weight_of(claims + begin, end - begin, by_sms);
    begin = end;
  }
  const bool is_shared = groups > 1;
  uint64_t before = 0;
  uint64_t group = 0;
  for (size_t begin = 0; begin < count; ++group) {
    const size_t end = end_of_group(claims, begin, count);
    const uint64_t after = before + weight_of(claims + begin, end - begin, by_sms);
    const uint64_t own_ns =
        until(interval_ns, after, weights) - until(interval_ns, before, weights);
    const uint64_t even_ns = part(interval_ns, groups, group);
    for (size_t i = begin; i < end; ++i) {
      const uint64_t of_process_ns = part(own_ns, end - begin, i - begin);
      claims[i].exclusive_ns = is_shared ? 0 : of_process_ns;
      claims[i].shared_ns = is_shared ? of_process_ns : 0;
      claims[i].even_ns = is_shared ? part(even_ns, end - begin, i - begin) : 0;
    }
    before = after;
    begin = end;
  }
}

}  // namespace

void charge(uint64_t interval_ns, Claim* claims, size_t count) {
  for (size_t begin = 0; begin < count;) {
    const size_t end = end_of_gpu(claims, begin, count);
    charge_gpu(interval_ns, claims + begin, end - begin);
    begin = end;
  }
}

}  // namespace tandem::daemon
