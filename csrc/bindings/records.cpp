#include <cstring>

#include "bindings.h"

namespace tandem::bindings {

std::vector<shm::Record> records_in(std::string_view bytes) {
  if (bytes.size() % sizeof(shm::Record) != 0) {
    throw pybind11::value_error(std::to_string(bytes.size()) +
                                " bytes are no whole number of records of " +
                                std::to_string(sizeof(shm::Record)));
  }
  std::vector<shm::Record> records(bytes.size() / sizeof(shm::Record));
  std::memcpy(records.data(), bytes.data(), bytes.size());
  return records;
}

}  // namespace tandem::bindings
