// What the programs that question the driver share. Each makes one JSON object, its last line on
// stdout. A call that a driver may refuse is an answer, not a failure: it is reported by name.
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

// A function of the driver, or null where it has none of that name: itself an answer.
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

// The value that a share of the values does not exceed; 0 of none.
inline double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, (size_t)(share * (double)values.size()))];
}

// A JSON object as text. Names and strings are ours or the driver's, without anything to escape.
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
  // All digits, as times of the device in ns need them.
  Json& add(const char* name, const std::vector<uint64_t>& values) {
    std::string list;
    for (const uint64_t value : values) list += (list.empty() ? "" : ", ") + std::to_string(value);
    return raw(name, "[" + list + "]");
  }
  std::string str() const { return "{" + fields_ + "}"; }
  // As a line of its own, at once: somebody waits for it.
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
