// Records what the modelled GPUs did: one JSON object per line, times on the device's clock.
//
//   {"t_start_ns","t_end_ns","gpu","context","pid","stream","kind","name","sms","bytes","op",
//    "client","part","last","sm_set","t_ready_ns"}
//
// A kernel that was preempted, or whose share of SMs changed, has one line per part. `last` is true
// on the line of the part in which it ended; the `bytes` of the parts add up to those of the whole.
// kind: kernel copy_htod copy_dtoh copy_dtod memset host event memop_write memop_wait, and `switch`
// for the duration of a context switch (context: the one switched to).
#pragma once

#include <string>

#include "model.h"

namespace tandem::softgpu {

class Timeline {
 public:
  void set_enabled(bool enabled) { enabled_ = enabled; }
  // Writes the part of `op` that ran until now_ns.
  void part(const Op& op, uint64_t now_ns, bool last);
  void context_switch(const Context& to, uint64_t start_ns, uint64_t end_ns);
  std::string take();

 private:
  bool enabled_ = false;
  std::string text_;
};

// `text` as a JSON string, quoted and escaped.
std::string json_string(const std::string& text);

}  // namespace tandem::softgpu
