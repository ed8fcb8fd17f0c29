// Hands out room in whole runs where possible, else in several: a request for no more than what is
// free always succeeds. Numbers stand for addresses; nothing here is touched. Not locked.
#pragma once

#include <cstdint>

#include "own_array.h"

namespace tandem::shim::swap {

struct Run {
  uint64_t at;
  uint64_t bytes;
};

class Runs {
 public:
  // Adds room that nobody has yet.
  bool add(uint64_t at, uint64_t bytes);

  // The first link of what was taken; 0 = less than that is free, or there is no memory to note it
  // in.
  uint32_t take(uint64_t bytes);
  // Gives back all of it, by its first link.
  void give_back(uint32_t first);
  // Removes room of which nothing is handed out, if it touches no other; false: some of it is out.
  bool remove(uint64_t at, uint64_t bytes);

  // From now on nothing of this room is handed out, and what comes back of it is gone. At most
  // once, and only for room that touches no other.
  bool close(uint64_t at, uint64_t bytes);
  // How much of a closed room is still out; 0 = it is forgotten, as is a room that is not closed.
  uint64_t out_of_closed(uint64_t at);
  [[nodiscard]] bool is_closed(uint64_t at) const;
  [[nodiscard]] uint64_t closed_bytes() const { return closed_bytes_; }  // that are out

  // Stores the run of a link in `out`. Returns the next link; 0 = that was the last.
  uint32_t look_at(uint32_t link, Run* out) const;

  [[nodiscard]] uint64_t free_bytes() const { return free_bytes_; }
  [[nodiscard]] size_t free_runs() const { return free_.size(); }  // neighbours are one
  void clear();

 private:
  struct Link {
    Run run;
    uint32_t next;
  };

  // A room of which nothing is handed out any more.
  struct Closed {
    Run all;
    uint64_t out_bytes;
  };

  bool add_free(uint64_t at, uint64_t bytes);
  Closed* closed_with(uint64_t at);
  size_t first_that_holds(uint64_t bytes) const;
  uint32_t cut(size_t index, uint64_t bytes);
  uint32_t unused_link();

  OwnArray<Run> free_;  // by address
  OwnArray<Closed> closed_;
  OwnArray<Link> links_;  // numbered from 1, so that 0 means none
  uint32_t unused_ = 0;   // chain of links that hold nothing
  uint64_t free_bytes_ = 0;
  uint64_t closed_bytes_ = 0;
};

}  // namespace tandem::shim::swap
