// PTX in runnable form: registers are offsets, labels are indexes, and each instruction has a
// handler that performs it for all 32 lanes of a warp at once.
//
// A register of 16, 32 or 64 bits is an array of 32 such elements; a predicate is one 32-bit mask.
// Immediates and special registers are registers, too, filled in before the function begins.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "types.h"

namespace softgpu::ptx {

struct Warp;
struct Instr;
using Handler = void (*)(Warp&, const Instr&, uint32_t mask);

// What happens after the handler `run`, if the instruction has one.
enum class Flow : uint8_t {
  kNext,
  kMayFail,  // like kNext, unless the block has an error now
  kWatch,    // like kMayFail; may be polling for a value that another block has yet to write
  kSync,     // like kNext, but executed only when all lanes that mask `d` names have arrived
  kBarrier,
  kClusterWait,  // executed only when all lanes have arrived
  kBranch,
  kBranchIndexed,
  kCall,
  kReturn,
  kExit,
  kTrap,
  kClusterArrive,
  kClock,
};

inline constexpr uint32_t kNoSlot = UINT32_MAX;
inline constexpr uint32_t kLanes = 32;
inline constexpr uint32_t kAllLanes = UINT32_MAX;

struct Instr {
  Handler run = nullptr;
  uint64_t immediate = 0;  // displacement, table or mask: its meaning is up to the handler
  uint32_t dst = kNoSlot, dst2 = kNoSlot, a = kNoSlot, b = kNoSlot, c = kNoSlot, d = kNoSlot;
  uint32_t guard = kNoSlot;
  uint32_t target = 0;      // kBranch
  uint32_t reconverge = 0;  // kBranch, kBranchIndexed: where diverged lanes meet again
  uint32_t extra = 0;       // index of its first additional number in Function::extra
  uint32_t line = 0;
  uint8_t count = 0;  // how many additional numbers it has
  uint8_t flops = 0;  // per lane
  uint8_t mode = 0;   // its meaning is up to the handler
  Flow flow = Flow::kNext;
  bool guard_negated = false;
};

enum class Special : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneid,
  kWarpid,
  kNwarpid,
  kMaskEq,
  kMaskLe,
  kMaskLt,
  kMaskGe,
  kMaskGt,
  kSmid,
  kNsmid,
  kGridid,
  kWorkspaceLow,
  kWorkspaceHigh,
  kDynamicShared,
  kTotalShared,
  kZero,
  kClusterX,
  kClusterY,
  kClusterZ,
  kNclusterX,
  kNclusterY,
  kNclusterZ,  // in the grid
  kClusterCtaidX,
  kClusterCtaidY,
  kClusterCtaidZ,
  kClusterNctaidX,
  kClusterNctaidY,
  kClusterNctaidZ,
  kClusterRank,
  kClusterSize,
  kFrame,   // address of this call's local memory, per lane
  kParams,  // address of the kernel's parameters
};

struct SpecialSlot {
  Special which;
  uint32_t offset;
  bool wide;  // 64 bits
};

struct Constant {
  uint64_t low, high;
  uint32_t offset, bytes;
};

struct Param {
  std::string name;
  uint32_t offset, bytes;
};

struct Function {
  std::string name;
  bool is_entry = false;
  std::vector<Instr> code;
  std::vector<uint32_t> extra;
  std::vector<Constant> constants;
  std::vector<SpecialSlot> specials;
  std::vector<Param> results, params;  // offsets in the frame; a kernel's, in its parameters
  uint32_t register_bytes = 0;
  uint32_t params_bytes = 0;
  uint32_t frame_bytes = 0;   // local memory of one call
  uint32_t local_bytes = 0;   // of .local variables alone
  uint32_t shared_bytes = 0;  // static shared memory that the kernel and its callees name
  uint32_t max_threads = 0, required_threads[3] = {0, 0, 0};
  uint32_t required_cluster[3] = {0, 0, 0};
  uint32_t registers = 0;  // estimate of the 32-bit registers a thread needs
  std::vector<const Function*> callees;
  bool calls_unknown = false;
};

struct Global {
  uint64_t address, bytes;
};

// A loaded module. Owns the memory of its variables. Not movable, since that memory may contain
// addresses within itself.
class Program {
 public:
  Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  uint32_t version = 0, target = 0;
  std::map<std::string, std::unique_ptr<Function>> functions;
  std::map<std::string, Global> globals;
  uint32_t shared_bytes = 0;  // static, of the whole module; dynamic shared memory follows it
  void* memory = nullptr;     // constants first
  uint64_t const_bytes = 0, memory_bytes = 0;
};

}  // namespace softgpu::ptx
