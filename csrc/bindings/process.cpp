#include <cstring>

#include "bindings.h"

namespace tandem::bindings {
namespace {

namespace py = pybind11;

void throw_if(const daemon::Failure& failure) {
  if (failure) raise_os_error(failure);
}

int seal_presence(const Process& process) {
  throw_if(process.channel().seal_presence());
  return process.channel().presence_fd();
}

py::tuple fds(const Process& process) {
  const daemon::Channel& channel = process.channel();
  return py::make_tuple(channel.command_fd(), channel.state_fd(), channel.presence_fd());
}

void set_class(const Process& process, uint32_t job_class) {
  if (job_class > static_cast<uint32_t>(shm::JobClass::kBatch)) {
    throw py::value_error("job_class is " + std::to_string(job_class) + ", more than 3");
  }
  process.channel().set_class(static_cast<shm::JobClass>(job_class));
}

void set_flags(const Process& process, bool honour_presence, bool telemetry, bool released) {
  process.channel().set_flags((honour_presence ? shm::kFlagHonourPresence : 0) |
                              (telemetry ? shm::kFlagTelemetry : 0) |
                              (released ? shm::kFlagReleased : 0));
}

void set_memory_place(const Process& process, uint64_t ticket, uint32_t round, bool refused,
                      bool line_ahead) {
  process.channel().set_memory_place(
      ticket, round, (refused ? shm::kLineRefused : 0) | (line_ahead ? shm::kLineAhead : 0));
}

void set_sms(const Process& process, uint32_t first, uint32_t count, uint32_t group_sms,
             uint32_t turn) {
  const shm::SmSet set{first, count, group_sms};
  const shm::SmSet held = shm::set_of(shm::word_of(set));
  if (group_sms == 0 || held.first != first || held.count != count || held.group_sms != group_sms)
    throw py::value_error("no set: " + std::to_string(count) + " groups of " +
                          std::to_string(group_sms) + " SMs from " + std::to_string(first));
  process.channel().set_sms(set, turn);
}

}  // namespace

void raise_os_error(const daemon::Failure& failure) {
  const std::string text = std::string(failure.call) + ": " + std::strerror(failure.error);
  const py::object error =
      py::reinterpret_borrow<py::object>(PyExc_OSError)(failure.error, py::str(text));
  // OSError's constructor picks the subclass by the errno, such as PermissionError.
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

Process::Process(uint64_t process_id, uint64_t job_id) : process_id_(process_id) {
  daemon::Failure failure;
  channel_ = daemon::Channel::create(process_id, job_id, &failure);
  throw_if(failure);
}

daemon::Channel& Process::channel() const {
  if (!channel_) throw py::value_error("process " + std::to_string(process_id_) + " is closed");
  return *channel_;
}

void add_process(py::module_& module) {
  using py::arg;
  py::class_<Process>(module, "Process", py::is_final())
      .def(py::init<uint64_t, uint64_t>(), py::kw_only(), arg("process_id"), arg("job_id"))
      .def_property_readonly("process_id", &Process::process_id)
      .def_property_readonly("fds", &fds)
      .def("seal_presence", &seal_presence)
      .def(
          "set_gate", [](const Process& p, bool hold) { return p.channel().set_gate(hold); },
          py::kw_only(), arg("hold"))
      .def(
          "set_mark_limit",
          [](const Process& p, bool phases, uint64_t number) {
            const auto kind = phases ? shm::LimitKind::kPhase : shm::LimitKind::kStep;
            p.channel().set_mark_limit(kind, number);
          },
          py::kw_only(), arg("phases"), arg("number"))
      .def(
          "set_pause", [](const Process& p, uint32_t number) { p.channel().set_pause(number); },
          py::kw_only(), arg("number"))
      .def(
          "set_window",
          [](const Process& p, uint32_t segments, uint64_t segment_ns) {
            p.channel().set_window(segments, segment_ns);
          },
          py::kw_only(), arg("segments"), arg("segment_ns"))
      .def("set_class", &set_class, py::kw_only(), arg("job_class"))
      .def(
          "set_linger",
          [](const Process& p, uint64_t ns, uint64_t limit) { p.channel().set_linger(ns, limit); },
          py::kw_only(), arg("linger_ns"), arg("limit_ns"))
      .def("set_flags", &set_flags, py::kw_only(), arg("honour_presence"), arg("telemetry"),
           arg("released") = false)
      .def(
          "set_presence_mask",
          [](const Process& p, uint64_t mask) { p.channel().set_presence_mask(mask); },
          py::kw_only(), arg("mask"))
      .def(
          "set_memory_limit",
          [](const Process& p, uint64_t bytes) { p.channel().set_memory_limit(bytes); },
          py::kw_only(), arg("limit_bytes"))
      .def(
          "set_memory_lease",
          [](const Process& p, uint64_t bytes) { p.channel().set_memory_lease(bytes); },
          py::kw_only(), arg("lease_bytes"))
      .def(
          "set_memory_wait", [](const Process& p, uint64_t ns) { p.channel().set_memory_wait(ns); },
          py::kw_only(), arg("wait_ns"))
      .def("set_memory_place", &set_memory_place, py::kw_only(), arg("ticket"), arg("round"),
           arg("refused"), arg("line_ahead"))
      .def(
          "set_resident_target",
          [](const Process& p, uint64_t bytes, uint32_t order) {
            p.channel().set_resident_target(bytes, order);
          },
          py::kw_only(), arg("bytes"), arg("order"))
      .def(
          "set_lane",
          [](const Process& p, bool holds) { p.channel().set_lane(holds ? shm::kLaneHolds : 0); },
          py::kw_only(), arg("holds"))
      .def("set_sms", &set_sms, py::kw_only(), arg("first"), arg("count"), arg("group_sms"),
           arg("turn") = 0)
      .def(
          "set_stale", [](const Process& p, uint64_t ns) { p.channel().set_stale(ns); },
          py::kw_only(), arg("stale_ns"))
      .def(
          "stamp", [](const Process& p, uint64_t ns) { p.channel().pages()->stamp(ns); },
          py::kw_only(), arg("tick_ns"))
      .def("close", &Process::close);
}

}  // namespace tandem::bindings
