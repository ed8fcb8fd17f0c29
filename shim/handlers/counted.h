// What all calls that take and give back device memory have in common.
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

// What was counted is more, or less, than the driver made of it.
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

// Once more where the driver has no room, but what was freed beside a capture still takes some.
template <class Real>
CUresult with_room(Real real) {
  const CUresult result = real();
  return result == CUDA_ERROR_OUT_OF_MEMORY && swap::free_what_was_put_off() ? real() : result;
}

// An allocation of the current context. The limit's answer is exactly CUDA_ERROR_OUT_OF_MEMORY:
// allocators retry on that and on no other. `real_bytes` is called when the driver has agreed.
// `stream` (normalised) where the memory is there only once the stream gets to it.
template <class Handle, class Real, class RealBytes>
CUresult counted(holdings::Kind kind, Handle* out, uint64_t bytes, Real real, RealBytes real_bytes,
                 uint64_t stream = kNoStream) {
  Channel* channel = managed_channel();
  const Place place = place_now();
  const auto want = [&] { return line::Want{place.device, bytes}; };
  const CUresult result = line::in_line(want, [&] {
    const swap::Use use;  // not while it waits in line: what it has may have to go meanwhile
    if (!admit(place.device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    // Not where the program need not wait: what the GPU does may need this very thread.
    const CUresult answer = stream == kNoStream ? with_room(real) : real();
    if (answer != CUDA_SUCCESS || !out) undo_admission(place.device, bytes, answer);
    return answer;
  });
  if (result != CUDA_SUCCESS || !out) return result;
  const uint64_t ticks = channel ? g_clock.ticks() : 0;  // here: takes its time beside what follows
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

// The end of what `counted` began, by a handle of that kind.
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
