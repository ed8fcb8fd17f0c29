// The Python module tandem._native: converts types and errors, nothing else. Its interface is
// client/tandem/_native.pyi.
#include "bindings.h"

#include "shm_layout.h"
#include "wire.h"

PYBIND11_MODULE(_native, module) {
  module.attr("PROTOCOL_VERSION") = tandem::wire::kProtocolVersion;
  module.attr("LAYOUT_VERSION") = tandem::shm::kLayoutVersion;
  module.attr("NO_LIMIT") = tandem::shm::kNoLimit;
  module.attr("PRESENCE_MAX") = tandem::shm::kPresenceMax;
  tandem::bindings::add_messages(module);
  tandem::bindings::add_signatures(module);
  tandem::bindings::add_process(module);
  tandem::bindings::add_samples(module);
  tandem::bindings::add_poller(module);
  tandem::bindings::add_coverage(module);
  tandem::bindings::add_iterations(module);
  tandem::bindings::add_buffers(module);
  tandem::bindings::add_dag(module);
  tandem::bindings::add_dag_build(module);
  tandem::bindings::add_dag_records(module);
  tandem::bindings::add_dag_analysis(module);
  tandem::bindings::add_bounds(module);
  tandem::bindings::add_memory_curve(module);
  tandem::bindings::add_trace(module);
}
