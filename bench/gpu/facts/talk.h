// How a program of this folder speaks with the part that started it: JSON lines with an `event` each,
// and it goes on when it is told to, by a line.
#pragma once

#include <poll.h>
#include <unistd.h>

#include "facts.h"

// Waits for a line; false at the end of stdin. Byte by byte, so that `order_waits` sees all that is left.
inline bool next_order() {
  char byte = 0;
  while (read(0, &byte, 1) == 1) {
    if (byte == '\n') return true;
  }
  return false;
}

// A line, or the end of stdin, can be read at once.
inline bool order_waits() {
  pollfd input{0, POLLIN, 0};
  return poll(&input, 1, 0) != 0;
}

inline Json event(const char* name) { return Json().add("event", name); }

// A call that was refused where others can still be tried.
struct Refused {
  std::string what;
};
inline void need(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) throw Refused{std::string(what) + ": " + name_of(result)};
}
// What a question says, or why it has no answer, behind what stands in `otherwise`.
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
