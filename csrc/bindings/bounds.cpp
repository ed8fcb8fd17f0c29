// What bounds the work of a window, as Python sees it.
#include "daemon/bounds.h"

#include "bindings.h"

namespace tandem::bindings {
namespace {

namespace py = pybind11;
namespace analysis = dag::analysis;

// Returns the shares by class, the number of operations on the GPU, and how many have no duration.
py::tuple bounds_of(const daemon::Window& window, const daemon::Sample& sample, uint32_t sm_count,
                    uint64_t bandwidth_bytes_per_s) {
  analysis::Device device;
  device.sm_count = sm_count;
  device.bandwidth_bytes_per_s = bandwidth_bytes_per_s;
  daemon::Bounds found;
  {
    const py::gil_scoped_release released;
    found = daemon::bounds_of(window, sample, device);
  }
  py::dict shares;
  for (uint32_t i = 0; i < analysis::kClassCount; ++i)
    shares[py::cast(static_cast<analysis::Class>(i))] = found.share[i];
  return py::make_tuple(shares, found.operations, found.untimed);
}

}  // namespace

void add_bounds(pybind11::module_& module) {
  using py::arg;
  module.def("bounds_of", &bounds_of, arg("window"), arg("sample"), py::kw_only(), arg("sm_count"),
             arg("bandwidth_bytes_per_s"));
}

}  // namespace tandem::bindings
