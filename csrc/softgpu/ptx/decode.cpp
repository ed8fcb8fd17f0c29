#include "decode.h"

#include <algorithm>
#include <cstring>

namespace softgpu::ptx {
namespace {

constexpr uint32_t kMostRegisterBytes = 64 << 20;  // of one warp
constexpr uint64_t kMostFrameBytes = 512 << 10;    // local memory of a thread on a GPU

struct SpecialName {
  std::string_view name;
  Special which;
};
constexpr SpecialName kSpecials[] = {
    {"%tid.x", Special::kTidX},
    {"%tid.y", Special::kTidY},
    {"%tid.z", Special::kTidZ},
    {"%ntid.x", Special::kNtidX},
    {"%ntid.y", Special::kNtidY},
    {"%ntid.z", Special::kNtidZ},
    {"%ctaid.x", Special::kCtaidX},
    {"%ctaid.y", Special::kCtaidY},
    {"%ctaid.z", Special::kCtaidZ},
    {"%nctaid.x", Special::kNctaidX},
    {"%nctaid.y", Special::kNctaidY},
    {"%nctaid.z", Special::kNctaidZ},
    {"%laneid", Special::kLaneid},
    {"%warpid", Special::kWarpid},
    {"%nwarpid", Special::kNwarpid},
    {"%lanemask_eq", Special::kMaskEq},
    {"%lanemask_le", Special::kMaskLe},
    {"%lanemask_lt", Special::kMaskLt},
    {"%lanemask_ge", Special::kMaskGe},
    {"%lanemask_gt", Special::kMaskGt},
    {"%smid", Special::kSmid},
    {"%nsmid", Special::kNsmid},
    {"%gridid", Special::kGridid},
    {"%envreg1", Special::kWorkspaceHigh},
    {"%envreg2", Special::kWorkspaceLow},
    {"%dynamic_smem_size", Special::kDynamicShared},
    {"%total_smem_size", Special::kTotalShared},
    {"%clusterid.x", Special::kClusterX},
    {"%clusterid.y", Special::kClusterY},
    {"%clusterid.z", Special::kClusterZ},
    {"%nclusterid.x", Special::kNclusterX},
    {"%nclusterid.y", Special::kNclusterY},
    {"%nclusterid.z", Special::kNclusterZ},
    {"%cluster_ctaid.x", Special::kClusterCtaidX},
    {"%cluster_ctaid.y", Special::kClusterCtaidY},
    {"%cluster_ctaid.z", Special::kClusterCtaidZ},
    {"%cluster_nctaid.x", Special::kClusterNctaidX},
    {"%cluster_nctaid.y", Special::kClusterNctaidY},
    {"%cluster_nctaid.z", Special::kClusterNctaidZ},
    {"%cluster_ctarank", Special::kClusterRank},
    {"%cluster_nctarank", Special::kClusterSize},
};

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

}  // namespace

bool special_named(std::string_view name, Special* which) {
  for (const SpecialName& known : kSpecials) {
    if (known.name != name) continue;
    *which = known.which;
    return true;
  }
  if (name.rfind("%envreg", 0) != 0) return false;
  *which = Special::kZero;
  return true;
}

FunctionBuilder::FunctionBuilder(const ast::Function& from, const Symbols& symbols, Function* to)
    : from_(from), symbols_(symbols), to_(to), slots_(from.registers.size(), kNoSlot) {
  for (const ast::Label& label : from.labels) {
    if (!labels_.emplace(label.name, label.at).second) {
      throw Invalid(from.line, "label '" + label.name + "' is there twice");
    }
  }
  place_variables();
}

uint32_t FunctionBuilder::allocate(uint32_t bytes) {
  const auto at = static_cast<uint32_t>(round_up(to_->register_bytes, std::min(bytes, 64u)));
  if (at > kMostRegisterBytes) throw Invalid(from_.line, "too many registers");
  to_->register_bytes = at + bytes;
  return at;
}

uint32_t FunctionBuilder::slot(int reg) {
  uint32_t& slot = slots_[static_cast<size_t>(reg)];
  if (slot != kNoSlot) return slot;
  const Type type = register_type(reg);
  const uint32_t bytes = bytes_of(type);
  slot = allocate(type == Type::kPred ? bytes : bytes * kLanes);
  to_->registers += type == Type::kPred ? 0 : (bytes + 3) / 4;
  return slot;
}

uint32_t FunctionBuilder::constant(uint64_t low, uint64_t high, uint32_t bytes) {
  if (bytes < 8) low &= (uint64_t{1} << (8 * bytes)) - 1;
  const auto [found, fresh] = constants_.emplace(std::make_tuple(low, high, bytes), 0);
  if (fresh) {
    found->second = allocate(bytes * kLanes);
    to_->constants.push_back({low, high, found->second, bytes});
  }
  return found->second;
}

uint32_t FunctionBuilder::special(Special which, bool wide) {
  const auto [found, fresh] = specials_.emplace(std::make_pair(which, wide), 0);
  if (fresh) {
    found->second = allocate((wide ? 8 : 4) * kLanes);
    to_->specials.push_back({which, found->second, wide});
  }
  return found->second;
}

uint32_t FunctionBuilder::sink() {
  if (sink_ == kNoSlot) sink_ = allocate(16 * kLanes);
  return sink_;
}

bool FunctionBuilder::in_kernel_params(int variable) const {
  const auto index = static_cast<size_t>(variable);
  return from_.is_entry && index < from_.params.size();
}

void FunctionBuilder::place_variables() {
  const size_t results = from_.results.size(), formal = results + from_.params.size();
  uint64_t frame = 0;
  for (size_t i = 0; i < from_.variables.size(); ++i) {
    const ast::Variable& variable = from_.variables[i];
    const uint32_t align = std::max(1u, variable.align);
    const bool kernel_param = from_.is_entry && i < formal;
    uint64_t offset = 0;
    if (kernel_param) {
      offset = round_up(to_->params_bytes, align);
      if (offset + variable.bytes > 32764) throw Invalid(variable.line, "too many parameters");
      to_->params_bytes = static_cast<uint32_t>(offset + variable.bytes);
    } else if (variable.space == Space::kShared) {
      offset = symbols_.at(from_.name + "/" + std::to_string(i)).value;
    } else if (variable.space == Space::kLocal || variable.space == Space::kParam) {
      offset = round_up(frame, align);
      frame = offset + variable.bytes;
      if (variable.space == Space::kLocal) {
        to_->local_bytes += static_cast<uint32_t>(variable.bytes);
      }
      if (frame > kMostFrameBytes) throw Invalid(variable.line, "too much local memory");
    } else {
      throw Invalid(variable.line, "variable '" + variable.name + "' inside of a function");
    }
    offsets_.push_back(offset);
    const Param param{variable.name, static_cast<uint32_t>(offset),
                      static_cast<uint32_t>(variable.bytes)};
    if (i < results) {
      to_->results.push_back(param);
    } else if (i < formal) {
      to_->params.push_back(param);
    }
  }
  to_->frame_bytes = static_cast<uint32_t>(round_up(frame, 16));
}

uint32_t FunctionBuilder::label(const std::string& name, uint32_t line) const {
  const auto found = labels_.find(name);
  if (found == labels_.end()) throw Invalid(line, "unknown label '" + name + "'");
  return found->second;
}

const std::vector<std::string>* FunctionBuilder::list(const std::string& name) const {
  for (const ast::NameList& list : from_.lists) {
    if (list.name == name) return &list.targets;
  }
  return nullptr;
}

Decode::Decode(FunctionBuilder& to, const ast::Instruction& instruction)
    : builder(to),
      from(instruction),
      left_(instruction.modifiers),
      used_(instruction.operands.size(), false) {
  out.line = from.line;
  out.guard_negated = from.guard_negated;
  if (from.guard == ast::kNone) return;
  if (builder.register_type(from.guard) != Type::kPred) fail("has a guard that is no predicate");
  out.guard = builder.slot(from.guard);
}

Instr Decode::finish() {
  if (!left_.empty()) fail("has modifier '." + left_.front() + "', which is not supported");
  if (std::find(used_.begin(), used_.end(), false) != used_.end()) fail("has too many operands");
  return out;
}

void Decode::fail(const std::string& why) const {
  std::string text = from.opcode;
  for (const std::string& modifier : from.modifiers) text += "." + modifier;
  throw Invalid(from.line, "instruction '" + text + "' " + why);
}

bool Decode::take(std::string_view modifier) {
  const auto found = std::find(left_.begin(), left_.end(), modifier);
  if (found == left_.end()) return false;
  left_.erase(found);
  return true;
}

Type Decode::maybe_type() {
  for (auto word = left_.begin(); word != left_.end(); ++word) {
    const Type found = type_named(*word);
    if (found == Type::kNone) continue;
    left_.erase(word);
    return found;
  }
  return Type::kNone;
}

Type Decode::type() {
  const Type found = maybe_type();
  if (found == Type::kNone) fail("has no type");
  return found;
}

const ast::Operand& Decode::operand(size_t index) {
  if (index >= from.operands.size()) fail("has too few operands");
  used_[index] = true;
  return from.operands[index];
}

void Decode::check_width(const ast::Operand& given, Type type) const {
  const Type own = builder.register_type(given.reg);
  if ((own == Type::kPred) != (type == Type::kPred) || bytes_of(own) != bytes_of(type)) {
    fail("has a register of another width than its type");
  }
}

uint32_t Decode::source(const ast::Operand& given, Type type) {
  if (given.negated) fail("has a '!' where none may be");
  switch (given.kind) {
    case ast::Kind::kRegister: check_width(given, type); return builder.slot(given.reg);
    case ast::Kind::kInteger:
    case ast::Kind::kReal: return immediate(given, type);
    case ast::Kind::kName: return named(given, type);
    default: fail("has an operand of the wrong kind");
  }
}

uint32_t Decode::immediate(const ast::Operand& given, Type type) {
  const uint32_t bytes = bytes_of(type);
  uint64_t bits = given.bits;
  if (type == Type::kPred) fail("has a number for a predicate");
  if (given.kind == ast::Kind::kInteger) {
    if (is_float(type) && bytes > 2) fail("has a whole number where a real one belongs");
    const bool negative = (bits >> 63) != 0 && bytes == 16;
    return builder.constant(bits, negative ? ~uint64_t{0} : 0, bytes);
  }
  if (bytes == 4 && !given.is_single) {
    double wide;
    memcpy(&wide, &bits, sizeof wide);
    const auto narrow = static_cast<float>(wide);
    uint32_t narrow_bits;
    memcpy(&narrow_bits, &narrow, sizeof narrow_bits);
    bits = narrow_bits;
  } else if (bytes == 8 && given.is_single) {
    const auto narrow_bits = static_cast<uint32_t>(bits);
    float narrow;
    memcpy(&narrow, &narrow_bits, sizeof narrow);
    const double wide = narrow;
    memcpy(&bits, &wide, sizeof bits);
  } else if (bytes != 4 && bytes != 8) {
    fail("has a real number of another width than its type");
  }
  return builder.constant(bits, 0, bytes);
}

uint32_t Decode::named(const ast::Operand& given, Type type) {
  const uint32_t bytes = bytes_of(type);
  Special which;
  if (given.variable == ast::kNone && special_named(given.name, &which)) {
    if (bytes != 4 && bytes != 8) fail("has a special register of another width than its type");
    return builder.special(which, bytes == 8);
  }
  if (given.name == "WARP_SZ") return builder.constant(kLanes, 0, bytes);
  if (given.variable != ast::kNone) {
    const ast::Variable& variable = builder.from().variables[static_cast<size_t>(given.variable)];
    if (variable.space != Space::kShared) fail("needs the address of '" + given.name + "'");
    return builder.constant(builder.variable_offset(given.variable) + given.bits, 0, bytes);
  }
  const auto symbol = builder.symbols().find(given.name);
  if (symbol == builder.symbols().end()) fail("names '" + given.name + "', which is unknown");
  const bool shared = symbol->second.space == Space::kShared;
  if (bytes != 8 && !(shared && bytes == 4)) fail("has an address in a narrow register");
  if (symbol->second.function != nullptr) builder.to().calls_unknown = true;
  return builder.constant(symbol->second.value + given.bits, 0, bytes);
}

uint32_t Decode::destination(const ast::Operand& given, Type type) {
  if (given.kind == ast::Kind::kSink) {
    return type == Type::kPred ? kNoSlot : builder.sink();
  }
  if (given.kind != ast::Kind::kRegister || given.negated) fail("has a result that is no register");
  check_width(given, type);
  return builder.slot(given.reg);
}

uint32_t Decode::any_register(const ast::Operand& given, uint32_t* bytes) {
  if (given.kind != ast::Kind::kRegister || given.negated)
    fail("has an operand that is no register");
  const Type own = builder.register_type(given.reg);
  if (own == Type::kPred) fail("has a predicate for an operand");
  *bytes = bytes_of(own);
  return builder.slot(given.reg);
}

uint32_t Decode::predicate(const ast::Operand& given, bool* negated) {
  *negated = given.negated;
  if (given.kind != ast::Kind::kRegister || builder.register_type(given.reg) != Type::kPred) {
    fail("has an operand that is no predicate");
  }
  return builder.slot(given.reg);
}

void Decode::address(size_t index, Space space) {
  const ast::Operand& given = operand(index);
  if (given.kind != ast::Kind::kAddress) fail("has an operand that is no address");
  out.immediate = given.bits;
  if (given.reg != ast::kNone) {
    const uint32_t bytes = bytes_of(builder.register_type(given.reg));
    if (builder.register_type(given.reg) == Type::kPred || (bytes != 8 && bytes != 4) ||
        (bytes == 4 && space != Space::kShared)) {
      fail("has an address in a register of the wrong width");
    }
    out.a = builder.slot(given.reg);
    if (bytes == 4) out.mode |= kNarrowBase;
  } else if (given.variable != ast::kNone) {
    const ast::Variable& variable = builder.from().variables[static_cast<size_t>(given.variable)];
    const bool params = builder.in_kernel_params(given.variable);
    if (variable.space != space) fail("names '" + given.name + "' in another state space");
    out.immediate += builder.variable_offset(given.variable);
    if (space != Space::kShared) {
      out.a = builder.special(params ? Special::kParams : Special::kFrame, true);
    }
  } else if (!given.name.empty()) {
    const auto symbol = builder.symbols().find(given.name);
    if (symbol == builder.symbols().end()) fail("names '" + given.name + "', which is unknown");
    const bool generic = space == Space::kGeneric && symbol->second.space != Space::kShared;
    if (symbol->second.space != space && !generic) {
      fail("names '" + given.name + "' in another state space");
    }
    out.immediate += symbol->second.value;
  }
}

void Decode::further(uint32_t number) {
  Function& to = builder.to();
  if (out.count == 0) out.extra = static_cast<uint32_t>(to.extra.size());
  to.extra.push_back(number);
  ++out.count;
}

uint64_t Decode::integer(size_t index) {
  const ast::Operand& given = operand(index);
  if (given.kind != ast::Kind::kInteger) fail("has an operand that is no whole number");
  return given.bits;
}

}  // namespace softgpu::ptx
