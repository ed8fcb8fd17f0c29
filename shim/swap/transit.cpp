#include "transit.h"

#include <unistd.h>

#include <algorithm>

#include "channel.h"
#include "driver.h"
#include "homes.h"
#include "log.h"
#include "own_array.h"
#include "slots.h"
#include "traffic.h"

namespace tandem::shim::swap {
namespace {

// How long to wait between two rings of the daemon's doorbell for pieces that came or went.
constexpr uint64_t kTellNs = 250'000;

CUcontext as_context(uint64_t context) { return reinterpret_cast<CUcontext>(context); }
void* as_pointer(uint64_t at) { return reinterpret_cast<void*>(at); }

// Used by the mover alone; kept, since the memory it has grown to stays mapped.
OwnArray<uint64_t> g_contexts;

void note_context(uint64_t context) {
  if (std::find(g_contexts.begin(), g_contexts.end(), context) == g_contexts.end())
    g_contexts.push(context);
}

// False: one of them is a green context.
bool find_contexts() {
  g_contexts.clear();
  for (size_t i = 0; i < piece_count(); ++i) note_context(piece(i).context);
  const Channel* channel = g_channel.load(std::memory_order_acquire);
  for (uint32_t i = 0; channel && i < slot_end(*channel); ++i) {
    const StreamSlot& slot = channel->streams[i];
    if (!is_live(slot)) continue;
    if (slot.green.load(std::memory_order_relaxed)) return false;
    note_context(slot.context.load(std::memory_order_relaxed));
  }
  return true;
}

// Copies a part, split where pinned ranges meet: `copy` gets each offset into the part, and its
// bytes.
template <class CopySome>
CUresult each_pinned(const Part& part, CopySome copy) {
  uint64_t bytes = 0;
  for (uint64_t from = 0; from < part.bytes; from += bytes) {
    bytes = pinned_at_once(part.at + from, part.bytes - from);
    const CUresult result = copy(from, bytes);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

bool Transit::wait_for_all_work() {
  if (!find_contexts()) return false;
  for (const uint64_t context : g_contexts) {
    if (g_driver.cuCtxSetCurrent(as_context(context)) != CUDA_SUCCESS ||
        g_driver.cuCtxSynchronize() != CUDA_SUCCESS) {
      return false;
    }
  }
  return true;
}

void Transit::pin() {
  if (piece_count() != 0 && enter_context(piece(0).context)) pin_pools();
}

bool Transit::enter_context(uint64_t context) {
  if (context_ == context) return true;
  leave_context();
  if (g_driver.cuCtxSetCurrent(as_context(context)) != CUDA_SUCCESS ||
      g_driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
    return false;
  }
  context_ = context;
  for (CUevent& event : events_) {
    if (g_driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) continue;
    event = nullptr;
    leave_context();
    return false;
  }
  return true;
}

void Transit::leave_context() {
  if (!context_) return;
  settle();
  staging_.drop();
  for (CUevent& event : events_) {
    if (event) g_driver.cuEventDestroy_v2(event);
    event = nullptr;
  }
  g_driver.cuStreamDestroy_v2(stream_);
  context_ = 0;
}

void Transit::take_off(Piece* piece, bool out, bool counts) {
  if (count_ == 0) copying_since_ns_ = g_clock.now_ns();
  const size_t at = (first_ + count_++) % kDepth;
  flights_[at] = {piece, events_[at], out, counts};
  g_driver.cuEventRecord(events_[at], stream_);
}

// Either all parts of a piece are in flight, or none is.
CUresult Transit::undo_copies(CUresult why) {
  g_driver.cuStreamSynchronize(stream_);
  return why;
}

CUresult Transit::copy_out(const Piece& piece) {
  CUdeviceptr at = piece.at;
  Part part{};
  for (uint32_t home = piece.home; home; at += part.bytes) {
    home = look_at_home(home, &part);
    const CUresult result = each_pinned(part, [&](uint64_t from, uint64_t bytes) {
      return g_driver.cuMemcpyDtoHAsync_v2(as_pointer(part.at + from), at + from, bytes, stream_);
    });
    if (result != CUDA_SUCCESS) return undo_copies(result);
  }
  return CUDA_SUCCESS;
}

CUresult Transit::copy_in(const Piece& piece, Read* read) {
  CUdeviceptr at = piece.at;
  Part part{};
  for (uint32_t home = piece.home; home; at += part.bytes) {
    home = look_at_home(home, &part);
    if (part.is_in_file) {
      char* const place = staging_.at((first_ + count_) % kDepth, at - piece.at);
      *read = place ? Staging::read(part, place) : Read::kLater;
      if (*read != Read::kDone) return undo_copies(CUDA_ERROR_UNKNOWN);
      part.at = reinterpret_cast<uint64_t>(place);
    }
    const CUresult result = each_pinned(part, [&](uint64_t from, uint64_t bytes) {
      return g_driver.cuMemcpyHtoDAsync_v2(at + from, as_pointer(part.at + from), bytes, stream_);
    });
    if (result != CUDA_SUCCESS) return undo_copies(result);
  }
  return CUDA_SUCCESS;
}

bool Transit::to_file(uint64_t pool, int fd) {
  if (piece_count() != 0 && enter_context(piece(0).context)) return move_pool_to_file(pool, fd);
  close(fd);
  return false;
}

void Transit::enter_any() {
  find_contexts();
  if (g_contexts.size() != 0) g_driver.cuCtxSetCurrent(as_context(g_contexts[0]));
}

bool Transit::out(Piece* piece) {
  if (!enter_context(piece->context) || !make_room()) return false;
  if (copy_out(*piece) != CUDA_SUCCESS) return false;
  take_off(piece, true, true);
  return true;
}

CUresult Transit::in(Piece* piece) {
  if (!enter_context(piece->context) || !make_room()) return CUDA_ERROR_UNKNOWN;
  CUresult result = map_piece(piece);
  if (result != CUDA_SUCCESS) return result;
  const bool was_read = is_any_in_file(piece->home);
  Read read = Read::kDone;
  result = copy_in(*piece, &read);
  if (result == CUDA_SUCCESS) {
    take_off(piece, false, !was_read);
    return result;
  }
  const bool gone = unmap_piece(piece) == CUDA_SUCCESS;
  if (read != Read::kLost || !gone) return result;
  lose_piece(piece);
  say_once("memory cannot be read back from its file: work that touches it fails");
  return CUDA_SUCCESS;
}

bool Transit::finish_oldest() {
  const Flight flight = flights_[first_];
  Piece* const piece = flight.piece;
  first_ = (first_ + 1) % kDepth;
  --count_;
  const bool copied = g_driver.cuEventSynchronize(flight.event) == CUDA_SUCCESS;
  const uint64_t now_ns = g_clock.now_ns();
  if (flight.counts) {
    count_copied(flight.out ? Way::kOut : Way::kIn, copied ? piece->bytes : 0,
                 now_ns - copying_since_ns_);
  }
  copying_since_ns_ = now_ns;
  bool good = copied;
  if (flight.out == copied) {
    good = unmap_piece(piece) == CUDA_SUCCESS && copied;
  } else if (copied && !flight.counts) {
    give_home_back(piece->home);  // otherwise the file would stay until the piece moves out again
    piece->home = 0;
  }
  tell_progress();
  return good;
}

// Others may wait for the room, and the daemon for the end: reports often enough for them to
// follow.
void Transit::tell_progress() {
  publish_bytes();
  const uint64_t now_ns = g_clock.now_ns();
  if (now_ns - told_ns_ < kTellNs) return;
  told_ns_ = now_ns;
  if (const Channel* channel = g_channel.load(std::memory_order_acquire)) ring_doorbell(*channel);
}

bool Transit::settle() {
  bool good = true;
  while (count_) good = finish_oldest() && good;
  return good;
}

// Asks the context and not the stream, because a lost context creates no stream. Waiting for the
// context would tell as well, but invalidates its captures.
bool Transit::is_device_lost() {
  size_t missing = 0;
  while (missing < piece_count() && (piece(missing).resident || piece(missing).lost)) ++missing;
  if (missing == piece_count()) return false;
  size_t free_bytes = 0, total_bytes = 0;
  const bool lost = g_driver.cuCtxSetCurrent(as_context(piece(missing).context)) != CUDA_SUCCESS ||
                    g_driver.cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS;
  if (context_) g_driver.cuCtxSetCurrent(as_context(context_));
  return lost;
}

}  // namespace tandem::shim::swap
