#include "lexer.h"

#include <cctype>

#include "types.h"

namespace softgpu::ptx {
namespace {

bool begins_word(char c) {
  return isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '.';
}
bool goes_on(char c) { return begins_word(c) || isdigit(static_cast<unsigned char>(c)); }

}  // namespace

void Lexer::skip_line() {
  while (at_ < text_.size() && text_[at_] != '\n') ++at_;
}

void Lexer::skip_space() {
  for (;;) {
    const char c = peek();
    if (c == '\n') ++line_;
    if (c != 0 && isspace(static_cast<unsigned char>(c))) {
      ++at_;
    } else if ((c == '/' && peek(1) == '/') || c == '#') {
      skip_line();
    } else if (c == '/' && peek(1) == '*') {
      for (at_ += 2; at_ < text_.size() && !(peek() == '*' && peek(1) == '/'); ++at_) {
        if (peek() == '\n') ++line_;
      }
      at_ = at_ + 2 < text_.size() ? at_ + 2 : text_.size();
    } else {
      return;
    }
  }
}

Token Lexer::take(TokenKind kind, size_t length) {
  const Token token{kind, text_.substr(at_, length), line_};
  at_ += length;
  return token;
}

Token Lexer::next() {
  skip_space();
  const char c = peek();
  if (c == 0) return {TokenKind::kEnd, {}, line_};
  if (isdigit(static_cast<unsigned char>(c))) return number();
  if (c == '"') return string();
  if (begins_word(c)) {
    const Token token = word();
    if (token.text != ".loc" && token.text != ".file") return token;
    skip_line();
    return next();
  }
  constexpr std::string_view kKnown = "{}()[]<>,;:@!+-*|=~&^/";
  if (kKnown.find(c) == std::string_view::npos) {
    throw Invalid(line_,
                  "unexpected character code " + std::to_string(static_cast<unsigned char>(c)));
  }
  return take(TokenKind::kPunctuation, 1);
}

// A name with its modifiers: add.s32, %tid.x, .L2::128B. A single colon, as after a label, ends it.
Token Lexer::word() {
  size_t length = 1;
  for (;;) {
    if (goes_on(peek(length))) {
      ++length;
    } else if (peek(length) == ':' && peek(length + 1) == ':') {
      length += 2;
    } else {
      return take(TokenKind::kWord, length);
    }
  }
}

Token Lexer::number() {
  const bool hex = peek() == '0' && (peek(1) == 'x' || peek(1) == 'X' || peek(1) == 'f' ||
                                     peek(1) == 'F' || peek(1) == 'd' || peek(1) == 'D');
  size_t length = 1;
  for (;; ++length) {
    const char c = peek(length);
    const char before = peek(length - 1);
    const bool sign = !hex && (c == '+' || c == '-') && (before == 'e' || before == 'E');
    if (!isalnum(static_cast<unsigned char>(c)) && c != '.' && !sign) break;
  }
  return take(TokenKind::kNumber, length);
}

Token Lexer::string() {
  size_t length = 1;
  while (peek(length) != '"') {
    if (peek(length) == 0 || peek(length) == '\n') throw Invalid(line_, "a string without an end");
    length += peek(length) == '\\' && peek(length + 1) != 0 ? 2 : 1;
  }
  return take(TokenKind::kString, length + 1);
}

}  // namespace softgpu::ptx
