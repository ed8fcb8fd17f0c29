#include "channel.h"

#include "wait.h"

namespace tandem::shim {

Clock g_clock;

void Channel::lay_out(const shm::CommandPage* command_map, shm::StatePage* state_map,
                      shm::PresencePage* presence_map, const Clock* clock) {
  static std::atomic<uint32_t> newest{0};
  command = command_map;
  state = state_map;
  presence = presence_map;
  slots = reinterpret_cast<shm::Slot*>(reinterpret_cast<char*>(state_map) + shm::kSlotsOffset);
  for (StreamSlot& slot : streams) slot.stream.store(kNoStream, std::memory_order_relaxed);
  shm::StateControl& control = state->control;
  control.ns_per_tick_q32.store(clock->is_virtual() ? uint64_t{1} << 32 : clock->ns_per_tick_q32(),
                                std::memory_order_relaxed);
  control.tick_base.store(clock->tick_base(), std::memory_order_relaxed);
  control.tick_base_ns.store(clock->base_ns(), std::memory_order_relaxed);
  gate.open(command_map, state_map, clock);
  attachment.store(newest.fetch_add(1, std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void ring_doorbell(const Channel& channel) {
  channel.state->control.doorbell.fetch_add(1, std::memory_order_release);
  futex_wake_all(channel.state->control.doorbell);
}

}  // namespace tandem::shim
