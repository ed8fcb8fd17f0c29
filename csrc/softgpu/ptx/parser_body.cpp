// Parses a function's body (declarations, labels, instructions) and resolves names by their scope.
#include <cctype>
#include <unordered_map>

#include "parser_base.h"

namespace softgpu::ptx {
namespace {

using ast::Kind;
using ast::Operand;

constexpr int kDeepestList = 4;

struct Scope {
  struct Range {  // .reg .b32 %r<100>;
    Type type;
    uint64_t count;
  };
  std::unordered_map<std::string, int> registers, variables;
  std::unordered_map<std::string, Range> ranges;
};

class BodyParser {
 public:
  BodyParser(TokenReader& in, ast::Function& function) : in_(in), function_(function) {
    scopes_.emplace_back();
    // Function::variables starts with the results and parameters; the body's variables follow.
    for (const auto* list : {&function.results, &function.params}) {
      for (const ast::Variable& variable : *list) add_variable(variable);
    }
  }

  void read() {
    scopes_.emplace_back();
    while (scopes_.size() > 1) {
      const Token& token = in_.token();
      if (in_.accept("{")) {
        scopes_.emplace_back();
      } else if (in_.accept("}")) {
        scopes_.pop_back();
      } else if (token.is("@")) {
        read_instruction();
      } else if (token.kind != TokenKind::kWord) {
        in_.fail("expected an instruction instead of '" + std::string(token.text) + "'");
      } else if (begins_declaration(token.text)) {
        read_declarations();
      } else if (token.text[0] == '.') {
        read_directive();
      } else {
        read_instruction();
      }
    }
  }

 private:
  int add_variable(ast::Variable variable) {
    const auto index = static_cast<int>(function_.variables.size());
    scopes_.back().variables[variable.name] = index;
    function_.variables.push_back(std::move(variable));
    return index;
  }

  int add_register(Type type) {
    function_.registers.push_back(type);
    return static_cast<int>(function_.registers.size()) - 1;
  }

  void read_declarations() {
    const Declaration declared = read_declaration(in_);
    do {
      if (declared.space == Space::kReg) {
        read_register(declared);
      } else {
        add_variable(read_variable(in_, declared));
      }
    } while (in_.accept(","));
    in_.expect(";");
  }

  void read_register(const Declaration& declared) {
    if (declared.elements != 1) in_.fail("vector registers are not supported");
    const std::string name(in_.word("a register").text);
    if (in_.accept("<")) {
      scopes_.back().ranges[name] = {declared.type, in_.whole_number()};
      in_.expect(">");
    } else {
      scopes_.back().registers[name] = add_register(declared.type);
    }
  }

  void read_directive() {
    const Token directive = in_.advance();
    if (directive.is(".pragma")) return in_.skip_to(";");
    throw Invalid(directive.line, "unknown directive '" + std::string(directive.text) + "'");
  }

  // Reads `name: .branchtargets a, b;` from after the colon.
  void read_list(const std::string& name) {
    const Token directive = in_.advance();
    if (directive.is(".callprototype")) return in_.skip_to(";");
    if (!directive.is(".branchtargets") && !directive.is(".calltargets")) {
      throw Invalid(directive.line, "unknown directive '" + std::string(directive.text) + "'");
    }
    ast::NameList list{name, {}};
    do {
      list.targets.emplace_back(in_.word("a label").text);
    } while (in_.accept(","));
    in_.expect(";");
    function_.lists.push_back(std::move(list));
  }

  void read_instruction() {
    ast::Instruction instruction;
    instruction.line = in_.token().line;
    if (in_.accept("@")) {
      instruction.guard_negated = in_.accept("!");
      instruction.guard = find_register(std::string(in_.word("a predicate").text));
      if (instruction.guard == ast::kNone) in_.fail("a guard that is not a register");
    }
    const std::string text(in_.word("an instruction").text);
    if (instruction.guard == ast::kNone && in_.accept(":")) {
      const Token& next = in_.token();
      const bool list =
          next.is(".branchtargets") || next.is(".calltargets") || next.is(".callprototype");
      if (list) return read_list(text);
      function_.labels.push_back({text, static_cast<uint32_t>(function_.code.size())});
      return;
    }
    split(text, instruction);
    if (!in_.token().is(";")) {
      do {
        instruction.operands.push_back(operand(0));
      } while (in_.accept(","));
    }
    in_.expect(";");
    function_.code.push_back(std::move(instruction));
  }

  static void split(const std::string& text, ast::Instruction& to) {
    size_t dot = text.find('.');
    to.opcode = text.substr(0, dot);
    while (dot != std::string::npos) {
      const size_t next = text.find('.', dot + 1);
      to.modifiers.push_back(text.substr(dot + 1, next == dot ? 0 : next - dot - 1));
      dot = next;
    }
  }

  Operand operand(int depth) {
    Operand first = single(depth);
    if (!in_.token().is("|")) return first;
    in_.advance();
    Operand pair;
    pair.kind = Kind::kList;
    pair.separator = '|';
    pair.parts.push_back(std::move(first));
    pair.parts.push_back(single(depth));
    return pair;
  }

  Operand single(int depth) {
    if (depth > kDeepestList) in_.fail("operands nested too deep");
    Operand found;
    if (in_.accept("!")) {
      found = single(depth + 1);
      found.negated = true;
    } else if (in_.token().is("{") || in_.token().is("(")) {
      list(found, depth);
    } else if (in_.accept("[")) {
      address(found);
    } else if (in_.token().kind == TokenKind::kWord) {
      name(found, in_.advance().text);
      if (found.kind == Kind::kName && in_.accept("+")) found.bits = in_.whole_number();
    } else {
      const Number number = in_.number();
      found.kind = number.is_real ? Kind::kReal : Kind::kInteger;
      found.bits = number.bits;
      found.is_single = number.is_single;
    }
    return found;
  }

  void list(Operand& to, int depth) {
    to.kind = Kind::kList;
    to.separator = in_.advance().text[0];
    const std::string_view end = to.separator == '{' ? "}" : ")";
    while (!in_.token().is(end)) {
      to.parts.push_back(operand(depth + 1));
      if (!in_.accept(",")) break;
    }
    in_.expect(end);
  }

  void address(Operand& to) {
    if (in_.token().kind == TokenKind::kWord) {
      name(to, in_.advance().text);
      if (to.kind == Kind::kSink) in_.fail("'_' is no address");
      if (in_.accept("+")) {
        to.bits = in_.whole_number();
      } else if (in_.token().is("-")) {
        to.bits = in_.whole_number();
      }
    } else {
      to.bits = in_.whole_number();
    }
    to.kind = Kind::kAddress;
    in_.expect("]");
  }

  void name(Operand& to, std::string_view text) {
    if (text == "_") return;
    const std::string word(text);
    to.reg = find_register(word);
    if (to.reg != ast::kNone) {
      to.kind = Kind::kRegister;
      return;
    }
    to.kind = Kind::kName;
    to.name = word;
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->variables.find(word);
      if (found == scope->variables.end()) continue;
      to.variable = found->second;
      return;
    }
  }

  int find_register(const std::string& word) {
    const size_t digits = word.find_last_not_of("0123456789") + 1;
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto known = scope->registers.find(word);
      if (known != scope->registers.end()) return known->second;
      if (digits == word.size() || word.size() - digits > 9) continue;
      const auto range = scope->ranges.find(word.substr(0, digits));
      if (range == scope->ranges.end()) continue;
      if (std::stoull(word.substr(digits)) >= range->second.count) continue;
      return scope->registers[word] = add_register(range->second.type);
    }
    return ast::kNone;
  }

  TokenReader& in_;
  ast::Function& function_;
  std::vector<Scope> scopes_;
};

}  // namespace

void read_body(TokenReader& in, ast::Function& function) { BodyParser(in, function).read(); }

}  // namespace softgpu::ptx
