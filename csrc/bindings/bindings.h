// What the parts of the module share.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/shared.h"
#include "shm_layout.h"

namespace tandem::bindings {

void add_messages(pybind11::module_& module);
void add_process(pybind11::module_& module);
void add_poller(pybind11::module_& module);
void add_trace(pybind11::module_& module);
void add_coverage(pybind11::module_& module);
void add_iterations(pybind11::module_& module);
void add_signatures(pybind11::module_& module);  // before the parts that take a Signature
void add_samples(pybind11::module_& module);
void add_buffers(pybind11::module_& module);
void add_dag(pybind11::module_& module);
void add_dag_build(pybind11::module_& module);
void add_dag_records(pybind11::module_& module);
void add_dag_analysis(pybind11::module_& module);
void add_bounds(pybind11::module_& module);
void add_memory_curve(pybind11::module_& module);

// A Channel that can be closed; any use after that raises ValueError.
class Process {
 public:
  Process(uint64_t process_id, uint64_t job_id);

  uint64_t process_id() const { return process_id_; }
  daemon::Channel& channel() const;
  void close() { channel_.reset(); }

 private:
  uint64_t process_id_;
  std::unique_ptr<daemon::Channel> channel_;
};

// Telemetry records from the packed bytes that Python has. Raises ValueError unless the length
// fits.
std::vector<shm::Record> records_in(std::string_view bytes);

// Raises OSError with the errno and "call: its text".
[[noreturn]] void raise_os_error(const daemon::Failure& failure);

}  // namespace tandem::bindings
