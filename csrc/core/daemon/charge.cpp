#include "daemon/charge.h"

namespace tandem::daemon {
namespace {

// The `index`-th of `parts` nearly equal parts of `total`: the remainder goes to the first ones.
uint64_t part(uint64_t total, uint64_t parts, uint64_t index) {
  return total / parts + (index < total % parts ? 1 : 0);
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

void charge_gpu(uint64_t interval_ns, Claim* claims, size_t count) {
  size_t groups = 0;
  for (size_t i = 0; i < count; i = end_of_group(claims, i, count)) ++groups;
  size_t group = 0;
  for (size_t begin = 0; begin < count; ++group) {
    const size_t end = end_of_group(claims, begin, count);
    const uint64_t of_group = part(interval_ns, groups, group);
    for (size_t i = begin; i < end; ++i) {
      const uint64_t of_process = part(of_group, end - begin, i - begin);
      claims[i].exclusive_ns = groups == 1 ? of_process : 0;
      claims[i].shared_ns = groups == 1 ? 0 : of_process;
    }
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
