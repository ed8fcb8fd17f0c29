// Where the pages that the daemon and peers share with this process are mapped, and the channels
// over them.
//
// Rules
// 1. Nothing is ever unmapped or freed: a thread may be inside a call that began under a lost
//    channel, or may keep a ring of it, and nobody can wait for that; nor for the GPU, which may
//    still have a marker to write.
// 2. Nor does anything grow without bound: the number of places is fixed, and when all are taken
//    the oldest is mapped over. For concurrent readers and writers that is atomic (MAP_FIXED), and
//    leaves memory of the same kind.
// 3. So a thread that is that many attachments late, or that uses something it kept from one, may
//    be in another attachment's pages. What is kept is checked against the attachment's number
//    (Channel::attachment). A thread that stays inside one call all the while can make a count
//    wrong until that stream's next marker, and nothing else.
// 4. What is registered with the driver stays registered, too: unregistering would wait for the
//    device, inside the driver, for work that may be waiting for this very process. An attachment
//    whose pages are mapped over registered ones marks by events.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "channel.h"
#include "shm_layout.h"

namespace tandem::shim::berths {

inline constexpr uint32_t kBerths = 16;

struct Maps {
  const shm::CommandPage* command;
  shm::StatePage* state;
  shm::PresencePage* presence;
};

// The next three functions are called by the attaching thread only: the starting thread, then the
// helper.

// Maps an attachment's three files, always at the same place until `keep` is called. False: a file
// is not what it has to be, or there is no room.
bool map_attachment(const int* files, size_t state_bytes, Maps* maps);
// The channel for that place, as new. Null: no memory.
Channel* make_channel();
void keep();

// Maps a peer's presence page over the previous one of that index. Null: as above.
const shm::PresencePage* map_peer(uint32_t index, int file);

extern std::atomic<Channel*> g_channels[kBerths];  // release when created; acquire to read

// Calls `act` on every channel that has existed, except those that were reused since.
template <class Do>
void each_channel(Do act) {
  for (const std::atomic<Channel*>& channel : g_channels) {
    if (Channel* made = channel.load(std::memory_order_acquire)) act(*made);
  }
}

void start_afresh();  // in a forked child, where none of the pages is mapped

}  // namespace tandem::shim::berths
