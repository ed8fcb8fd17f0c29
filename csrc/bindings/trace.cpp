// The tracer's end of a trace of calls, and the table of calls that its files carry.
#include "bindings.h"
#include "daemon/trace_reader.h"

namespace tandem::bindings {
namespace {

namespace py = pybind11;

constexpr char kCalls[] =
#include "trace_calls.inc"
    ;

class Tracer {
 public:
  Tracer(bool device_times, uint32_t wait_ms, uint64_t key) {
    if (const daemon::Failure failure = reader_.open(device_times, wait_ms, key))
      raise_os_error(failure);
  }
  int fd() const { return reader_.descriptor(); }
  uint64_t lost() const { return reader_.lost(); }
  uint32_t threads() const { return reader_.threads(); }
  py::bytes drain(bool look_for_dead) {
    std::string out;
    reader_.drain(look_for_dead, &out);
    return py::bytes(out);
  }

 private:
  daemon::TraceReader reader_;
};

}  // namespace

void add_trace(py::module_& module) {
  using py::arg;
  module.attr("TRACE_CALLS") = kCalls;
  py::class_<Tracer>(module, "Tracer", py::is_final())
      .def(py::init<bool, uint32_t, uint64_t>(), py::kw_only(), arg("device_times"), arg("wait_ms"),
           arg("key"))
      .def_property_readonly("fd", &Tracer::fd)
      .def_property_readonly("lost", &Tracer::lost)
      .def_property_readonly("threads", &Tracer::threads)
      .def("drain", &Tracer::drain, py::kw_only(), arg("look_for_dead"));
}

}  // namespace tandem::bindings
