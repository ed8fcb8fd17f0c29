// Damaged PTX, from a fixed seed, is refused with a message or sound, and never causes a crash.
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "../../fuzz/ptx_bodies.h"
#include "check.h"

namespace {

std::string file(const std::string& name) {
  std::ifstream in("tests/data/ptx/" + name + ".ptx", std::ios::binary);  // from the root
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> texts() {
  return {file("elementwise"), file("shared"), file("control"), file("half"), file("cooperative")};
}

}  // namespace

TEST(whole_files_are_understood) {
  for (const std::string& text : texts()) CHECK(fuzz::ptx_text(text));
}

TEST(files_cut_off_anywhere_are_refused_or_sound) {
  const std::string text = file("control");
  for (size_t length = 0; length < text.size(); length += 37) {
    fuzz::ptx_text(std::string_view(text).substr(0, length));
  }
}

TEST(changed_bytes_are_refused_or_sound) {
  std::mt19937 random(1);
  constexpr std::string_view kBytes = "%@!{}[]()<>,;:.|+-0123456789abdfrsux_$ \n\0\xff";
  for (const std::string& text : texts()) {
    for (int i = 0; i < 300; ++i) {
      std::string damaged = text;
      for (auto edits = 1 + random() % 6; edits > 0; --edits) {
        damaged[random() % damaged.size()] = kBytes[random() % kBytes.size()];
      }
      fuzz::ptx_text(damaged);
    }
  }
}

// Lines of one file in another, and operands in the place of others.
TEST(exchanged_lines_and_words_are_refused_or_sound) {
  std::mt19937 random(2);
  std::vector<std::string> words;
  for (const std::string& text : texts()) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find_first_of(" ,;\t\n", at), text.size());
      if (end > at) words.push_back(text.substr(at, end - at));
      at = end + 1;
    }
  }
  const std::string text = file("shared");
  for (int i = 0; i < 800; ++i) {
    std::string damaged = text;
    for (int edits = 0; edits < 3; ++edits) {
      const size_t at = damaged.find_first_of(" ,\t", random() % damaged.size());
      if (at == std::string::npos) continue;
      const size_t end = std::min(damaged.find_first_of(" ,;\t\n", at + 1), damaged.size());
      damaged.replace(at + 1, end - at - 1, words[random() % words.size()]);
    }
    fuzz::ptx_text(damaged);
  }
}

TEST(deep_nesting_and_endless_numbers_are_refused_or_sound) {
  const std::string head = ".version 8.0\n.target sm_80\n.address_size 64\n.entry k() {";
  fuzz::ptx_text(head + std::string(100'000, '{'));
  fuzz::ptx_text(head + "mov.u32 " + std::string(100'000, '{') + ";}");
  fuzz::ptx_text(head + "mov.u32 " + std::string(100'000, '!') + "x;}");
  fuzz::ptx_text(head + ".reg .b32 %r<99999999999999999999>; mov.u32 %r99999999999, 1; }");
  fuzz::ptx_text(head + ".local .b8 x[999999999999999999999]; }");
  fuzz::ptx_text(head + ".shared .align 1048576 .b8 x[99999999]; }");
  fuzz::ptx_text(".version 8.0\n.target sm_80\n.global .b64 x[1099511627776] = {1};");
}
