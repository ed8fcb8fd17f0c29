// Turns one instruction of the tree into its runnable form. The ops_*.cpp files handle what is
// specific to an instruction; this file has what they share: modifiers, operands, constants.
//
// A decoder must consume every modifier and operand; one left over makes the instruction
// unsupported. So no instruction is executed that was understood only in part.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "access.h"
#include "ast.h"
#include "program.h"

namespace softgpu::ptx {

struct Symbol {  // of the module
  Space space = Space::kGlobal;
  uint64_t value = 0;  // address; for shared memory, an offset
  uint64_t bytes = 0;
  const Function* function = nullptr;
};
using Symbols = std::map<std::string, Symbol>;

// The function being built: allocates slots for its registers, constants and special registers.
class FunctionBuilder {
 public:
  FunctionBuilder(const ast::Function& from, const Symbols& symbols, Function* to);

  const ast::Function& from() const { return from_; }
  Function& to() { return *to_; }
  const Symbols& symbols() const { return symbols_; }

  Type register_type(int reg) const { return from_.registers[static_cast<size_t>(reg)]; }
  uint32_t slot(int reg);
  uint32_t constant(uint64_t low, uint64_t high, uint32_t bytes);
  uint32_t special(Special which, bool wide);
  uint32_t sink();  // for results that nobody reads
  // Offset of a function's variable in the frame, the parameters or shared memory.
  uint64_t variable_offset(int variable) const { return offsets_[static_cast<size_t>(variable)]; }
  bool in_kernel_params(int variable) const;
  uint32_t label(const std::string& name, uint32_t line) const;
  const std::vector<std::string>* list(const std::string& name) const;

 private:
  uint32_t allocate(uint32_t bytes);
  void place_variables();

  const ast::Function& from_;
  const Symbols& symbols_;
  Function* to_;
  std::vector<uint32_t> slots_;
  uint32_t sink_ = kNoSlot;
  std::vector<uint64_t> offsets_;
  std::map<std::tuple<uint64_t, uint64_t, uint32_t>, uint32_t> constants_;
  std::map<std::pair<Special, bool>, uint32_t> specials_;
  std::map<std::string, uint32_t> labels_;
};

class Decode {
 public:
  Decode(FunctionBuilder& builder, const ast::Instruction& from);
  Instr finish();  // throws Invalid if a modifier or operand was not consumed

  FunctionBuilder& builder;
  const ast::Instruction& from;
  Instr out;

  [[noreturn]] void fail(const std::string& why = "is not supported") const;
  bool take(std::string_view modifier);
  Type type();        // of the next modifier, which must be a type
  Type maybe_type();  // kNone if the next modifier is not a type
  size_t operand_count() const { return from.operands.size(); }
  const ast::Operand& operand(size_t index);

  uint32_t source(size_t index, Type type) { return source(operand(index), type); }
  uint32_t source(const ast::Operand& operand, Type type);
  uint32_t destination(size_t index, Type type) { return destination(operand(index), type); }
  uint32_t destination(const ast::Operand& operand, Type type);
  // A register that may be wider than the instruction's type, as for ld, st and cvt.
  uint32_t any_register(const ast::Operand& operand, uint32_t* bytes);
  // A predicate; *negated tells whether a '!' precedes it.
  uint32_t predicate(const ast::Operand& operand, bool* negated);
  // Sets a, immediate and mode to the base register, the displacement and kNarrowBase.
  void address(size_t index, Space space);
  void further(uint32_t number);
  uint64_t integer(size_t index);  // an immediate

  void set(Handler handler) {
    if (handler == nullptr) fail("does not exist for this type");
    out.run = handler;
  }

 private:
  uint32_t immediate(const ast::Operand& operand, Type type);
  uint32_t named(const ast::Operand& operand, Type type);
  void check_width(const ast::Operand& operand, Type type) const;

  std::vector<std::string> left_;
  std::vector<bool> used_;
};

using Decoder = void (*)(Decode&);
Decoder find_decoder(std::string_view opcode);
bool special_named(std::string_view name, Special* which);

}  // namespace softgpu::ptx
