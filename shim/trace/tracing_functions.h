// Kernels that were launched: their names and parameters, for which the driver is asked once. For
// call traces, one table per thread; for samples, one under the lock of their ring.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "trace_writer.h"

namespace tandem::shim::tracing {

inline constexpr uint32_t kMaxParameters = 32;

struct FunctionNote {
  uint64_t handle = 0;
  uint64_t name_hash = 0;  // a handle may be another function's after its module was unloaded
  uint32_t number = 0;     // position among the table's notes so far
  uint32_t round = 0;      // in which it was reported
  uint32_t count = 0;
  bool has_more = false;
  bool is_known = false;  // the driver can say what the parameters are
  uint32_t offset[kMaxParameters] = {};
  uint32_t bytes[kMaxParameters] = {};
};

// A direct-mapped table: a function that lost its place is looked up and reported again.
class FunctionNotes {
 public:
  // The note of `function`; `tell` writes a kFunction event for one not yet reported in this round.
  template <class Tell>
  const FunctionNote& look_up(CUfunction function, Tell tell) {
    const char* name = name_of(function);
    FunctionNote& note = place_of(function);
    const uint64_t hash = hash_of(name);
    const auto handle = reinterpret_cast<uint64_t>(function);
    const bool is_new = note.handle != handle || note.name_hash != hash;
    if (!is_new && note.round == round_) return note;
    if (is_new) {
      ask(function, &note);
      note.number = ++numbers_;
    }
    uint64_t words[kMaxParameters];
    for (uint32_t i = 0; i < note.count; ++i)
      words[i] = uint64_t{note.offset[i]} << 32 | note.bytes[i];
    shm::Record head = head_of(note, name);
    head.object = handle;
    const bool is_told = tell(note, head, words, name);
    note.handle = is_told ? handle : 0;  // no room: the next launch tries again
    note.name_hash = hash;
    note.round = round_;
    return note;
  }

  // All functions are reported again.
  void begin_round() { ++round_; }

 private:
  static constexpr uint32_t kNotes = 256;

  static const char* name_of(CUfunction function);
  static uint64_t hash_of(const char* name);
  static void ask(CUfunction function, FunctionNote* note);
  static shm::Record head_of(const FunctionNote& note, const char* name);
  FunctionNote& place_of(CUfunction function) {
    return notes_[(reinterpret_cast<uint64_t>(function) * 0x9e3779b97f4a7c15u) >> 56];
  }

  uint32_t numbers_ = 0;
  uint32_t round_ = 0;
  FunctionNote notes_[kNotes] = {};
};

// The values of a launch's parameters, each beginning at a new word: from where `parameters` point
// or, if that is null, from the buffer that `extra` names.
struct ParameterWords {
  uint32_t count = 0;
  bool is_cut = false;  // there are more than fit, or one is missing
};
ParameterWords collect_parameters(const FunctionNote& note, void* const* parameters,
                                  void* const* extra, uint64_t* words, uint32_t room);

}  // namespace tandem::shim::tracing
