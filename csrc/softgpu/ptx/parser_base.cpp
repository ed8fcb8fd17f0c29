#include "parser_base.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace softgpu::ptx {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 40;  // of one variable
constexpr uint32_t kMostAlign = 1 << 20;

bool all_digits(const std::string& text, size_t from, int base) {
  const std::string_view digits = std::string_view("0123456789abcdefABCDEF")
                                      .substr(0, base == 16 ? 22 : static_cast<size_t>(base));
  return from < text.size() && text.find_first_not_of(digits, from) == std::string::npos;
}

Space space_named(std::string_view word) {
  if (word == ".reg") return Space::kReg;
  if (word == ".const") return Space::kConst;
  if (word == ".global") return Space::kGlobal;
  if (word == ".local") return Space::kLocal;
  if (word == ".param") return Space::kParam;
  if (word == ".shared" || word == ".shared::cta") return Space::kShared;
  return Space::kGeneric;
}

}  // namespace

void TokenReader::fail(const std::string& what) const { throw Invalid(token_.line, what); }

Token TokenReader::advance() {
  const Token now = token_;
  token_ = lexer_.next();
  return now;
}

bool TokenReader::accept(std::string_view text) {
  if (!token_.is(text)) return false;
  advance();
  return true;
}

void TokenReader::expect(std::string_view text) {
  if (accept(text)) return;
  fail("expected '" + std::string(text) + "' instead of '" + std::string(token_.text) + "'");
}

Token TokenReader::word(const char* what) {
  if (token_.kind != TokenKind::kWord) {
    fail(std::string("expected ") + what + " instead of '" + std::string(token_.text) + "'");
  }
  return advance();
}

Number TokenReader::number() {
  const bool negative = accept("-");
  const bool complement = !negative && accept("~");
  if (token_.kind != TokenKind::kNumber) {
    fail("expected a number instead of '" + std::string(token_.text) + "'");
  }
  std::string text(advance().text);
  Number number;
  const char mark = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : ' ';
  if ((mark == 'f' && text.size() == 10) || (mark == 'd' && text.size() == 18)) {
    if (!all_digits(text, 2, 16)) fail("malformed number '" + text + "'");
    number = {true, mark == 'f', strtoull(text.c_str() + 2, nullptr, 16)};
    if (negative) number.bits ^= mark == 'f' ? uint64_t{1} << 31 : uint64_t{1} << 63;
    return number;
  }
  if (mark != 'x' && text.find_first_of(".eE") != std::string::npos) {
    char* end = nullptr;
    const double value = strtod(text.c_str(), &end) * (negative ? -1 : 1);
    if (*end) fail("malformed number '" + text + "'");
    number.is_real = true;
    memcpy(&number.bits, &value, sizeof value);
    return number;
  }
  if (text.back() == 'U' || text.back() == 'u') text.pop_back();
  const int base = mark == 'x' ? 16 : mark == 'b' ? 2 : text.size() > 1 && text[0] == '0' ? 8 : 10;
  const size_t from = base == 16 || base == 2 ? 2 : 0;
  if (!all_digits(text, from, base)) fail("malformed number '" + text + "'");
  number.bits = strtoull(text.c_str() + from, nullptr, base);
  if (negative) number.bits = -number.bits;
  if (complement) number.bits = ~number.bits;
  return number;
}

uint64_t TokenReader::whole_number() {
  const Number value = number();
  if (value.is_real) fail("expected a whole number");
  return value.bits;
}

void TokenReader::skip_to(std::string_view end) {
  while (!token_.is(end)) {
    if (token_.kind == TokenKind::kEnd) fail("expected '" + std::string(end) + "'");
    advance();
  }
  advance();
}

void TokenReader::skip_braces() {
  expect("{");
  for (int depth = 1; depth > 0;) {
    if (token_.kind == TokenKind::kEnd) fail("expected '}'");
    depth += token_.is("{") ? 1 : token_.is("}") ? -1 : 0;
    advance();
  }
}

bool begins_declaration(std::string_view word) { return space_named(word) != Space::kGeneric; }

Declaration read_declaration(TokenReader& in) {
  Declaration found;
  found.space = space_named(in.advance().text);
  while (in.token().kind == TokenKind::kWord && in.token().text[0] == '.') {
    const std::string_view word = in.advance().text;
    if (word == ".align") {
      const uint64_t align = in.whole_number();
      if (align == 0 || align > kMostAlign || (align & (align - 1)) != 0) in.fail("bad alignment");
      // After .ptr, it is the alignment of the pointed-to memory.
      if (found.type == Type::kNone) found.align = static_cast<uint32_t>(align);
    } else if (word == ".v2" || word == ".v4" || word == ".v8") {
      found.elements = static_cast<uint32_t>(word[2] - '0');
    } else if (word == ".attribute") {
      in.skip_to(")");
    } else if (found.type != Type::kNone) {
      constexpr std::string_view kPointed[] = {".ptr", ".global", ".const", ".shared", ".local"};
      if (std::find(std::begin(kPointed), std::end(kPointed), word) == std::end(kPointed)) {
        in.fail("unknown attribute '" + std::string(word) + "'");
      }
    } else {
      found.type = type_named(word.substr(1));
      if (found.type == Type::kNone) in.fail("unknown type '" + std::string(word) + "'");
    }
  }
  if (found.type == Type::kNone) in.fail("a declaration without a type");
  if (found.type == Type::kPred && found.space != Space::kReg) in.fail("a predicate in memory");
  return found;
}

static ast::Element read_element(TokenReader& in) {
  ast::Element element;
  if (in.token().kind != TokenKind::kWord) {
    const Number number = in.number();
    element.bits = number.bits;
    element.is_real = number.is_real;
    if (number.is_single) {
      float single;
      const auto bits = static_cast<uint32_t>(number.bits);
      memcpy(&single, &bits, sizeof single);
      const double value = single;
      memcpy(&element.bits, &value, sizeof value);
    }
    return element;
  }
  std::string_view name = in.advance().text;
  if (name == "generic") {
    in.expect("(");
    name = in.word("a name").text;
    in.expect(")");
  }
  element.symbol = name;
  if (in.accept("+")) element.bits = in.whole_number();
  return element;
}

static void read_initial(TokenReader& in, ast::Variable& variable) {
  int depth = 0;
  do {
    while (in.accept("{")) ++depth;
    if (!in.token().is("}")) variable.initial.push_back(read_element(in));
    while (depth > 0 && in.accept("}")) --depth;
  } while (depth > 0 && in.accept(","));
  if (depth > 0) in.expect("}");
}

ast::Variable read_variable(TokenReader& in, const Declaration& of) {
  ast::Variable variable;
  variable.line = in.token().line;
  variable.name = in.word("a name").text;
  variable.space = of.space;
  variable.type = of.type;
  const uint64_t element_bytes = uint64_t{bytes_of(of.type)} * of.elements;
  variable.align = of.align != 0 ? of.align : static_cast<uint32_t>(element_bytes);
  variable.bytes = element_bytes;
  bool unsized = false;
  while (in.accept("[")) {
    const uint64_t count = in.token().is("]") ? 0 : in.whole_number();
    if (count > kMostBytes) in.fail("'" + variable.name + "' is too large");
    unsized = unsized || count == 0;
    variable.bytes *= count;
    if (variable.bytes > kMostBytes) in.fail("'" + variable.name + "' is too large");
    in.expect("]");
  }
  if (in.accept("=")) read_initial(in, variable);
  if (unsized) variable.bytes = variable.initial.size() * bytes_of(of.type);
  if (variable.initial.size() * bytes_of(of.type) > variable.bytes) {
    in.fail("'" + variable.name + "' starts with more than it holds");
  }
  return variable;
}

}  // namespace softgpu::ptx
