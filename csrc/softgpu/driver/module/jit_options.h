// The options of cuModuleLoadDataEx, cuLibraryLoad* and cuLink*: finds wrong ones, and acts on
// logs, their sizes and the wall time, which it reports to the program.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "loader.h"

namespace softgpu {

struct JitOptionList {
  unsigned int count;
  const CUjit_option* options;
  void** values;
};

class JitOptions {
 public:
  enum Use { kLoad, kLink, kLinkInput };
  CUresult read(JitOptionList list, Use use);
  // Fills the program's buffers; log sizes and the wall time replace the option values.
  void report(const LoadLog& log, uint64_t wall_ns) const;
  bool verbose() const { return verbose_; }

 private:
  struct Buffer {
    char* text = nullptr;
    void** size = nullptr;  // the option value: capacity in, bytes written out
    unsigned int capacity = 0;
    void fill(const std::string& message) const;
  };
  CUresult take(CUjit_option option, void** value, Use use);

  Buffer info_, error_;
  void** wall_time_ = nullptr;
  bool verbose_ = false, targeted_ = false, threads_ = false;
};

// Calls `body(log)` between reading the options and reporting; returns the body's result.
template <class Body>
CUresult with_jit_options(JitOptionList list, const Runtime& rt, Body body) {
  JitOptions options;
  if (const CUresult bad = options.read(list, JitOptions::kLoad)) return bad;
  LoadLog log;
  const uint64_t begin_ns = rt.now_ns();
  const CUresult result = body(&log);
  options.report(log, rt.now_ns() - begin_ns);
  return result;
}

}  // namespace softgpu
