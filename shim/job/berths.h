// Where the pages that the daemon and peers share with this process are mapped, and the channels over them.
//
// Rules
// 1. Nothing is ever unmapped or given back: a thread may be inside a call that began under a lost channel, or
//    keep a ring of it, and nobody can wait for that; nor for the GPU, which may still have a marker to write.
// 2. Nor does anything grow without end: there are so many places, and then the oldest is mapped over. That is
//    atomic to who reads or writes there (MAP_FIXED), and leaves memory of the same kind.
// 3. So who is as many attachments late, or comes with what it kept of one, may be in another's pages. What is
//    kept goes by the attachment's number (Channel::attachment); who is inside a call all the while can put a
//    count wrong until that stream's next marker, and nothing else.
// 4. What the driver has registered stays so, too: to give it back would wait for the device, inside the
//    driver, for work that may wait for this very process. Pages mapped over those are marked by events.
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

// The following three by whoever attaches: the starting thread, then only the helper.

// Maps an attachment's three files, the same place until it is `keep`ed. False: one is not what it has to
// be, or there is no room.
bool map_attachment(const int* files, size_t state_bytes, Maps* maps);
// Its channel, as new. Null: no memory.
Channel* make_channel();
void keep();

// A peer's presence page, where the previous one of that index was. Null: as above.
const shm::PresencePage* map_peer(uint32_t index, int file);

extern std::atomic<Channel*> g_channels[kBerths];  // release when made; acquire

// Every channel there has been, as far as they are not used again.
template <class Do>
void each_channel(Do act) {
  for (const std::atomic<Channel*>& channel : g_channels) {
    if (Channel* made = channel.load(std::memory_order_acquire)) act(*made);
  }
}

void start_afresh();  // in a forked child, where none of the pages is mapped

}  // namespace tandem::shim::berths
