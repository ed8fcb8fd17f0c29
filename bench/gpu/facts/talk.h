// How a program of this folder communicates with the part that started it: it prints JSON lines
// with an `event` each, and continues when it receives a line.
#pragma once

#include <poll.h>
#include <unistd.h>

#include "facts.h"

// Waits for a line; false at the end of stdin. Reads single bytes, so that `order_waits` sees
// everything that is left.
inline bool next_order() {
  char byte = 0;
  while (read(0, &byte, 1) == 1) {
    if (byte == '\n') return true;
  }
  return false;
}

// Returns whether a line, or the end of stdin, can be read at once.
inline bool order_waits() {
  pollfd input{0, POLLIN, 0};
  return poll(&input, 1, 0) != 0;
}

inline Json event(const char* name) { return Json().add("event", name); }

// Thrown when a call was refused and other questions can still be asked.
struct Refused {
  std::string what;
};
inline void need(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) throw Refused{std::string(what) + ": " + name_of(result)};
}
// Returns the answer to a question, or `otherwise` with the reason added why there is none.
template <class Question>
Json told(Question question, Json otherwise = Json()) {
  try {
    return question();
  } catch (const Refused& refused) {
    return otherwise.add("error", refused.what);
  }
}

inline double us_since(uint64_t start_ns) { return (double)(now_ns() - start_ns) / 1e3; }

// Gigabytes a second.
inline double gb_s(double bytes, double seconds) { return seconds > 0 ? bytes / 1e9 / seconds : 0; }
