// What the parts of the module offer to each other.
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
void add_signatures(pybind11::module_& module);  // before those that take one
void add_samples(pybind11::module_& module);
void add_buffers(pybind11::module_& module);
void add_dag(pybind11::module_& module);
void add_dag_build(pybind11::module_& module);
void add_dag_records(pybind11::module_& module);
void add_dag_analysis(pybind11::module_& module);
void add_bounds(pybind11::module_& module);
void add_memory_curve(pybind11::module_& module);

// A Channel that can be closed: every use after that is a ValueError.
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

// Telemetry records as Python has them: packed. ValueError where the length fits none.
std::vector<shm::Record> records_in(std::string_view bytes);

// OSError with the errno, "call: its text".
[[noreturn]] void raise_os_error(const daemon::Failure& failure);

}  // namespace tandem::bindings
