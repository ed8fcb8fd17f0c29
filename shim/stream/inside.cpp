#include "inside.h"

#include "slots.h"

namespace tandem::shim {
namespace {

bool is_of(const StreamSlot& slot, uint64_t context) {
  return slot.context.load(std::memory_order_relaxed) == context;
}

}  // namespace

bool others_are_inside(const Channel& channel, uint64_t context) {
  for (uint32_t i = 0; i < slot_end(channel); ++i) {
    const StreamSlot& slot = channel.streams[i];
    if (is_anyone_inside(slot) && !is_used_by_me(slot) && is_of(slot, context)) return true;
  }
  return false;
}

void look_who_is_kept(Channel& channel) {
  for (uint32_t i = 0; i < slot_end(channel); ++i) {
    StreamSlot& slot = channel.streams[i];
    const uint64_t user = slot.user.load(std::memory_order_relaxed);
    slot.is_kept = (user & 1) != 0 && user == slot.user_seen;
    slot.user_seen = user;
  }
}

bool is_anyone_kept(const Channel& channel, uint64_t context) {
  for (uint32_t i = 0; i < slot_end(channel); ++i) {
    if (channel.streams[i].is_kept && is_of(channel.streams[i], context)) return true;
  }
  return false;
}

}  // namespace tandem::shim
