// What all calls that take or give back device memory have in common.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "admission.h"
#include "driver.h"
#include "holdings.h"
#include "line.h"
#include "memory.h"
#include "observe.h"
#include "place.h"
#include "put_off.h"
#include "session.h"
#include "use.h"

namespace tandem::shim::handlers {

template <class Handle>
uint64_t key_of(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>) return reinterpret_cast<uint64_t>(handle);
  else return handle;
}

// Corrects the count where the driver made more or less of a request than was counted.
inline void correct(uint32_t device, uint64_t counted, uint64_t real) {
  if (real > counted) memory::add(device, real - counted);
  else memory::give_back(device, counted - real);
}

inline void hold(holdings::Kind kind, uint64_t key, const Place& place, uint64_t bytes) {
  holdings::Entry entry;
  entry.kind = kind;
  entry.key = key;
  entry.owner = place.context;
  entry.bytes = bytes;
  entry.device = static_cast<uint8_t>(place.device);
  const holdings::Entry replaced = holdings::put(entry);
  if (__builtin_expect(replaced.bytes != 0, 0)) memory::give_back(replaced.device, replaced.bytes);
  memory::count_allocated();
}

// Tries again when the driver has no room but memory freed during a capture still takes some.
template <class Real>
CUresult with_room(Real real) {
  const CUresult result = real();
  return result == CUDA_ERROR_OUT_OF_MEMORY && swap::free_what_was_put_off() ? real() : result;
}

// Counts an allocation in the current context. When the limit refuses, the answer is exactly
// CUDA_ERROR_OUT_OF_MEMORY: allocators retry on that error and no other. `real_bytes` is called
// after the driver has agreed. `stream` (normalised) is given where the memory exists only once the
// stream gets to it.
template <class Handle, class Real, class RealBytes>
CUresult counted(holdings::Kind kind, Handle* out, uint64_t bytes, Real real, RealBytes real_bytes,
                 uint64_t stream = kNoStream) {
  Channel* channel = managed_channel();
  const Place place = place_now();
  const auto want = [&] { return line::Want{place.device, bytes}; };
  const CUresult result = line::in_line(want, [&] {
    // Not while waiting in line: the job's other memory may have to move meanwhile.
    const swap::Use use;
    if (!admit(place.device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    // Not for calls that need not wait: the GPU's work may need this very thread.
    const CUresult answer = stream == kNoStream ? with_room(real) : real();
    if (answer != CUDA_SUCCESS || !out) undo_admission(place.device, bytes, answer);
    return answer;
  });
  if (result != CUDA_SUCCESS || !out) return result;
  // Read here, so that its latency overlaps with what follows.
  const uint64_t ticks = channel ? g_clock.ticks() : 0;
  const uint64_t held = real_bytes();
  if (held != bytes) correct(place.device, bytes, held);
  hold(kind, key_of(*out), place, held);
  if (channel && kind == holdings::Kind::kLinear)
    record_memory(*channel, shm::RecordKind::kAlloc, ticks, key_of(*out), held, stream);
  return result;
}

template <class Handle, class Real>
CUresult counted(holdings::Kind kind, Handle* out, uint64_t bytes, Real real) {
  return counted(kind, out, bytes, real, [bytes] { return bytes; });
}

// Undoes `counted`, by a handle of that kind.
template <class Handle, class Real>
CUresult uncounted(holdings::Kind kind, Handle handle, Real real) {
  const holdings::Entry entry = holdings::take_out(kind, key_of(handle));
  const CUresult result = real();
  if (entry.kind == holdings::Kind::kNone) return result;
  if (result == CUDA_SUCCESS) memory::give_back(entry.device, entry.bytes);
  else holdings::put(entry);
  return result;
}

}  // namespace tandem::shim::handlers
