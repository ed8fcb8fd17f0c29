#include "daemon/poller.h"
#include "daemon/resolve.h"
#include "signatures.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "bindings.h"

namespace tandem::bindings {
namespace {

namespace py = pybind11;
using daemon::Poller;
using daemon::Snapshot;

constexpr uint64_t kShortestPeriodNs = 100'000;
constexpr uint64_t kLongestPeriodNs = 1'000'000'000;

std::unique_ptr<Poller> make(uint64_t period_ns, uint64_t idle_period_ns, bool detects) {
  if (period_ns < kShortestPeriodNs || idle_period_ns < period_ns ||
      idle_period_ns > kLongestPeriodNs) {
    throw py::value_error("period_ns is " + std::to_string(period_ns) + " and idle_period_ns " +
                          std::to_string(idle_period_ns) +
                          ": 100000 <= period_ns <= idle_period_ns <= 1000000000");
  }
  return std::make_unique<Poller>(period_ns, idle_period_ns, detects);
}

void add(Poller& poller, const Process& process, int64_t group, int gpu) {
  const auto& pages = process.channel().pages();
  const py::gil_scoped_release released;
  if (!poller.add(pages, group, gpu)) {
    throw py::value_error("process " + std::to_string(process.process_id()) + " is polled already");
  }
}

Snapshot remove(Poller& poller, uint64_t process_id) {
  const py::gil_scoped_release released;
  const std::optional<Snapshot> last = poller.remove(process_id);
  if (!last) throw py::key_error("process " + std::to_string(process_id) + " is not polled");
  return *last;
}

void regroup(Poller& poller, uint64_t process_id, int64_t group) {
  const py::gil_scoped_release released;
  if (!poller.regroup(process_id, group)) {
    throw py::key_error("process " + std::to_string(process_id) + " is not polled");
  }
}

void weigh(Poller& poller, uint64_t process_id, uint32_t sms, uint32_t most_sms) {
  const py::gil_scoped_release released;
  if (!poller.weigh(process_id, sms, most_sms)) {
    throw py::key_error("process " + std::to_string(process_id) + " is not polled");
  }
}

bool poll(Poller& poller, uint64_t now_ns) {
  const py::gil_scoped_release released;
  if (poller.started()) {
    throw std::runtime_error("poll is for the virtual clock; this poller's threads run");
  }
  return poller.poll(now_ns);
}

daemon::Wake wait_once(Poller& poller, uint64_t deadline_ns) {
  const py::gil_scoped_release released;
  return poller.wait_until(deadline_ns);
}

// Runs Python's own signal handlers between interrupted waits, so Ctrl-C ends a wait.
bool wait(Poller& poller, uint64_t timeout_ns) {
  const uint64_t now_ns = daemon::monotonic_ns();
  const uint64_t longest_ns = std::numeric_limits<int64_t>::max() - now_ns;
  const uint64_t deadline_ns = now_ns + std::min(timeout_ns, longest_ns);
  for (;;) {
    const daemon::Wake wake = wait_once(poller, deadline_ns);
    if (wake != daemon::Wake::kInterrupted) return wake == daemon::Wake::kChanged;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

template <auto kLooks>
py::list listed(Poller& poller) {
  std::vector<Snapshot> found;
  {
    const py::gil_scoped_release released;
    found = (poller.*kLooks)();
  }
  py::list out;
  for (Snapshot& snapshot : found) out.append(py::cast(std::move(snapshot)));
  return out;
}

py::dict memory_claims(const Poller& poller) {
  std::vector<daemon::MemoryClaim> found;
  {
    const py::gil_scoped_release released;
    found = poller.memory_claims();
  }
  py::dict out;
  for (const daemon::MemoryClaim& claim : found)
    out[py::int_(claim.process_id)] = py::make_tuple(claim.resident_bytes, claim.taken_bytes);
  return out;
}

py::list drain_records(Poller& poller, size_t limit, uint32_t kinds) {
  std::vector<daemon::RecordBuffer::Run> runs;
  {
    const py::gil_scoped_release released;
    runs = poller.take_records(limit, kinds);
  }
  py::list out;
  for (const auto& run : runs) {
    const auto* bytes = reinterpret_cast<const char*>(run.records.data());
    out.append(
        py::make_tuple(run.process_id, py::bytes(bytes, run.records.size() * sizeof(shm::Record))));
  }
  return out;
}

void want_window(Poller& poller, uint64_t process_id) {
  const py::gil_scoped_release released;
  if (!poller.want_window(process_id)) {
    throw py::key_error("process " + std::to_string(process_id) + " is not polled");
  }
}

std::shared_ptr<daemon::Window> window(const Poller& poller, uint64_t process_id) {
  const py::gil_scoped_release released;
  return std::const_pointer_cast<daemon::Window>(poller.window(process_id));
}

py::bytes records_of(const daemon::Window& window) {
  return {reinterpret_cast<const char*>(window.records.data()),
          window.records.size() * sizeof(shm::Record)};
}

// Maps the sample number of each launch to its accesses, and whether these are all.
py::dict launches_of(const daemon::Window& window, const daemon::Sample& sample,
                     const std::map<std::string, Signature>& declared) {
  daemon::Signatures signatures;
  for (const auto& [name, signature] : declared) signatures[name] = signature.parameters;
  std::vector<daemon::ResolvedLaunch> found;
  {
    const py::gil_scoped_release released;
    found = daemon::resolve(window, sample, signatures);
  }
  py::dict out;
  for (const daemon::ResolvedLaunch& launch : found) {
    py::list accesses;
    for (const dag::Access& access : launch.accesses)
      accesses.append(py::make_tuple(access.address, access.bytes, access.is_const));
    out[py::int_(launch.number)] = py::make_tuple(accesses, launch.is_all);
  }
  return out;
}

void add_window(py::module_& module) {
  using daemon::Window;
  py::class_<Window, std::shared_ptr<Window>>(module, "Window", py::is_final())
      .def_readonly("begin_ns", &Window::begin_ns)
      .def_readonly("end_ns", &Window::end_ns)
      .def_readonly("first_iteration", &Window::first_iteration)
      .def_readonly("iterations", &Window::iterations)
      .def_readonly("lost", &Window::lost)
      .def_readonly("is_cut", &Window::is_cut)
      .def_readonly("busy_ns", &Window::busy_ns)
      .def_readonly("shared_ns", &Window::shared_ns)
      .def_property_readonly("records", &records_of)
      .def("launches", &launches_of, py::arg("sample"),
           py::arg("signatures") = std::map<std::string, Signature>{});
}

std::optional<uint32_t> ask(Poller& poller, uint64_t process_id, daemon::SampleLimits limits,
                            uint64_t timeout_ns) {
  const py::gil_scoped_release released;
  const uint64_t now_ns = poller.now_ns();
  limits.until_ns = now_ns + std::min(timeout_ns, std::numeric_limits<uint64_t>::max() - now_ns);
  return poller.begin_sample(process_id, limits);
}

uint32_t begin_sample(Poller& poller, uint64_t process_id, uint32_t launches, bool with_window,
                      uint64_t timeout_ns) {
  if (launches == 0 || launches > daemon::SampleReader::kMostLaunches) {
    throw py::value_error("launches is " + std::to_string(launches) + ", not 1 to " +
                          std::to_string(daemon::SampleReader::kMostLaunches));
  }
  const std::optional<uint32_t> number =
      ask(poller, process_id, {launches, with_window, 0}, timeout_ns);
  if (!number) throw py::key_error("process " + std::to_string(process_id) + " is not polled");
  if (*number == 0) {
    throw std::runtime_error("process " + std::to_string(process_id) + " is being sampled already");
  }
  return *number;
}

std::optional<daemon::Sample> take_sample(Poller& poller, uint64_t process_id, uint32_t number) {
  std::optional<daemon::Sample> taken;
  bool is_known = true;
  {
    const py::gil_scoped_release released;
    taken = poller.take_sample(process_id, number);
    is_known = taken || poller.watches(process_id);
  }
  if (!is_known) throw py::key_error("process " + std::to_string(process_id) + " is not polled");
  return taken;
}

using ToldRequests = std::tuple<uint32_t, std::vector<uint64_t>, size_t, std::vector<uint64_t>,
                                std::vector<uint64_t>>;

std::optional<ToldRequests> take_requests(Poller& poller, uint64_t process_id, uint64_t idle_ns,
                                          uint64_t limit_ns) {
  const py::gil_scoped_release released;
  const std::optional<daemon::Requests> found = poller.take_requests(process_id, idle_ns, limit_ns);
  if (!found) return std::nullopt;
  std::vector<uint64_t> durations_ns;
  std::vector<uint64_t> objectives_ns;
  std::vector<uint64_t> held_ns;
  for (const dag::EndedRequest& ended : found->ended) {
    durations_ns.push_back(ended.duration_ns);
    held_ns.push_back(ended.held_ns);
    objectives_ns.push_back(ended.objective_ns);
  }
  return ToldRequests(static_cast<uint32_t>(found->kind), std::move(durations_ns), found->most_open,
                      std::move(objectives_ns), std::move(held_ns));
}

py::tuple wait_totals(const Snapshot& snapshot) {
  const uint64_t (&total)[shm::kWaitReasonCount] = snapshot.wait_total_ns;
  return py::make_tuple(total[0], total[1], total[2], total[3], total[4]);
}

py::tuple refused_by(const Snapshot& snapshot) {
  const uint64_t (&by)[shm::kRefusalCount] = snapshot.refused_by;
  return py::make_tuple(by[0], by[1], by[2]);
}

std::optional<std::tuple<uint32_t, uint32_t, uint32_t>> in_set(const Snapshot& snapshot) {
  if (snapshot.in_set == 0) return std::nullopt;
  const shm::SmSet set = shm::set_of(snapshot.in_set);
  return std::tuple(set.first, set.count, set.group_sms);
}

py::tuple staying_streams(const Snapshot& snapshot) {
  const uint32_t (&by)[shm::kStayReasonCount] = snapshot.staying_streams;
  return py::make_tuple(by[0], by[1], by[2], by[3], by[4], by[5]);
}

// Forward, backward and update shares of an iteration in thousandths; all 0: not known.
py::tuple phases(const Snapshot& snapshot) {
  const dag::PhaseShares& shares = snapshot.phases;
  return py::make_tuple(shares.forward, shares.backward, shares.update);
}

void add_snapshot(py::module_& module) {
  py::class_<Snapshot>(module, "Snapshot", py::is_final())
      .def_readonly("process_id", &Snapshot::process_id)
      .def_readonly("busy", &Snapshot::busy)
      .def_readonly("live_slots", &Snapshot::live_slots)
      .def_readonly("open_segments", &Snapshot::open_segments)
      .def_readonly("device_bytes", &Snapshot::device_bytes)
      .def_readonly("peak_bytes", &Snapshot::peak_bytes)
      .def_readonly("alloc_count", &Snapshot::alloc_count)
      .def_readonly("refused_count", &Snapshot::refused_count)
      .def_property_readonly("refused_by", &refused_by)
      .def_readonly("memory_ticket", &Snapshot::memory_ticket)
      .def_readonly("memory_wanted_bytes", &Snapshot::memory_wanted_bytes)
      .def_readonly("memory_round", &Snapshot::memory_round)
      .def_readonly("memory_of_quota", &Snapshot::memory_of_quota)
      .def_readonly("memory_alone", &Snapshot::memory_alone)
      .def_readonly("swappable_bytes", &Snapshot::swappable_bytes)
      .def_readonly("swapped_bytes", &Snapshot::swapped_bytes)
      .def_readonly("swap_done", &Snapshot::swap_done)
      .def_property_readonly(
          "swap_outcome", [](const Snapshot& s) { return static_cast<uint32_t>(s.swap_outcome); })
      .def_readonly("swap_out_bytes", &Snapshot::swap_out_bytes)
      .def_readonly("swap_out_ns", &Snapshot::swap_out_ns)
      .def_readonly("swap_in_bytes", &Snapshot::swap_in_bytes)
      .def_readonly("swap_in_ns", &Snapshot::swap_in_ns)
      .def_readonly("filed_bytes", &Snapshot::filed_bytes)
      .def_readonly("waiting_threads", &Snapshot::waiting_threads)
      .def_property_readonly("wait_reason",
                             [](const Snapshot& s) { return static_cast<uint32_t>(s.wait_reason); })
      .def_readonly("wait_since_ns", &Snapshot::wait_since_ns)
      .def_property_readonly("wait_total_ns", &wait_totals)
      .def_readonly("launches", &Snapshot::launches)
      .def_readonly("steps", &Snapshot::steps)
      .def_readonly("last_step_ns", &Snapshot::last_step_ns)
      .def_readonly("phase_hash", &Snapshot::phase_hash)
      .def_readonly("critical_until_ns", &Snapshot::critical_until_ns)
      .def_readonly("listens", &Snapshot::listens)
      .def_readonly("pause_ready", &Snapshot::pause_ready)
      .def_readonly("iteration_peak_bytes", &Snapshot::iteration_peak_bytes)
      .def_readonly("iteration_end_bytes", &Snapshot::iteration_end_bytes)
      .def_property_readonly("stopped", [](const Snapshot& s) { return s.stopped[0]; })
      .def_property_readonly("stopped_phases", [](const Snapshot& s) { return s.stopped[1]; })
      .def_readonly("begun_phases", &Snapshot::begun_phases)
      .def_property_readonly("in_set", &in_set)
      .def_readonly("in_turn", &Snapshot::in_turn)
      .def_readonly("following_streams", &Snapshot::following_streams)
      .def_property_readonly("staying_streams", &staying_streams)
      .def_readonly("runs_graphs", &Snapshot::runs_graphs)
      .def_readonly("set_switches", &Snapshot::set_switches)
      .def_readonly("linger_ns", &Snapshot::linger_ns)
      .def_readonly("ungated", &Snapshot::ungated)
      .def_readonly("capturing", &Snapshot::capturing)
      .def_readonly("helper_tick_ns", &Snapshot::helper_tick_ns)
      .def_readonly("presence_busy_until_ns", &Snapshot::presence_busy_until_ns)
      .def_readonly("records", &Snapshot::records)
      .def_readonly("dropped_records", &Snapshot::dropped_records)
      .def_readonly("iterations", &Snapshot::iterations)
      .def_readonly("iteration_ns", &Snapshot::iteration_ns)
      .def_readonly("iteration_launches", &Snapshot::iteration_launches)
      .def_readonly("gap_p50_ns", &Snapshot::gap_p50_ns)
      .def_readonly("gap_p90_ns", &Snapshot::gap_p90_ns)
      .def_readonly("iteration_bytes", &Snapshot::iteration_bytes)
      .def_readonly("marks_requests", &Snapshot::marks_requests)
      .def_readonly("work_ns", &Snapshot::work_ns)
      .def_readonly("step_work_ns", &Snapshot::step_work_ns)
      .def_readonly("timed_count", &Snapshot::timed_count)
      .def_property_readonly("phases", &phases)
      .def_property_readonly("phases_marked", [](const Snapshot& s) { return s.phases.marked; })
      .def_readonly("exclusive_ns", &Snapshot::exclusive_ns)
      .def_readonly("shared_ns", &Snapshot::shared_ns)
      .def_readonly("even_ns", &Snapshot::even_ns);
}

}  // namespace

void add_poller(py::module_& module) {
  using py::arg;
  using released = py::call_guard<py::gil_scoped_release>;
  add_snapshot(module);
  add_window(module);
  py::class_<Poller>(module, "Poller", py::is_final())
      .def(py::init(&make), py::kw_only(), arg("period_ns") = Poller::kPeriodNs,
           arg("idle_period_ns") = Poller::kIdlePeriodNs, arg("detects") = true)
      .def("add", &add, arg("process"), py::kw_only(), arg("group"), arg("gpu") = 0)
      .def("remove", &remove, py::kw_only(), arg("process_id"))
      .def("regroup", &regroup, py::kw_only(), arg("process_id"), arg("group"))
      .def("weigh", &weigh, py::kw_only(), arg("process_id"), arg("sms"), arg("most_sms"))
      .def("start", &Poller::start, released())
      .def("stop", &Poller::stop, released())
      .def("poll", &poll, py::kw_only(), arg("now_ns"))
      .def("pause_ns", &Poller::pause_ns)
      .def("wait", &wait, py::kw_only(), arg("timeout_ns"))
      .def("wake", &Poller::wake)
      .def("snapshots", &listed<&Poller::snapshots>)
      .def("changed", &listed<&Poller::changed>)
      .def("memory_claims", &memory_claims)
      .def("drain_records", &drain_records, py::kw_only(),
           arg("limit") = daemon::RecordBuffer::kCapacity,
           arg("kinds") = daemon::RecordBuffer::kAllKinds)
      .def("want_window", &want_window, py::kw_only(), arg("process_id"))
      .def("window", &window, py::kw_only(), arg("process_id"))
      .def("begin_sample", &begin_sample, py::kw_only(), arg("process_id"), arg("launches"),
           arg("with_window") = false, arg("timeout_ns"))
      .def("take_sample", &take_sample, py::kw_only(), arg("process_id"), arg("number"))
      .def("take_requests", &take_requests, py::kw_only(), arg("process_id"), arg("idle_ns"),
           arg("limit_ns"));
}

}  // namespace tandem::bindings
