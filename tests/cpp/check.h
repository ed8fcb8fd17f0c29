// All of our C++ test support: TEST(name) { CHECK(...); CHECK_EQ(a, b); } and a main. Include it in
// exactly one file of a program. A failed check prints both values and ends the program.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

namespace check {

struct Case {
  const char* name;
  void (*body)();
  Case* next;
};
inline Case* g_first = nullptr;
inline bool add(Case* added) {
  Case** end = &g_first;
  while (*end) end = &(*end)->next;
  *end = added;
  return true;
}

}  // namespace check

#define TEST(name)                                                            \
  static void test_##name();                                                  \
  static check::Case case_##name{#name, test_##name, nullptr};                \
  [[maybe_unused]] static const bool added_##name = check::add(&case_##name); \
  static void test_##name()

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::cerr << __FILE__ << ":" << __LINE__ << ": failed: " #condition "\n"; \
      std::_Exit(1);                                                            \
    }                                                                           \
  } while (0)

#define CHECK_EQ(left, right)                                                   \
  do {                                                                          \
    const auto check_l = (left);                                                \
    const auto check_r = (right);                                               \
    if (!(check_l == check_r)) {                                                \
      std::cerr << __FILE__ << ":" << __LINE__ << ": " #left " is " << +check_l \
                << ", " #right " is " << +check_r << "\n";                      \
      std::_Exit(1);                                                            \
    }                                                                           \
  } while (0)

int main(int argc, char** argv) {
  int ran = 0;
  for (const check::Case* c = check::g_first; c; c = c->next) {
    if (argc > 1 && std::strcmp(argv[1], c->name) != 0) continue;
    std::printf("%s\n", c->name);
    std::fflush(stdout);
    c->body();
    ++ran;
  }
  std::printf("%d passed\n", ran);
  return ran ? 0 : 1;
}
