// PTX as a syntax tree, which the parser builds and the decoder reads. Names local to a function
// (its registers and variables) are already resolved, since only the parser knows the scopes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "types.h"

namespace softgpu::ptx::ast {

enum class Linkage : uint8_t { kLocal, kVisible, kWeak };  // kWeak: `.weak` and `.common`

struct Element {         // one scalar of an initialiser
  uint64_t bits = 0;     // or an offset added to the address of `symbol`
  bool is_real = false;  // `bits` holds a double
  std::string symbol;
};

struct Variable {
  std::string name;
  Space space = Space::kGlobal;
  Type type = Type::kNone;
  uint64_t bytes = 0;  // 0: an unsized array
  uint32_t align = 1;
  bool external = false;
  Linkage linkage = Linkage::kLocal;
  std::vector<Element> initial;
  uint32_t line = 0;
};

enum class Kind : uint8_t { kRegister, kInteger, kReal, kName, kAddress, kList, kSink };
constexpr int kNone = -1;

struct Operand {
  Kind kind = Kind::kSink;
  bool negated = false;  // !%p
  int reg = kNone;       // kRegister; kAddress with a register base
  int variable = kNone;  // kName, kAddress: a variable of the function
  std::string name;      // kName, kAddress: any other name
  uint64_t bits = 0;     // kInteger, kReal (a double; a float if is_single), displacement
  bool is_single = false;
  char separator = 0;          // kList: '{', '(' or '|'
  std::vector<Operand> parts;  // kList
};

struct Instruction {
  std::string opcode;                  // up to the first dot
  std::vector<std::string> modifiers;  // the dot-separated words after it
  int guard = kNone;                   // a register
  bool guard_negated = false;
  std::vector<Operand> operands;
  uint32_t line = 0;
};

struct Label {
  std::string name;
  uint32_t at;  // index of the instruction that follows
};

struct NameList {  // .branchtargets, .calltargets
  std::string name;
  std::vector<std::string> targets;
};

struct Function {
  std::string name;
  bool is_entry = false;
  bool has_body = false;
  Linkage linkage = Linkage::kLocal;
  std::vector<Variable> results, params;
  std::vector<Type> registers;
  std::vector<Variable> variables;  // .local .shared .param .const .global inside the body
  std::vector<Instruction> code;
  std::vector<Label> labels;
  std::vector<NameList> lists;
  uint32_t max_threads[3] = {0, 0, 0};  // .maxntid; 0 = not given
  uint32_t required_threads[3] = {0, 0, 0};
  uint32_t required_cluster[3] = {0, 0, 0};
  uint32_t min_blocks = 0, max_registers = 0;
  uint32_t line = 0;
};

struct Module {
  uint32_t version = 0;  // 83 for 8.3
  uint32_t target = 0;   // 80 for sm_80
  std::vector<Variable> variables;
  std::vector<Function> functions;
};

}  // namespace softgpu::ptx::ast
