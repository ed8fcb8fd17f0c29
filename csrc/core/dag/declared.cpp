#include "dag/declared.h"

#include <algorithm>
#include <initializer_list>

namespace tandem::dag {
namespace {

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_ignored(std::string_view word) {
  return is_one_of(word, {"volatile", "restrict", "__restrict", "__restrict__", "struct", "class",
                          "enum", "union", "register"});
}

// Words of which several may form one type.
bool is_arithmetic(std::string_view word) {
  return is_one_of(word, {"bool", "_Bool", "char", "short", "int", "long", "float", "double",
                          "signed", "unsigned"});
}

bool is_number(std::string_view word) {
  return is_arithmetic(word) || is_cuda_number(word) ||
         is_one_of(word, {"half", "half2", "nv_bfloat16", "nv_bfloat162", "int8_t", "int16_t",
                          "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t",
                          "size_t", "ptrdiff_t", "intptr_t", "uintptr_t"});
}

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == ':';
}

// Parses one parameter, from its first word to its last.
class Parameter {
 public:
  explicit Parameter(std::string_view text) : text_(text) {}

  bool parse() {
    for (std::string_view one = next(); !one.empty(); one = next()) {
      if (!take(one)) return false;
    }
    return has_type_ && !in_brackets_;
  }
  ParameterType type() const { return {is_pointer_, to_const_, to_plain_}; }
  bool is_void() const { return is_void_ && !is_pointer_ && !has_name_; }
  bool is_blank() const { return std::all_of(text_.begin(), text_.end(), is_space); }

 private:
  // Returns the next word or sign; empty at the end.
  std::string_view next() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    const size_t first = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    if (at_ == first && at_ < text_.size()) ++at_;
    return text_.substr(first, at_ - first);
  }

  bool take(std::string_view one) {
    if (in_brackets_) return one == "]" ? (in_brackets_ = false, true) : is_word(one.front());
    if (one == "[") return in_brackets_ = true, point();
    if (one == "*" || one == "&") return !has_name_ && point();
    if (!is_word(one.front())) return false;
    if (is_ignored(one)) return true;
    if (one == "const") return is_const_ = true;
    return word(one);
  }

  // Turns the type read so far into the type pointed to.
  bool point() {
    if (!has_type_) return false;
    to_const_ = is_const_;
    to_plain_ = is_plain_ && !is_pointer_;
    is_pointer_ = true;
    is_const_ = false;
    return true;
  }

  bool word(std::string_view one) {
    const bool goes_on = has_type_ && is_arithmetic_ && !is_pointer_ && is_arithmetic(one);
    if (!has_type_) {
      has_type_ = true;
      is_void_ = one == "void";
      is_plain_ = is_number(one);
      is_arithmetic_ = is_arithmetic(one);
      return !is_digit(one.front());
    }
    if (goes_on) return true;
    if (has_name_ || is_number(one) || is_digit(one.front())) return false;
    return has_name_ = true;
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  std::string_view text_;
  size_t at_ = 0;
  bool has_type_ = false, has_name_ = false, in_brackets_ = false;
  bool is_void_ = false, is_plain_ = false, is_arithmetic_ = false, is_const_ = false;
  bool is_pointer_ = false, to_const_ = false, to_plain_ = false;
};

}  // namespace

bool parameters_declared(std::string_view text, std::vector<ParameterType>* out) {
  out->clear();
  if (text.size() > kLongestDeclaration) return false;
  const bool is_one = text.find(',') == std::string_view::npos;
  for (size_t first = 0; first <= text.size();) {
    const size_t end = std::min(text.find(',', first), text.size());
    Parameter parameter(text.substr(first, end - first));
    if (is_one && parameter.is_blank()) return true;
    if (!parameter.parse()) return false;
    if (parameter.is_void()) return is_one;
    out->push_back(parameter.type());
    first = end + 1;
  }
  return true;
}

}  // namespace tandem::dag
