// PTX that the software GPU executes itself: from its text to functions of a module, and from a
// launch to a run of the interpreter (csrc/softgpu/ptx).
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "execute.h"
#include "objects.h"

namespace softgpu {

// One interpreted PTX text of a module: what its functions point to.
struct PtxImage;

// Texts, linked -> an image, owned by the module, and its kernels with what launches have to know of them.
// Null, and words in *problem, when a text is wrong or beyond the interpreter.
PtxImage* load_ptx(const std::vector<std::string_view>& texts, Module* module,
                   std::string* problem);
// Whether it is sound as an input of a link, as far as that shows without the others: texts that
// use what others define are parsed only.
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

// What a kernel has really done, for the device process to time it by.
struct ExecutedCost {
  double flops = 0, bytes = 0;
  double asleep_ns = 0;
};
extern thread_local ExecutedCost t_cost;

// Runs the work's kernel; called under the guard of execute.cpp through `guarded`.
class PtxRun {
 public:
  PtxRun(const Work& work, const ExecutingSms& sms, uint64_t start_ns);
  ~PtxRun();
  PtxRun(const PtxRun&) = delete;
  PtxRun& operator=(const PtxRun&) = delete;
  CUresult run();
  // After run(), or after a fault that left it: tells the cost, and why it ended if it failed.
  void finish(CUresult result) const;

 private:
  struct State;
  State* state_;
};

}  // namespace softgpu
