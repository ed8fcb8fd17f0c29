// PTX that the software GPU executes itself: turns its text into functions of a module, and a
// launch into a run of the interpreter (csrc/softgpu/ptx).
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "execute.h"
#include "objects.h"

namespace softgpu {

// One interpreted PTX image of a module; the module's functions point to it.
struct PtxImage;

// Links texts into an image, which the module owns; its kernels have what launches need. Returns
// null, with words in *problem, if a text is wrong or beyond the interpreter.
PtxImage* load_ptx(const std::vector<std::string_view>& texts, Module* module,
                   std::string* problem);
// Checks whether a text is sound as an input of a link, as far as it shows without the other
// inputs: a text that uses what others define is only parsed.
bool check_ptx_input(std::string_view text, std::set<std::string>* kernels, std::string* problem);
struct PtxKernel {
  const std::string* name;
  const tandem::KernelEntry* entry;
  const ptx::Function* function;
  KernelTraits traits;
};
std::vector<PtxKernel> kernels_of(const PtxImage& image);

// The address and size of a variable; false if no text of the module has it.
bool find_ptx_global(const Module& module, const char* name, uintptr_t* address, size_t* bytes);
void unload_ptx(Module* module);

// What a kernel has really done; the device process computes its duration from this.
struct ExecutedCost {
  double flops = 0, bytes = 0;
  double asleep_ns = 0;
};
extern thread_local ExecutedCost t_cost;

// Runs the work's kernel; execute.cpp calls run() through `guarded`.
class PtxRun {
 public:
  PtxRun(const Work& work, const ExecutingSms& sms, uint64_t start_ns);
  ~PtxRun();
  PtxRun(const PtxRun&) = delete;
  PtxRun& operator=(const PtxRun&) = delete;
  CUresult run();
  // Call this after run(), or after a fault that left it: reports the cost and, on failure, the
  // reason.
  void finish(CUresult result) const;

 private:
  struct State;
  State* state_;
};

}  // namespace softgpu
