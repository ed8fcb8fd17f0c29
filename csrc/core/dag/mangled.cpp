#include "dag/mangled.h"

#include <algorithm>
#include <cstddef>

namespace tandem::dag {
namespace {

constexpr uint32_t kDeepest = 64;   // levels of nesting; a name may be anything
constexpr size_t kMostKept = 1024;  // substitutions and template arguments

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }

struct Type {
  bool is_pointer = false, to_const = false, to_plain = false;
  bool is_const = false;
  bool is_plain = false;
  bool is_pack = false;
};

// One pass over a name. Each production consumes what it describes; once `ok_` is false nothing
// counts.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  bool parse(std::vector<ParameterType>* out, bool* is_open) {
    if (!take("_Z")) return false;
    const bool has_return = name(true);
    if (has_return) type();
    while (ok_ && !at_end()) {
      if (peek() == '.') break;  // a clone made by a compiler
      const Type found = type();
      if (found.is_pack) {
        *is_open = true;
        return ok_;
      }
      out->push_back({found.is_pointer, found.to_const, found.to_plain});
    }
    if (out->size() == 1 && is_void_) out->clear();
    return ok_;
  }

 private:
  class Depth {
   public:
    explicit Depth(Parser* parser) : parser_(parser) {
      if (++parser_->depth_ > kDeepest) parser_->ok_ = false;
    }
    ~Depth() { --parser_->depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Parser* parser_;
  };

  bool at_end() const { return at_ >= text_.size(); }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool take(std::string_view wanted) {
    if (text_.substr(std::min(at_, text_.size()), wanted.size()) != wanted) return false;
    at_ += wanted.size();
    return true;
  }
  void expect(std::string_view wanted) {
    if (!take(wanted)) ok_ = false;
  }
  void fail() { ok_ = false; }

  uint64_t number() {
    uint64_t value = 0;
    if (!is_digit(peek())) fail();
    while (is_digit(peek()) && value < text_.size())
      value = value * 10 + static_cast<uint64_t>(text_[at_++] - '0');
    return value;
  }
  // "_" is 0, "0_" is 1; in base 36 for substitutions.
  uint64_t index(uint64_t base) {
    if (take("_")) return 0;
    uint64_t value = 0;
    while (ok_ && !take("_")) {
      const char c = peek();
      const bool fits = is_digit(c) || (base == 36 && is_upper(c));
      if (!fits || value > kMostKept) return fail(), 0;
      value = value * base + static_cast<uint64_t>(is_digit(c) ? c - '0' : c - 'A' + 10);
      ++at_;
    }
    return value + 1;
  }

  void keep(const Type& type) {
    if (kept_.size() >= kMostKept) fail();
    else kept_.push_back(type);
  }
  Type kept(uint64_t index) {
    if (index >= kept_.size()) return fail(), Type{};
    return kept_[index];
  }

  std::string_view source_name() {
    const uint64_t length = number();
    if (!ok_ || length == 0 || length > text_.size() - at_) return fail(), std::string_view{};
    at_ += length;
    return text_.substr(at_ - length, length);
  }

  // <name>; returns true if a return type follows: the name is of a template instance.
  bool name(bool is_function) {
    const Depth depth(this);
    if (!ok_) return false;
    if (take("N")) return nested(is_function).has_arguments;
    if (take("Z")) return local(is_function);
    const bool in_std = take("St");
    if (peek() == 'S' && !in_std) {
      // The name of a template that occurred before.
      substitution();
      if (peek() != 'I') fail();
    } else {
      unqualified();
      if (peek() == 'I') keep({});
    }
    return take("I") ? (arguments(is_function), true) : false;
  }

  struct Nested {
    bool has_arguments = false;
    Type type;
  };

  // <nested-name> after its N. Every prefix is a candidate for substitution; the whole is not, if
  // it is a function.
  Nested nested(bool is_function) {
    while (take("r") || take("V") || take("K")) {
    }
    if (!take("R")) take("O");
    Nested found;
    bool is_kept = true;  // the prefix read so far
    bool is_structor = false;
    bool any = false;
    while (ok_ && !take("E")) {
      if (!is_kept) keep(found.type);
      is_kept = false;
      found.has_arguments = false;
      if (take("St")) {
        is_kept = true;
        found.type = {};
      } else if (peek() == 'S') {
        if (any) fail();
        found.type = substitution();
        is_kept = true;
      } else if (peek() == 'T') {
        found.type = parameter();
      } else if (take("I")) {
        if (!any) fail();
        arguments(is_function);
        found.has_arguments = true;
        found.type = {};
      } else {
        is_structor = (peek() == 'C' && is_digit(peek(1))) || (peek() == 'D' && is_digit(peek(1)));
        found.type = {};
        found.type.is_plain = is_cuda_number(unqualified());
      }
      any = true;
    }
    if (!any) fail();
    if (!is_function && !is_kept) keep(found.type);
    if (is_structor) found.has_arguments = false;
    return found;
  }

  // <local-name> after its Z: something inside a function.
  bool local(bool is_function) {
    const std::vector<Type> outer = arguments_;
    const bool has_return = name(true);
    if (has_return) type();
    while (ok_ && !take("E")) type();
    arguments_ = outer;
    if (take("s")) {
      if (take("_")) number();
      return false;
    }
    if (take("d")) index(10);
    return name(is_function);
  }

  std::string_view unqualified() {
    const Depth depth(this);
    if (!ok_) return {};
    std::string_view found;
    take("L");  // internal linkage
    if (is_digit(peek())) found = source_name();
    else if (take("Ut")) index(10);
    else if (take("Ul")) lambda();
    else if ((peek() == 'C' || peek() == 'D') && is_digit(peek(1))) at_ += 2;
    else if (take("cv")) type();
    else if (peek() >= 'a' && peek() <= 'z' && peek(1) >= 'a' && peek(1) <= 'z') at_ += 2;
    else if (peek() >= 'a' && peek() <= 'z' && is_upper(peek(1))) at_ += 2;
    else fail();
    while (ok_ && take("B")) source_name();
    return found;
  }
  void lambda() {
    while (ok_ && !take("E")) type();
    index(10);
  }

  // <template-args> after their I. T_ refers to those of the function itself.
  void arguments(bool is_function) {
    const Depth depth(this);
    std::vector<Type> found;
    while (ok_ && !take("E")) {
      if (found.size() >= kMostKept) fail();
      found.push_back(argument());
    }
    if (is_function) arguments_ = found;
  }
  Type argument() {
    const Depth depth(this);
    if (!ok_) return {};
    if (take("L")) {
      literal();
      return {};
    }
    if (take("J")) {
      while (ok_ && !take("E")) argument();
      Type pack;
      pack.is_pack = true;
      return pack;
    }
    return type();  // an expression is no type: type() fails at its X
  }
  void literal() {
    if (take("_Z")) {
      const std::vector<Type> outer = arguments_;
      if (name(true)) type();
      while (ok_ && !take("E")) type();
      arguments_ = outer;
      return;
    }
    type();
    while (ok_ && !at_end() && peek() != 'E') ++at_;
    expect("E");
  }

  Type parameter() {
    expect("T");
    const uint64_t place = index(10);
    if (!ok_ || place >= arguments_.size()) return fail(), Type{};
    return arguments_[place];
  }

  // What S.. stands for; the caller handles St.
  Type substitution() {
    expect("S");
    const char c = peek();
    if (c == 'a' || c == 's' || c == 'b' || c == 'i' || c == 'o' || c == 'd') return ++at_, Type{};
    return kept(index(36));
  }

  Type type() {
    const Depth depth(this);
    if (!ok_ || at_end()) return fail(), Type{};
    is_void_ = false;
    const char c = peek();
    if (c == 'P' || c == 'R' || c == 'O') return pointer();
    if (c == 'r' || c == 'V' || c == 'K') return qualified();
    if (c == 'F') return function();
    if (c == 'A') return array();
    if (c == 'M') return member();
    if (c == 'D') return extended();
    if (c == 'T') return parameter_type();
    if (c == 'S' && peek(1) != 't') return substituted();
    if (c == 'N' || c == 'Z' || c == 'S' || is_digit(c)) return named();
    if (c == 'C' || c == 'G') return ++at_, kept_as(type());
    if (c == 'U') return vendor_qualified();
    if (c == 'u') {
      ++at_;
      source_name();
      if (take("I")) arguments(false);
      return kept_as({});
    }
    return builtin();
  }

  Type kept_as(const Type& type) {
    keep(type);
    return type;
  }

  Type pointer() {
    ++at_;
    const Type to = type();
    Type found;
    found.is_pointer = true;
    found.to_const = to.is_const;
    found.to_plain = to.is_plain;
    found.is_pack = to.is_pack;
    is_void_ = false;
    return kept_as(found);
  }
  Type qualified() {
    bool is_const = false;
    while (take("r") || take("V")) {
    }
    if (take("K")) is_const = true;
    if (peek() == 'F') return function();  // a member function: with its qualifiers one type
    Type found = type();
    found.is_const |= is_const;
    is_void_ = false;
    return kept_as(found);
  }
  Type function() {
    ++at_;
    take("Y");
    while (ok_ && !take("E")) {
      if ((peek() == 'R' || peek() == 'O') && peek(1) == 'E') ++at_;
      else type();
    }
    is_void_ = false;
    return kept_as({});
  }
  Type array() {
    ++at_;
    if (is_digit(peek())) number();
    expect("_");  // a size that is an expression is not understood
    Type element = type();
    return kept_as(element);
  }
  Type member() {
    ++at_;
    type();
    type();
    is_void_ = false;
    return kept_as({});
  }
  // D.. : vectors, packs, and builtin types added later.
  Type extended() {
    ++at_;
    const char c = peek();
    ++at_;
    Type plain;
    plain.is_plain = true;
    if (c == 'n') return {};  // nullptr
    if (c == 'i' || c == 's' || c == 'u' || c == 'h' || c == 'd' || c == 'e' || c == 'f')
      return plain;
    if (c == 'F') {
      number();
      if (!take("_") && !take("x") && !take("b")) fail();
      return plain;
    }
    if (c == 'v') {
      number();
      expect("_");
      return kept_as(type());
    }
    if (c == 'p') {
      Type pack = type();
      pack.is_pack = true;
      return kept_as(pack);
    }
    return fail(), Type{};  // decltype and the like contain expressions
  }
  Type parameter_type() {
    const Type found = parameter();
    keep(found);
    if (!take("I")) return found;
    arguments(false);
    return kept_as({});
  }
  Type substituted() {
    const Type found = substitution();
    if (!take("I")) return found;
    arguments(false);
    return kept_as({});
  }
  // A class or an enumeration; the name does not say which.
  Type named() {
    if (take("N")) return nested(false).type;
    if (take("Z")) {
      local(false);
      return kept_as({});
    }
    const bool in_std = take("St");
    Type found;
    found.is_plain = is_cuda_number(unqualified()) && !in_std;
    keep(found);
    if (!take("I")) return found;
    arguments(false);
    return kept_as({});
  }
  Type vendor_qualified() {
    ++at_;
    source_name();
    if (take("I")) arguments(false);
    return kept_as(type());
  }
  Type builtin() {
    constexpr std::string_view kBuiltin = "vwbcahstijlmxynofdegz";
    const char c = peek();
    if (kBuiltin.find(c) == std::string_view::npos) return fail(), Type{};
    ++at_;
    Type found;
    found.is_plain = c != 'v' && c != 'z';  // void may point to anything
    is_void_ = c == 'v';
    return found;
  }

  std::string_view text_;
  size_t at_ = 0;
  bool ok_ = true;
  bool is_void_ = false;  // the last type was void itself
  uint32_t depth_ = 0;
  std::vector<Type> kept_;       // what S_, S0_.. refer to
  std::vector<Type> arguments_;  // what T_, T0_.. refer to
};

}  // namespace

bool is_cuda_number(std::string_view name) {
  for (const std::string_view one :
       {"__half", "__half2", "__nv_bfloat16", "__nv_bfloat162", "dim3"}) {
    if (name == one) return true;
  }
  if (name.empty() || name.back() < '1' || name.back() > '4') return false;
  name.remove_suffix(1);
  for (const std::string_view one : {"char", "uchar", "short", "ushort", "int", "uint", "long",
                                     "ulong", "longlong", "ulonglong", "float", "double"}) {
    if (name == one) return true;
  }
  return false;
}

bool parameters_in(std::string_view name, std::vector<ParameterType>* out, bool* is_open) {
  out->clear();
  *is_open = false;
  if (Parser(name).parse(out, is_open)) return true;
  out->clear();
  *is_open = false;
  return false;
}

}  // namespace tandem::dag
