// Common parts of the programs that query the driver. Each prints one JSON object as its last line
// on stdout. A refusal that is possible is a result, not a failure: it is reported by name.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "driver.h"

inline std::string name_of(CUresult result) {
  const char* name = nullptr;
  DRIVER(cuGetErrorName, "cuGetErrorName")(result, &name);
  return name != nullptr ? name : "CUresult " + std::to_string((int)result);
}

// Returns a function of the driver, or null if it has none of that name, which is a result in
// itself.
template <typename Function>
Function* try_function(const char* name) {
  static auto* const get = DRIVER(cuGetProcAddress_v2, "cuGetProcAddress");
  void* found = nullptr;
  CUdriverProcAddressQueryResult status;
  const CUresult result = get(name, &found, CUDA_VERSION, 0, &status);
  return result == CUDA_SUCCESS ? (Function*)found : nullptr;
}
#define TRY_DRIVER(type, name) (try_function<decltype(type)>(name))

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Returns the value that the given share of the values does not exceed; 0 if there are none.
inline double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, (size_t)(share * (double)values.size()))];
}

// A JSON object as text. Names and strings are ours or the driver's, and contain nothing to escape.
class Json {
 public:
  Json& add(const char* name, double value) { return raw(name, text("%.6g", value)); }
  Json& add(const char* name, uint64_t value) { return raw(name, std::to_string(value)); }
  Json& add(const char* name, const std::string& value) { return raw(name, "\"" + value + "\""); }
  Json& add(const char* name, const char* value) { return add(name, std::string(value)); }
  Json& add(const char* name, bool value) { return raw(name, value ? "true" : "false"); }
  Json& add(const char* name, const Json& value) { return raw(name, value.str()); }
  Json& add(const char* name, const std::vector<double>& values) {
    std::string list;
    for (const double value : values) list += (list.empty() ? "" : ", ") + text("%.9g", value);
    return raw(name, "[" + list + "]");
  }
  // With all digits, which device times in ns need.
  Json& add(const char* name, const std::vector<uint64_t>& values) {
    std::string list;
    for (const uint64_t value : values) list += (list.empty() ? "" : ", ") + std::to_string(value);
    return raw(name, "[" + list + "]");
  }
  std::string str() const { return "{" + fields_ + "}"; }
  // Prints it as a line of its own and flushes, since the reader is waiting for it.
  void print() const {
    puts(str().c_str());
    fflush(stdout);
  }

 private:
  static std::string text(const char* format, double value) {
    char buffer[32];
    snprintf(buffer, sizeof buffer, format, value);
    return buffer;
  }
  Json& raw(const char* name, const std::string& value) {
    fields_ += (fields_.empty() ? "\"" : ", \"") + std::string(name) + "\": " + value;
    return *this;
  }

  std::string fields_;
};
