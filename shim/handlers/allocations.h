// Linear memory, its frees, and what the program is told about the memory that is left.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "capture.h"
#include "driver.h"
#include "graph_memory.h"
#include "handlers/counted.h"
#include "observe.h"
#include "pool_rows.h"
#include "put_off.h"
#include "session.h"
#include "settings.h"
#include "slabs.h"
#include "swappable.h"
#include "use.h"

namespace tandem::shim::handlers {

// Packs an allocation into a slab. A slab counts as a whole, so the limit has no say. False: the
// driver has to allocate.
inline bool pack(CUdeviceptr* address, uint64_t bytes) {
  const swap::Use use;
  const Place place = place_now();
  if (!place.context || swap::pack(address, bytes, place.context, place.device) != CUDA_SUCCESS) {
    return false;
  }
  hold(holdings::Kind::kPacked, *address, place, bytes);
  if (Channel* channel = managed_channel())
    record_memory(*channel, shm::RecordKind::kAlloc, g_clock.ticks(), *address, bytes);
  return true;
}

// `Address` and `Size` have 32 bits in the first version of the driver API.
template <class Call, class Address, class Size>
CUresult allocate(Address* address, Size bytes) {
  uint64_t held = bytes;
  const bool movable = address && swap::is_wanted(managed_channel(), bytes);
  const bool small = bytes < swap::kSmallestRegion;
  if constexpr (sizeof(Address) == sizeof(CUdeviceptr)) {
    if (movable && small && pack(address, bytes)) return CUDA_SUCCESS;
  }
  const auto real = [&] {
    if constexpr (sizeof(Address) == sizeof(CUdeviceptr)) {
      const Place place = movable && !small ? place_now() : Place{};
      if (place.context) {
        const CUresult result =
            swap::allocate_region(address, bytes, place.context, place.device, &held);
        if (result != CUDA_ERROR_NOT_SUPPORTED) return result;
      }
    }
    return Call::real(address, bytes);
  };
  return counted(holdings::Kind::kLinear, address, bytes, real, [&] { return held; });
}

// The unit of the pitch on every device so far, for a guess before the call; what counts is the
// real pitch.
inline constexpr uint64_t kPitchUnit = 512;

template <class Call, class Address, class Size>
CUresult allocate_pitch(Address* address, Size* pitch, Size width, Size height, unsigned element) {
  uint64_t expected = 0;
  if (__builtin_mul_overflow((uint64_t{width} + kPitchUnit - 1) / kPitchUnit * kPitchUnit,
                             uint64_t{height}, &expected)) {
    expected = 0;  // leave it to the driver to object
  }
  return counted(
      holdings::Kind::kLinear, address, expected,
      [&] { return Call::real(address, pitch, width, height, element); },
      [&] { return pitch ? uint64_t{*pitch} * height : expected; });
}

template <class Call>
CUresult allocate_managed(CUdeviceptr* address, size_t bytes, unsigned flags) {
  return counted(holdings::Kind::kLinear, address, bytes,
                 [&] { return Call::real(address, bytes, flags); });
}

// Returns the entry of an address and removes it from the table. An entry that the program has
// freed already (put_off.h) stays there.
inline holdings::Entry take_out_address(uint64_t address) {
  const holdings::Locked table;
  for (const auto kind : {holdings::Kind::kLinear, holdings::Kind::kPooled,
                          holdings::Kind::kImported, holdings::Kind::kPacked}) {
    if (holdings::Entry* found = table->find(kind, address)) {
      const holdings::Entry entry = *found;
      if (!swap::is_put_off(entry)) table->erase(found);
      return entry;
    }
  }
  return {};
}

// `leave` settles the bytes of linear memory.
template <class Leave>
void count_off(const holdings::Entry& entry, Leave leave) {
  if (entry.kind == holdings::Kind::kPooled) {
    pools::note_freed(static_cast<uint32_t>(entry.owner), entry.bytes);
  } else if (entry.kind != holdings::Kind::kImported && entry.kind != holdings::Kind::kPacked) {
    leave(entry);
  }
}

// `stream` (normalised) if it is freed in stream order.
template <class Real, class Leave>
CUresult freed(uint64_t address, Real real, Leave leave, uint64_t stream = kNoStream) {
  Channel* channel = managed_channel();
  const swap::Use use(swap::Needs::kTables);
  // Before the address can be handed out again.
  const uint64_t ticks = channel ? g_clock.ticks() : 0;
  const holdings::Entry entry = take_out_address(address);
  if (swap::is_put_off(entry)) return real();  // which does not know the address
  // Not for frees that need not wait: the GPU's work may need this very thread.
  if (stream == kNoStream && entry.kind != holdings::Kind::kNone)
    swap::free_what_was_put_off(entry.owner);
  const bool later = entry.kind != holdings::Kind::kNone && any_capture() &&
                     swap::range_at(address).base == address;
  CUresult result =
      later ? swap::put_off(entry, stream != kNoStream) : swap::release_if_ours(address);
  if (result == CUDA_ERROR_NOT_FOUND) result = real();
  if (entry.kind == holdings::Kind::kNone) return result;
  if (result != CUDA_SUCCESS) {
    holdings::put(entry);
    return result;
  }
  if (!later) count_off(entry, leave);
  if (channel) record_memory(*channel, shm::RecordKind::kFree, ticks, address, entry.bytes, stream);
  return result;
}

template <class Call, class Address>
CUresult release(Address address) {
  if (Channel* channel = managed_channel()) before_block(*channel);  // may wait for the device
  return freed(
      address, [&] { return Call::real(address); },
      [](const holdings::Entry& entry) { memory::give_back(entry.device, entry.bytes); });
}

template <class Call>
CUresult release_async(CUdeviceptr address, CUstream stream) {
  const auto real = [&] { return Call::real(address, stream); };
  const uint64_t named = normalise(stream, Call::kPerThread);
  if (any_capture() && is_capturing(as_stream(named))) return real();
  // Memory that belongs to no pool stays until the stream gets there.
  return freed(
      address, real,
      [](const holdings::Entry& entry) { pools::free_later(entry.device, entry.bytes); }, named);
}

template <class Size>
void show_limit(uint32_t device, Size* free_bytes, Size* total_bytes) {
  size_t free_now = free_bytes ? *free_bytes : 0, total = total_bytes ? *total_bytes : 0;
  memory::limit_view(device, &free_now, &total);
  if (free_bytes) *free_bytes = static_cast<Size>(free_now);
  if (total_bytes) *total_bytes = static_cast<Size>(total);
}

template <class Call, class Size>
CUresult memory_info(Size* free_bytes, Size* total_bytes) {
  managed_channel();
  const CUresult result = Call::real(free_bytes, total_bytes);
  if (result != CUDA_SUCCESS) return result;
  const uint32_t device = place_now().device;
  pools::refresh_all(device);
  graph_memory::refresh(device);
  show_limit(device, free_bytes, total_bytes);
  return result;
}

// May be called before there is a context; the limit is then what `tandem run` agreed with the
// daemon.
template <class Call, class Size>
CUresult total_memory(Size* bytes, CUdevice device) {
  managed_channel();
  const CUresult result = Call::real(bytes, device);
  if (result != CUDA_SUCCESS || !bytes) return result;
  if (g_session.load(std::memory_order_acquire) == SessionState::kFresh) {
    *bytes = static_cast<Size>(std::min<uint64_t>(*bytes, agreed_limit(*bytes)));
  } else {
    show_limit<Size>(static_cast<uint32_t>(device), nullptr, bytes);
  }
  return result;
}

}  // namespace tandem::shim::handlers
