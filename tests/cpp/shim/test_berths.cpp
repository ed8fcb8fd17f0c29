#include "berths.h"

#include <fcntl.h>
#include <unistd.h>

#include <thread>

#include "check.h"
#include "markers.h"
#include "pages.h"
#include "segments.h"
#include "slots.h"

using namespace pages;

namespace {

int sealed_file(size_t bytes) {
  const int file = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  CHECK_EQ(ftruncate(file, static_cast<off_t>(bytes)), 0);
  CHECK_EQ(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  return file;
}

// Attaches to one more daemon, whose pages are empty.
Channel* attach_once_more() {
  const int files[] = {sealed_file(shm::kCommandBytes), sealed_file(shm::kStateBytes),
                       sealed_file(shm::kPresenceBytes)};
  berths::Maps maps;
  CHECK(berths::map_attachment(files, shm::kStateBytes, &maps));
  Channel* channel = berths::make_channel();
  CHECK(channel != nullptr);
  channel->lay_out(maps.command, maps.state, maps.presence, &g_clock);
  berths::keep();
  for (const int file : files) close(file);
  return channel;
}

Channel* attach_as_often_as_there_are_berths() {
  Channel* last = nullptr;
  for (uint32_t i = 0; i < berths::kBerths; ++i) last = attach_once_more();
  return last;
}

void submit_one(Channel* channel) {
  const uint32_t slot = look_up_slot(*channel, 5);
  CHECK(slot != kNoSlot);
  add_to_segment(*channel, slot, 1000, g_clock.now_ns());
  close_segment(*channel, slot);
}

void begin() {
  if (g_clock.base_ns() == 0) g_clock.start_real();
  make_driver();
  berths::start_afresh();
  g_thread = ThreadState{};
}

}  // namespace

TEST(an_attachment_lies_where_that_of_as_many_before_was_and_is_as_new) {
  begin();
  Channel* first = attach_once_more();
  const shm::StatePage* pages = first->state;
  const uint32_t number = first->attachment;
  submit_one(first);
  CHECK_EQ(first->slots[0].done.load(), 1u);
  for (uint32_t i = 1; i < berths::kBerths; ++i) CHECK(attach_once_more()->state != pages);
  Channel* again = attach_once_more();
  CHECK(again == first && again->state == pages);
  CHECK_EQ(again->attachment.load(), number + berths::kBerths);
  CHECK_EQ(again->slots[0].issued.load() + again->slots[0].done.load(), 0u);
  CHECK_EQ(slot_end(*again), 0u);
}

TEST(pages_over_registered_ones_are_marked_by_events_while_that_context_lives) {
  begin();
  submit_one(attach_once_more());
  Channel* over = attach_as_often_as_there_are_berths();
  submit_one(over);
  CHECK_EQ(g_seen.registrations.load(), 1);
  CHECK_EQ(g_seen.event_records.load(), 1);
  forget_registration(*attach_once_more(), 0x1000, -1);  // any of them may be attached then
  for (uint32_t i = 1; i < berths::kBerths; ++i) over = attach_once_more();
  submit_one(over);
  CHECK_EQ(g_seen.registrations.load(), 2);
}

TEST(a_registration_of_what_was_mapped_there_before_is_none) {
  begin();
  submit_one(attach_once_more());
  Channel* over = attach_as_often_as_there_are_berths();
  forget_registration(*over, 0x1000, -1);  // a green context, whose registrations live on
  g_driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  };
  submit_one(over);
  CHECK_EQ(over->registered.load(), kFailed);
  CHECK_EQ(g_seen.event_records.load(), 1);
}

TEST(whom_the_driver_keeps_for_as_many_attachments_counts_nothing_in_the_last) {
  begin();
  static Channel* stuck;
  stuck = attach_once_more();
  submit_one(stuck);
  g_driver.cuStreamWriteValue64_v2 = [](CUstream, CUdeviceptr, cuuint64_t, unsigned) {
    attach_as_often_as_there_are_berths();
    return CUDA_SUCCESS;
  };
  submit_one(stuck);
  CHECK_EQ(stuck->slots[0].issued.load(), 0u);
}

#ifndef __SANITIZE_THREAD__  // TSan takes mmap for a write, but the kernel replaces whole maps
TEST(who_reads_a_peer_or_a_lost_attachment_meanwhile_reads_some_page) {
  begin();
  Channel* first = attach_once_more();
  const int one = sealed_file(shm::kPresenceBytes);
  const shm::PresencePage* peer = berths::map_peer(3, one);
  std::atomic<bool> ended{false};
  std::thread reader([&] {
    while (!ended) {
      CHECK_EQ(peer->busy_until_ns.load(), 0u);
      CHECK_EQ(first->state->waits.waiting_threads.load(), 0u);
    }
  });
  for (int i = 0; i < 300; ++i) {
    const int next = sealed_file(shm::kPresenceBytes);
    CHECK(berths::map_peer(3, next) == peer);
    close(next);
    const int files[] = {sealed_file(shm::kCommandBytes), sealed_file(shm::kStateBytes),
                         sealed_file(shm::kPresenceBytes)};
    berths::Maps maps;
    for (uint32_t to_the_first = 1; to_the_first < berths::kBerths; ++to_the_first) berths::keep();
    CHECK(berths::map_attachment(files, shm::kStateBytes, &maps));
    CHECK(maps.state == first->state);
    berths::keep();
    for (const int file : files) close(file);
  }
  ended = true;
  reader.join();
  close(one);
}
#endif

TEST(what_a_job_could_still_shrink_is_not_mapped) {
  begin();
  const int open_end = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  CHECK_EQ(ftruncate(open_end, shm::kPresenceBytes), 0);
  CHECK(berths::map_peer(0, open_end) == nullptr);
  const int too_short = sealed_file(16);
  CHECK(berths::map_peer(0, too_short) == nullptr);
  CHECK(berths::map_peer(0, -1) == nullptr);
  close(open_end);
  close(too_short);
}
