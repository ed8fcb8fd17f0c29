// Copies of pieces on their way, a few at a time on a stream of their own. Mover.
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

  // Until the GPU has ended whatever was submitted to contexts that can see the regions. False: there is
  // an error, or a green context, which another thread cannot wait for.
  bool wait_for_all_work();

  // Pins the homes; needs a piece, for its context.
  void pin();

  // Has the file take the place of a pool's memory (homes.h). False: nothing has changed.
  bool to_file(uint64_t pool, int fd);

  // Makes a context current that the homes are pinned for, if there is one. Looks at the pieces.
  static void enter_any();

  // To its home, then off the device; or there and back. `out` is done only after settle.
  bool out(Piece* piece);
  // Anything but CUDA_SUCCESS: it is at home still. Success: it comes, or it is lost.
  CUresult in(Piece* piece);
  // Waits for all that are on their way. False: a piece is still where it was.
  bool settle();

  // Nothing of its own is in any context any more.
  void leave_context();

  // The context of the first piece that is missing has an error that all its calls return from now on.
  bool is_device_lost();

 private:
  static constexpr size_t kDepth = Staging::kPlaces;
  struct Flight {
    Piece* piece;
    CUevent event;
    bool out;
    bool counts;  // for the rate of the link: nothing of it was read from a file
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
  uint64_t copying_since_ns_ = 0;  // while some are on their way: when the last one ended, or all began
  uint64_t told_ns_ = 0;
  Staging staging_;  // a place for each flight
};

}  // namespace tandem::shim::swap
