#include "ptx_kernels.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <new>

#include "ptx/link.h"
#include "ptx/load.h"
#include "ptx/parser.h"
#include "ptx/run.h"

namespace softgpu {

thread_local ExecutedCost t_cost;

struct PtxImage {
  struct Kernel {
    std::vector<uint32_t> offsets, sizes;
    tandem::KernelEntry entry;
    const ptx::Function* function;
    KernelTraits traits;
  };
  std::unique_ptr<ptx::Program> program;
  std::map<const ptx::Function*, Kernel> kernels;
};

namespace {

KernelTraits traits_of(const ptx::Program& program, const ptx::Function& function) {
  KernelTraits traits;
  traits.max_threads = function.max_threads;
  // At most 255 per thread, and few enough that its largest block still fits on an SM.
  const uint32_t most = std::min(255u, 65536 / std::max(1u, function.max_threads));
  traits.registers = std::min(std::max(function.registers, 8u), most);
  traits.shared_bytes = function.shared_bytes;
  traits.constant_bytes = static_cast<uint32_t>(program.const_bytes);
  traits.local_bytes = function.local_bytes;
  traits.ptx_version = traits.binary_version = program.target;
  for (int i = 0; i < 3; ++i) {
    traits.required_block[i] = function.required_threads[i];
    traits.required_cluster[i] = function.required_cluster[i];
  }
  return traits;
}

// The cost is not known beforehand; the body reports it.
void unknown_cost(const tandem::KernelLaunch*, double* flops, double* bytes) {
  *flops = *bytes = 0;
}

void add_kernel(PtxImage* image, const ptx::Function& function) {
  PtxImage::Kernel& kernel = image->kernels[&function];
  for (const ptx::Param& param : function.params) {
    kernel.offsets.push_back(param.offset);
    kernel.sizes.push_back(param.bytes);
  }
  kernel.entry = {tandem::kKernelAbi,
                  static_cast<uint32_t>(function.params.size()),
                  nullptr,
                  kernel.offsets.data(),
                  kernel.sizes.data(),
                  nullptr,
                  unknown_cost};
  kernel.function = &function;
  kernel.traits = traits_of(*image->program, function);
}

}  // namespace

namespace {

template <class Action>
bool succeeds(Action action, std::string* problem) {
  try {
    action();
    return true;
  } catch (const ptx::Invalid& invalid) {
    *problem = std::string("ptx input, ") + invalid.what();
  } catch (const std::bad_alloc&) {
    *problem = "ptx input: out of memory";
  }
  return false;
}

}  // namespace

bool check_ptx_input(std::string_view text, std::set<std::string>* kernels, std::string* problem) {
  return succeeds(
      [&] {
        const ptx::ast::Module module = ptx::parse(text);
        if (!ptx::needs_others(module)) ptx::load(text);
        for (const ptx::ast::Function& function : module.functions) {
          if (function.is_entry) kernels->insert(function.name);
        }
      },
      problem);
}

PtxImage* load_ptx(const std::vector<std::string_view>& texts, Module* module,
                   std::string* problem) {
  auto image = std::make_unique<PtxImage>();
  if (!succeeds([&] { image->program = ptx::load(texts); }, problem)) return nullptr;
  for (const auto& [name, function] : image->program->functions) {
    if (function->is_entry) add_kernel(image.get(), *function);
  }
  module->ptx.push_back(image.get());
  return image.release();
}

std::vector<PtxKernel> kernels_of(const PtxImage& image) {
  std::vector<PtxKernel> found;
  for (const auto& [function, kernel] : image.kernels) {
    found.push_back({&function->name, &kernel.entry, function, kernel.traits});
  }
  return found;
}

bool find_ptx_global(const Module& module, const char* name, uintptr_t* address, size_t* bytes) {
  for (const PtxImage* image : module.ptx) {
    const auto found = image->program->globals.find(name);
    if (found == image->program->globals.end()) continue;
    *address = found->second.address;
    *bytes = found->second.bytes;
    return true;
  }
  return false;
}

void unload_ptx(Module* module) {
  for (const PtxImage* image : module->ptx) delete image;
  module->ptx.clear();
}

struct PtxRun::State {
  ptx::Grid grid;
  const Work* work;
};

static const ptx::Program* program_of(const Work& work) {
  for (const PtxImage* image : work.function->module->ptx) {
    if (image->kernels.count(work.function->ptx) != 0) return image->program.get();
  }
  return nullptr;
}

PtxRun::PtxRun(const Work& work, const ExecutingSms& sms, uint64_t start_ns) {
  static std::atomic<uint64_t> launches{0};
  ptx::Launch launch{};
  launch.program = program_of(work);
  launch.kernel = work.function->ptx;
  for (int i = 0; i < 3; ++i) {
    launch.grid[i] = work.grid[i];
    launch.block[i] = work.block[i];
    launch.cluster[i] = std::max(1u, work.cluster[i]);
  }
  launch.params = work.payload.data();
  launch.dynamic_shared_bytes = work.shared_bytes;
  launch.sm_count = std::max(1u, sms.count);
  launch.sms = sms.count ? sms.index : nullptr;
  launch.number = ++launches;
  launch.start_ns = start_ns;
  launch.resident = uint64_t{launch.sm_count} * work.blocks_per_sm;
  launch.together = uint64_t{sms.begun_on ? sms.begun_on : launch.sm_count} * work.blocks_per_sm;
  launch.cooperative = work.cooperative;
  state_ = new State{ptx::Grid(launch), &work};
}

PtxRun::~PtxRun() { delete state_; }

CUresult PtxRun::run() {
  return state_->grid.has_memory() ? state_->grid.run() : CUDA_ERROR_OUT_OF_MEMORY;
}

void PtxRun::finish(CUresult result) const {
  constexpr double kSectorBytes = 32;
  const ptx::Counters& counters = state_->grid.counters();
  t_cost = {static_cast<double>(counters.flops),
            static_cast<double>(counters.sectors) * kSectorBytes,
            static_cast<double>(state_->grid.asleep_ns())};
  static const bool trace = getenv("TANDEM_SOFTGPU_TRACE") != nullptr;
  if (result == CUDA_SUCCESS || !trace) return;
  fprintf(stderr, "softgpu: kernel %s failed with error %d near line %u of its PTX\n",
          state_->work->function->name.c_str(), static_cast<int>(result), state_->grid.last_line());
}

}  // namespace softgpu
