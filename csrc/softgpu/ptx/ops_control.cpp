// Decodes branches, calls and barriers; run_warp.cpp executes them.
#include <algorithm>

#include "control.h"
#include "lanes.h"
#include "ops.h"

namespace softgpu::ptx {
namespace {

uint32_t frame_offset(Decode& d, const ast::Operand& operand) {
  if (operand.kind != ast::Kind::kName || operand.variable == ast::kNone ||
      d.builder.in_kernel_params(operand.variable)) {
    d.fail("passes something that is no .param of this function");
  }
  const auto& variable = d.builder.from().variables[static_cast<size_t>(operand.variable)];
  if (variable.space != Space::kParam) d.fail("passes '" + variable.name + "', which is no .param");
  return static_cast<uint32_t>(d.builder.variable_offset(operand.variable));
}

bool is_list(const ast::Operand& operand) {
  return operand.kind == ast::Kind::kList && operand.separator == '(';
}

// Checks that sizes agree; otherwise the copies at the call would go beyond the frame.
void check_signature(Decode& d, const Function& callee, size_t results, size_t params,
                     const ast::Operand* lists[2]) {
  if (callee.results.size() != results || callee.params.size() != params) {
    d.fail("passes another number of parameters than '" + callee.name + "' has");
  }
  for (int which = 0; which < 2; ++which) {
    const auto& formal = which == 0 ? callee.results : callee.params;
    for (size_t i = 0; i < formal.size(); ++i) {
      const auto index = static_cast<size_t>(lists[which]->parts[i].variable);
      if (d.builder.from().variables[index].bytes != formal[i].bytes) {
        d.fail("passes a parameter of another size than '" + callee.name + "' has");
      }
    }
  }
}

}  // namespace

// Sleeps for exactly the time asked for, at most 1 ms. A GPU promises 0 to twice that time, so this
// is its average.
void decode_nanosleep(Decode& d) {
  if (!d.take("u32")) d.fail();
  d.out.a = d.source(0, Type::kU32);
  d.set([](Warp& warp, const Instr& in, uint32_t mask) {
    constexpr uint32_t kLongestNs = 1'000'000;
    uint32_t longest = 0;
    each_lane(mask,
              [&](uint32_t lane) { longest = std::max(longest, warp.at<uint32_t>(in.a)[lane]); });
    warp.slept_ns += std::min(longest, kLongestNs);
  });
}

void decode_bra(Decode& d) {
  d.take("uni");
  const ast::Operand& target = d.operand(0);
  if (target.kind != ast::Kind::kName) d.fail("has no label");
  d.out.target = d.builder.label(target.name, d.from.line);
  d.out.flow = Flow::kBranch;
}

void decode_brx(Decode& d) {
  d.take("uni");
  if (!d.take("idx")) d.fail();
  d.out.a = d.source(0, Type::kB32);
  const ast::Operand& list = d.operand(1);
  const auto* targets = d.builder.list(list.name);
  if (targets == nullptr || targets->empty()) d.fail("has no list of labels");
  // There may be more targets than Instr::count can hold, so their number comes first.
  Function& to = d.builder.to();
  d.out.extra = static_cast<uint32_t>(to.extra.size());
  to.extra.push_back(static_cast<uint32_t>(targets->size()));
  for (const std::string& target : *targets) {
    to.extra.push_back(d.builder.label(target, d.from.line));
  }
  d.out.flow = Flow::kBranchIndexed;
}

void decode_call(Decode& d) {
  d.take("uni");
  size_t next = 0;
  const ast::Operand none;
  const ast::Operand* lists[2] = {&none, &none};
  if (d.operand_count() > 0 && is_list(d.operand(0))) lists[0] = &d.operand(next++);
  const ast::Operand& callee = d.operand(next++);
  if (next < d.operand_count() && is_list(d.operand(next))) lists[1] = &d.operand(next++);
  while (next < d.operand_count()) d.operand(next++);  // a prototype
  for (const ast::Operand* list : lists) {
    for (const ast::Operand& part : list->parts) d.further(frame_offset(d, part));
  }
  d.out.dst = static_cast<uint32_t>(lists[0]->parts.size());
  d.out.flow = Flow::kCall;
  if (callee.kind == ast::Kind::kRegister) {
    d.out.a = d.source(callee, Type::kB64);
    d.builder.to().calls_unknown = true;
    return;
  }
  const auto symbol = d.builder.symbols().find(callee.name);
  if (symbol == d.builder.symbols().end()) d.fail("names '" + callee.name + "', which is unknown");
  if (symbol->second.function == nullptr) {
    const Builtin builtin = builtin_named(callee.name);
    if (builtin == Builtin::kNone) d.fail("calls '" + callee.name + "', which is nowhere defined");
    constexpr size_t kParams[] = {0, 2, 5, 1, 1}, kResults[] = {0, 1, 0, 1, 0};
    const auto which = static_cast<size_t>(builtin);
    if (lists[0]->parts.size() != kResults[which] || lists[1]->parts.size() != kParams[which]) {
      d.fail("passes another number of parameters than '" + callee.name + "' has");
    }
    d.out.mode = static_cast<uint8_t>(builtin);
    return;
  }
  const Function* function = symbol->second.function;
  check_signature(d, *function, lists[0]->parts.size(), lists[1]->parts.size(), lists);
  d.out.immediate = reinterpret_cast<uint64_t>(function);
  d.builder.to().callees.push_back(function);
}

void decode_ret(Decode& d) {
  d.take("uni");
  d.out.flow = Flow::kReturn;
}
void decode_exit(Decode& d) { d.out.flow = Flow::kExit; }
void decode_trap(Decode& d) { d.out.flow = Flow::kTrap; }

void decode_barrier(Decode& d) {
  d.take("cta");
  d.take("aligned");
  if (d.take("warp")) {
    if (!d.take("sync")) d.fail("has no operation");
    d.out.d = d.source(0, Type::kB32);
    d.out.flow = Flow::kSync;
    return d.set([](Warp&, const Instr&, uint32_t) {});
  }
  if (d.take("cluster")) {
    const bool waits = d.take("wait");
    if (!waits && !d.take("arrive")) d.fail("has no operation");
    for (const std::string_view word : {"release", "acquire", "relaxed", "aligned"}) d.take(word);
    d.out.flow = waits ? Flow::kClusterWait : Flow::kClusterArrive;
    return;
  }
  size_t next = 0;
  d.out.mode = kSync;
  if (d.take("red")) {
    const bool count = d.take("popc");
    d.out.mode = count ? kRedPopc : d.take("and") ? kRedAnd : kRedOr;
    if (d.out.mode == kRedOr && !d.take("or")) d.fail("has no operation");
    const Type type = d.type();
    if ((type == Type::kPred) == count) d.fail("does not exist for this type");
    d.out.dst = d.destination(next++, type);
  } else if (d.take("arrive")) {
    d.out.mode = kArrive;
  } else if (!d.take("sync")) {
    d.fail("has no operation");
  }
  d.out.flow = Flow::kBarrier;
  d.out.a = d.source(next++, Type::kB32);
  const bool reduces = d.out.mode >= kRedPopc;
  if (next + (reduces ? 1 : 0) < d.operand_count()) d.out.b = d.source(next++, Type::kB32);
  if (d.out.mode == kArrive && d.out.b == kNoSlot) d.fail("has no number of threads");
  if (!reduces) return;
  bool negated = false;
  d.out.c = d.predicate(d.operand(next), &negated);
  if (negated) d.out.mode |= kRedNegated;
}

}  // namespace softgpu::ptx
