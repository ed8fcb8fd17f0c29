// Splits PTX text into words, numbers and punctuation; skips comments and line information.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace softgpu::ptx {

enum class TokenKind : uint8_t { kEnd, kWord, kNumber, kString, kPunctuation };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;
  uint32_t line = 1;
  bool is(std::string_view what) const { return kind != TokenKind::kString && text == what; }
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  // Throws Invalid for a character that PTX does not use.
  Token next();

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : 0; }
  void skip_space();
  void skip_line();
  Token take(TokenKind kind, size_t length);
  Token word();
  Token number();
  Token string();

  std::string_view text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
};

}  // namespace softgpu::ptx
