// How far kernels and transfers overlap: the metrics of GrCUDA (Parravicini et al., "DAG-based
// Scheduling with Resource Sharing for Multi-task Applications in a Polyglot GPU Runtime", IPDPS
// 2021). With k(t) kernels, c(t) transfers and n(t) GPU operations running at time t, as integrals:
//
//   CT   kernel time during which a transfer runs / kernel time         k [c > 0]   / k
//   TC   transfer time during which a kernel runs / transfer time       c [k > 0]   / c
//   CC   kernel time during which another kernel runs / kernel time     k [k > 1]   / k
//   TOT  each operation's time while one that began earlier runs, however many those are,
//        / time of all operations                                       max(n-1, 0) / n
//
// So two operations that run side by side all the time have TOT 1/2. Memsets are neither kernels
// nor transfers and count in TOT alone. 0 if the divisor is 0.
#pragma once

#include <vector>

#include "dag/analysis/steps.h"

namespace tandem::dag::analysis {

struct Overlap {
  double ct = 0;
  double tc = 0;
  double cc = 0;
  double tot = 0;
};

inline Overlap overlap(const std::vector<Step>& steps) {
  double kernels = 0, transfers = 0, all = 0;
  Overlap shared;
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    const auto& [ns, k, c, memsets] = steps[i];
    const double length_ns = static_cast<double>(steps[i + 1].ns - ns);
    const uint32_t running = steps[i].running();
    kernels += length_ns * k;
    transfers += length_ns * c;
    all += length_ns * running;
    shared.ct += c > 0 ? length_ns * k : 0;
    shared.tc += k > 0 ? length_ns * c : 0;
    shared.cc += k > 1 ? length_ns * k : 0;
    shared.tot += running > 1 ? length_ns * (running - 1) : 0;
  }
  const auto share = [](double part, double of) { return of > 0 ? part / of : 0; };
  return {share(shared.ct, kernels), share(shared.tc, transfers), share(shared.cc, kernels),
          share(shared.tot, all)};
}

}  // namespace tandem::dag::analysis
