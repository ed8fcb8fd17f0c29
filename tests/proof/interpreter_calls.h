// One step of a program, and the driver calls.
#pragma once

#include <dlfcn.h>

#include <iterator>

#include "interpreter_values.h"

namespace proof {

struct Step {
  int index;
  int thread;
  std::string verb, symbol, arguments;
  bool relies_on_order, is_aside;
};

inline bool& is_ordered(const Step& step) { return step.is_aside ? t_is_ordered : g_is_ordered; }

inline std::string digest(int index) {
  uint64_t hash = 0xcbf29ce484222325;
  const unsigned char* bytes = g_buffers + static_cast<size_t>(index) % kBuffers * kBufferBytes;
  for (size_t i = 0; i < kBufferBytes; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

// Sends one line to the daemon and returns its answer of one character. Meanwhile the virtual clock
// stands still, so that nothing happens that the program did not ask for, unless the daemon needs
// time.
inline char tell(const std::string& line) {
  if (g_control < 0) return 'o';
  if (g_daemon_needs_time) g_wait_begin();
  char answer = 'o';
  {
    const Locked locked(&g_control_lock);
    if (write(g_control, line.data(), line.size()) < 0 || read(g_control, &answer, 1) != 1)
      fail("the daemon went away");
  }
  if (g_daemon_needs_time) g_wait_end();
  return answer;
}

// The driver may reuse an ended handle or address for something else.
inline void forget_ended(const std::string& symbol, Word handle) {
  const Locked locked(&g_handles_lock);
  const auto has = [&](const char* part) { return symbol.find(part) != std::string::npos; };
  if (has("Destroy") || has("Free") || has("Release")) g_names.erase(handle);
  if (!has("CtxDestroy") && !has("CtxRelease") && !has("GraphDestroy")) return;
  const auto is_in_it = [&](char kind) { return has("Graph") ? kind == 'n' : kind != 'c'; };
  for (auto name = g_names.begin(); name != g_names.end();)
    name = is_in_it(name->second[0]) ? g_names.erase(name) : std::next(name);
}

// The driver takes a handle of another process by value.
struct ByValue {
  unsigned char bytes[kSlotBytes];
};
inline int open_handle(const Step& step, void* function, const std::vector<Word>& a) {
  ByValue handle;
  std::memcpy(&handle, reinterpret_cast<const void*>(a[1]), sizeof handle);
  if (step.symbol == "cuIpcOpenEventHandle")
    return reinterpret_cast<int (*)(Word, ByValue)>(function)(a[0], handle);
  return reinterpret_cast<int (*)(Word, ByValue, unsigned)>(function)(a[0], handle,
                                                                      static_cast<unsigned>(a[2]));
}

inline int invoke(const Step& step, void* function, const std::vector<Word>& a) {
  if (step.symbol.rfind("cuIpcOpen", 0) == 0) return open_handle(step, function, a);
  return reinterpret_cast<Call>(function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8],
                                          a[9], a[10], a[11]);
}

inline std::string call(const Step& step) {
  void* function = dlsym(g_driver, step.symbol.c_str());
  if (!function) return " absent";
  Arguments arguments(step.arguments);
  std::vector<Word> a = arguments.all();
  if (step.verb == "order") is_ordered(step) = false;
  if (arguments.is_left_out()) return " left-out";
  a.resize(12);
  int code = kNotReady;
  do {
    code = invoke(step, function, a);
  } while (code == kNotReady && step.verb == "poll");
  if (code == 0) forget_ended(step.symbol, a[0]);
  if (step.verb == "order") is_ordered(step) = code == 0;
  return " " + std::to_string(code) + arguments.shown(code == 0);
}

inline void say(const std::string& line) {
  if (write(1, line.data(), line.size()) < 0) _exit(4);
}

inline std::string name_anew(const std::string& name, const std::string& old) {
  const Locked locked(&g_handles_lock);
  const auto found = g_handles.find(old);
  if (found == g_handles.end()) return " left-out";
  g_handles[name] = found->second;
  return " 0";
}

inline bool is_call(const std::string& verb) {
  return verb == "call" || verb == "order" || verb == "ask" || verb == "poll";
}

}  // namespace proof
