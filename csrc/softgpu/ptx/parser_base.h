// Shared by the parsers of modules and of function bodies: tokens, numbers, declarations.
#pragma once

#include <string>
#include <string_view>

#include "ast.h"
#include "lexer.h"

namespace softgpu::ptx {

struct Number {
  bool is_real = false;
  bool is_single = false;  // 0f...: `bits` holds a float
  uint64_t bits = 0;
};

class TokenReader {
 public:
  explicit TokenReader(std::string_view text) : lexer_(text) { advance(); }

  const Token& token() const { return token_; }
  Token advance();
  bool accept(std::string_view text);
  void expect(std::string_view text);
  Token word(const char* what);
  Number number();  // with its sign
  uint64_t whole_number();
  void skip_to(std::string_view end);  // skips `end`, too
  void skip_braces();
  [[noreturn]] void fail(const std::string& what) const;

 private:
  Lexer lexer_;
  Token token_;
};

// The part of a declaration that its variables share: .global .align 4 .v2 .f32
struct Declaration {
  Space space = Space::kReg;
  Type type = Type::kNone;
  uint32_t align = 0;  // 0: the type's own
  uint32_t elements = 1;
};

bool begins_declaration(std::string_view word);
Declaration read_declaration(TokenReader& in);
// Reads a variable's name, dimensions and initialiser.
ast::Variable read_variable(TokenReader& in, const Declaration& of);

// Reads a function's body, from after its opening brace to past the closing one.
void read_body(TokenReader& in, ast::Function& function);

}  // namespace softgpu::ptx
