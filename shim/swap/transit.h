// Copies of pieces in flight, a few at a time, on a stream of their own. Mover.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "regions.h"
#include "staging.h"

namespace tandem::shim::swap {

class Transit {
 public:
  Transit() = default;
  ~Transit() { leave_context(); }
  Transit(const Transit&) = delete;
  Transit& operator=(const Transit&) = delete;

  // Waits until the GPU has ended whatever was submitted to contexts that can see the regions.
  // False: there is an error, or a green context, for which another thread cannot wait.
  bool wait_for_all_work();

  // Pins the homes; needs a piece, for its context.
  void pin();

  // Lets the file take the place of a pool's memory (homes.h). False: nothing has changed.
  bool to_file(uint64_t pool, int fd);

  // Makes current a context for which the homes are pinned, if there is one. Looks at the pieces.
  static void enter_any();

  // Copies a piece to its home and takes it off the device; or the reverse. `out` is complete only
  // after `settle`.
  bool out(Piece* piece);
  // Anything but CUDA_SUCCESS: the piece is still at home. Success: it is coming, or it is lost.
  CUresult in(Piece* piece);
  // Waits for all copies in flight. False: a piece is still where it was.
  bool settle();

  // Leaves nothing of its own in any context.
  void leave_context();

  // The context of the first missing piece has an error that all its calls return from now on.
  bool is_device_lost();

 private:
  static constexpr size_t kDepth = Staging::kPlaces;
  struct Flight {
    Piece* piece;
    CUevent event;
    bool out;
    bool counts;  // towards the rate of the link: none of it was read from a file
  };

  bool enter_context(uint64_t context);
  bool make_room() { return count_ < kDepth || finish_oldest(); }
  bool finish_oldest();
  CUresult copy_out(const Piece& piece);
  CUresult copy_in(const Piece& piece, Read* read);
  CUresult undo_copies(CUresult why);
  void take_off(Piece* piece, bool out, bool counts);
  void tell_progress();

  uint64_t context_ = 0;
  CUstream stream_ = nullptr;
  CUevent events_[kDepth] = {};
  Flight flights_[kDepth] = {};
  size_t first_ = 0;
  size_t count_ = 0;
  // While copies are in flight: when the last one ended, or the first began.
  uint64_t copying_since_ns_ = 0;
  uint64_t told_ns_ = 0;
  Staging staging_;  // one place per flight
};

}  // namespace tandem::shim::swap
