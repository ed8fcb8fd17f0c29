#include <pybind11/stl.h>

#include "bindings.h"
#include "dag/analysis/analysis.h"
#include "dag/analysis/held.h"
#include "dag/analysis/scaling.h"
#include "dag/records.h"

namespace tandem::bindings {
namespace {

namespace py = pybind11;
using dag::analysis::minus;

// The meaning of telemetry records: operations, and what the numbers in them stand for.
class RecordedOperations {
 public:
  explicit RecordedOperations(const py::bytes& bytes) {
    size_t place = 0;
    for (const shm::Record& record : records_in(bytes)) {
      if (is_hold(record)) held_.push_back({minus(record.ticks, record.duration_ns), record.ticks});
      const dag::NodeId id = records_.take(record);
      if (id != dag::kNoNode) {
        operations_.append(graph_.node(id).op);
        places_.append(place);
      }
      ++place;
    }
  }

  py::list operations() const { return operations_; }
  py::list places() const { return places_; }

  dag::analysis::Analysis analyse() const {
    dag::analysis::Options options;
    options.since = graph_.begin();
    options.held = dag::analysis::united(held_);
    return dag::analysis::analyse({graph_, graph_.begin(), graph_.end()}, options);
  }

  // Raises ValueError if a number of SMs is 0, or gamma is not in 0 to 1.
  dag::analysis::Scaling scaling(uint64_t begin_ns, uint64_t end_ns, uint32_t sms,
                                 const std::vector<uint32_t>& sm_counts, double gamma,
                                 uint64_t pause_ns) const {
    if (sms == 0 || std::count(sm_counts.begin(), sm_counts.end(), 0u) > 0)
      throw py::value_error("a number of SMs is 0; it is 1 at least");
    if (!(gamma >= 0 && gamma <= 1))
      throw py::value_error("gamma is " + std::to_string(gamma) + ", not in 0 to 1");
    const py::gil_scoped_release released;
    return dag::analysis::scaling({graph_, graph_.begin(), graph_.end()},
                                  {begin_ns, end_ns, sms, dag::analysis::united(held_), pause_ns},
                                  sm_counts, gamma);
  }

  py::list held() const {
    py::list out;
    for (const auto& [start_ns, end_ns] : dag::analysis::united(held_))
      out.append(py::make_tuple(start_ns, end_ns));
    return out;
  }

  py::dict streams() const {
    py::dict out;
    for (const auto& [number, stream] : records_.streams())
      out[py::int_(number)] =
          py::make_tuple(stream.handle, stream.context, stream.thread, stream.kind);
    return out;
  }

  py::dict threads() const {
    py::dict out;
    for (const auto& [number, tid] : records_.threads()) out[py::int_(number)] = tid;
    return out;
  }

 private:
  // True if the gate, the window or a busy higher class kept a thread from submitting.
  static bool is_hold(const shm::Record& record) {
    if (record.kind != static_cast<uint8_t>(shm::RecordKind::kWait)) return false;
    switch (static_cast<shm::WaitReason>(record.value)) {
      case shm::WaitReason::kGate:
      case shm::WaitReason::kWindow:
      case shm::WaitReason::kPresence: return record.duration_ns > 0;
      default: return false;
    }
  }

  std::vector<dag::analysis::Times> held_;
  dag::Graph graph_;
  dag::Order order_{graph_};
  dag::Records records_{order_};
  py::list operations_, places_;
};

}  // namespace

void add_dag_records(py::module_& module) {
  using dag::analysis::Scaling;
  using py::arg;
  py::class_<Scaling>(module, "Scaling", py::is_final())
      .def_readonly("length_ns", &Scaling::length_ns)
      .def_readonly("recorded_ns", &Scaling::recorded_ns)
      .def_readonly("reconstructed_ns", &Scaling::reconstructed_ns)
      .def_readonly("kernel_ns", &Scaling::kernel_ns)
      .def_readonly("gridless_ns", &Scaling::gridless_ns)
      .def_readonly("demand_ns", &Scaling::demand_ns)
      .def_readonly("operations", &Scaling::operations)
      .def_readonly("untimed", &Scaling::untimed)
      .def_readonly("is_crowded", &Scaling::is_crowded);
  py::class_<RecordedOperations>(module, "RecordedOperations", py::is_final())
      .def(py::init<const py::bytes&>(), arg("records"))
      .def("analyse", &RecordedOperations::analyse, py::call_guard<py::gil_scoped_release>())
      .def("scaling", &RecordedOperations::scaling, py::kw_only(), arg("begin_ns"), arg("end_ns"),
           arg("sms"), arg("sm_counts"), arg("gamma") = 0.0, arg("pause_ns") = 0)
      .def_property_readonly("held", &RecordedOperations::held)
      .def_property_readonly("operations", &RecordedOperations::operations)
      .def_property_readonly("places", &RecordedOperations::places)
      .def_property_readonly("streams", &RecordedOperations::streams)
      .def_property_readonly("threads", &RecordedOperations::threads);
}

}  // namespace tandem::bindings
