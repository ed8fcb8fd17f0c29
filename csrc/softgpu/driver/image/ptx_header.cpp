#include "ptx_header.h"

#include <cctype>
#include <cstdlib>

namespace softgpu {
namespace {

// The newest major version of PTX that toolkits of the CUDA header's generation write; newer ones
// are refused.
constexpr long kNewestMajor = CUDA_VERSION / 1000 - 4;

std::string without_comments(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const std::string_view two = text.substr(at, 2);
    const bool line = two == "//", block = two == "/*";
    if (!line && !block) {
      out += text[at++];
      continue;
    }
    const size_t end = text.find(line ? "\n" : "*/", at + 2);
    at = end == std::string_view::npos ? text.size() : end + (block ? 2 : 0);
    out += ' ';
  }
  return out;
}

// Splits the text into tokens as far as directives need: words (with dots, signs and digits) and
// punctuation.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  std::string_view next() {
    while (at_ < text_.size() && isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    const size_t begin = at_;
    while (at_ < text_.size() && in_word(text_[at_])) ++at_;
    if (at_ == begin && at_ < text_.size()) ++at_;
    return text_.substr(begin, at_ - begin);
  }

 private:
  static bool in_word(char c) {
    return isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '$' || c == '%';
  }
  std::string_view text_;
  size_t at_ = 0;
};

uint32_t number(std::string_view word) {
  return static_cast<uint32_t>(strtoul(std::string(word).c_str(), nullptr, 0));
}

// Reads the one to three numbers after .maxntid and the like; `word` becomes what follows them.
void read_extent(Words* words, std::string_view* word, uint32_t (&extent)[3]) {
  for (uint32_t& n : extent) n = 1;
  for (uint32_t& n : extent) {
    n = number(words->next());
    *word = words->next();
    if (*word != ",") return;
  }
}

void read_entry(Words* words, uint32_t arch, Image* image) {
  ImageKernel kernel{std::string(words->next()), {}};
  kernel.traits.ptx_version = kernel.traits.binary_version = arch;
  std::string_view word = words->next();
  while (!word.empty() && word != "{" && word != ";") {
    uint32_t extent[3];
    if (word == ".maxntid") {
      read_extent(words, &word, extent);
      kernel.traits.max_threads = extent[0] * extent[1] * extent[2];
    } else if (word == ".reqntid") {
      read_extent(words, &word, kernel.traits.required_block);
      const uint32_t* block = kernel.traits.required_block;
      kernel.traits.max_threads = block[0] * block[1] * block[2];
    } else if (word == ".reqnctapercluster") {
      read_extent(words, &word, kernel.traits.required_cluster);
    } else if (word == ".maxnreg") {
      kernel.traits.registers = number(words->next());
      word = words->next();
    } else {
      word = words->next();
    }
  }
  if (word == "{") image->kernels.push_back(kernel);
}

}  // namespace

void inspect_ptx(Bytes given, Image* image) {
  const size_t length = strnlen(given.data, given.size);
  image->bytes = {given.data, length};
  image->error = CUDA_ERROR_INVALID_PTX;
  const std::string text = without_comments({given.data, length});
  Words words(text);
  if (words.next() != ".version") {
    image->problem = "line 1; fatal: missing .version directive at start of file";
    return;
  }
  const std::string version(words.next());
  if (strtol(version.c_str(), nullptr, 10) > kNewestMajor) {
    image->error = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    image->problem = "fatal: unsupported .version " + version;
    return;
  }
  if (words.next() != ".target") {
    image->problem = "fatal: missing .target directive";
    return;
  }
  const std::string target(words.next());
  if (target.rfind("sm_", 0) != 0) {
    image->problem = "fatal: unknown .target '" + target + "'";
    return;
  }
  image->kind = ImageKind::kPtx;
  image->arch = number(target.substr(3));
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
    if (word == ".entry") read_entry(&words, image->arch, image);
  }
}

}  // namespace softgpu
