// The table of holdings, the limit, and the sizes of arrays.
#include <thread>

#include "array_bytes.h"
#include "check.h"
#include "holdings.h"
#include "memory.h"
#include "pages.h"
#include "physical.h"

using namespace pages;
using holdings::Entry;
using holdings::Kind;

namespace {

constexpr uint64_t kNone = shm::kNoLimit;

Entry linear(uint64_t key, uint64_t bytes) {
  Entry entry;
  entry.kind = Kind::kLinear;
  entry.key = key;
  entry.bytes = bytes;
  return entry;
}

}  // namespace

TEST(the_table_finds_what_is_in_it_and_nothing_else) {
  holdings::Table table;
  for (uint64_t key = 0x1000; key < 0x1000 + 5000 * 512; key += 512)
    CHECK(table.put(linear(key, 1)));
  CHECK_EQ(table.size(), 5000u);
  for (uint64_t key = 0x1000; key < 0x1000 + 5000 * 512; key += 1024) {
    Entry* found = table.find(Kind::kLinear, key);
    CHECK(found && found->key == key);
    table.erase(found);
  }
  CHECK_EQ(table.size(), 2500u);
  for (uint64_t key = 0x1000; key < 0x1000 + 5000 * 512; key += 512)
    CHECK_EQ(table.find(Kind::kLinear, key) != nullptr, (key - 0x1000) % 1024 != 0);
  CHECK(!table.find(Kind::kArray, 0x1200));
  table.clear();
}

TEST(a_table_whose_entries_come_and_go_stays_small) {
  holdings::Table table;
  for (uint64_t i = 0; i < 200'000; ++i) {
    CHECK(table.put(linear(i * 512, 1)));
    if (i >= 100) table.erase(table.find(Kind::kLinear, (i - 100) * 512));
  }
  CHECK_EQ(table.size(), 100u);
  CHECK_EQ(table.capacity(), 1024u);
  table.clear();
}

TEST(erasing_many_at_once_leaves_the_others) {
  holdings::Table table;
  for (uint64_t i = 1; i <= 3000; ++i) {
    Entry entry = linear(i * 64, i);
    entry.owner = i % 3;
    table.put(entry);
  }
  uint64_t bytes = 0;
  table.erase_if([&](const Entry& entry) {
    if (entry.owner != 1) return false;
    bytes += entry.bytes;
    return true;
  });
  CHECK_EQ(table.size(), 2000u);
  CHECK_EQ(bytes, 1000u * (1 + 2998) / 2);
  for (uint64_t i = 1; i <= 3000; ++i)
    CHECK_EQ(table.find(Kind::kLinear, i * 64) != nullptr, i % 3 != 1);
  table.clear();
}

TEST(the_limit_refuses_what_would_exceed_it_and_survives_the_daemon) {
  memory::start_afresh();
  Channel* channel = make_channel();
  g_channel = channel;
  command_of(channel).memory.limit_bytes = 1000;
  CHECK(memory::take(0, 600, memory::limit_bytes()));
  CHECK(!memory::take(0, 401, memory::limit_bytes()));
  CHECK(!memory::take(0, UINT64_MAX, memory::limit_bytes()));
  CHECK(memory::take(1, 401, memory::limit_bytes()));  // another device has its own limit
  size_t free_bytes = 5000, total_bytes = 9000;
  memory::limit_view(0, &free_bytes, &total_bytes);
  CHECK_EQ(free_bytes, 400u);
  CHECK_EQ(total_bytes, 1000u);
  memory::publish();
  CHECK_EQ(channel->state->memory.device_bytes.load(), 1001u);
  g_channel = nullptr;
  CHECK(!memory::take(0, 401, memory::limit_bytes()));
  g_channel = channel;
  command_of(channel).memory.limit_bytes = kNone;
  CHECK(memory::take(0, 401, memory::limit_bytes()));
  g_channel = nullptr;
  memory::start_afresh();
}

TEST(memory_is_shown_as_taken_before_the_driver_is_asked_and_as_held_behind) {
  memory::start_afresh();
  Channel* channel = make_channel();
  g_channel = channel;
  const shm::StateMemory& shown = channel->state->memory;
  CHECK(memory::take(0, 600, memory::limit_bytes()));
  CHECK_EQ(shown.taken_bytes.load(), 600u);
  CHECK_EQ(shown.device_bytes.load(), 0u);

  memory::count_allocated();
  CHECK_EQ(shown.device_bytes.load(), 600u);
  CHECK(memory::take(1, 300, memory::limit_bytes()));
  memory::give_back(1, 300);  // the driver refused
  CHECK_EQ(shown.taken_bytes.load(), 600u);
  CHECK_EQ(shown.peak_bytes.load(), 600u);
  g_channel = nullptr;
  memory::start_afresh();
}

TEST(a_lease_bounds_more_tightly_than_the_limit_and_ends_with_the_daemon) {
  memory::start_afresh();
  Channel* channel = make_channel();
  g_channel = channel;
  shm::CommandMemory& told = command_of(channel).memory;
  told.limit_bytes = 1000;
  CHECK_EQ(memory::bound_bytes(), 1000u);  // 0, as an older daemon leaves it, is no lease
  told.lease_bytes = 2000;
  CHECK_EQ(memory::bound_bytes(), 1000u);
  told.lease_bytes = 300;
  CHECK_EQ(memory::bound_bytes(), 300u);
  CHECK(memory::take(0, 400, memory::limit_bytes()));
  CHECK(memory::is_over_limit(0));
  channel->gate.lose();
  CHECK_EQ(memory::bound_bytes(), 1000u);
  g_channel = nullptr;
  memory::start_afresh();
}

TEST(a_lease_is_shown_to_those_who_do_not_wait_for_more) {
  memory::start_afresh();
  Channel* channel = make_channel();
  g_channel = channel;
  shm::CommandMemory& told = command_of(channel).memory;
  told.limit_bytes = 1000;
  told.lease_bytes = 500;
  CHECK(memory::take(0, 400, memory::bound_bytes()));
  size_t free_bytes = 5000, total_bytes = 9000;
  memory::limit_view(0, &free_bytes, &total_bytes);
  CHECK_EQ(total_bytes, 1000u);
  CHECK_EQ(free_bytes, 100u);

  told.wait_ns = 1;
  free_bytes = 5000;
  memory::limit_view(0, &free_bytes, nullptr);
  CHECK_EQ(free_bytes, 600u);
  g_channel = nullptr;
  memory::start_afresh();
}

TEST(giving_back_too_much_leaves_nothing_and_not_a_huge_figure) {
  memory::start_afresh();
  memory::add(2, 100);
  memory::give_back(2, 300);
  CHECK_EQ(memory::used_bytes(), 0u);
  CHECK_EQ(memory::used_bytes(2), 0u);
}

TEST(threads_never_get_more_than_the_limit_together) {
  memory::start_afresh();
  std::atomic<int> got{0};
  std::thread threads[4];
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      for (int i = 0; i < 1000; ++i) got += memory::take(0, 10, 1000);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(got.load(), 100);
  memory::start_afresh();
}

TEST(physical_memory_counts_until_nothing_holds_it) {
  holdings::start_afresh();
  memory::start_afresh();
  memory::add(0, 4096);
  physical::note_created(7, 0, 4096);
  physical::note_mapped(0x10000, 4096, 7);
  physical::end_release(7, physical::begin_release(7), true);
  CHECK_EQ(memory::used_bytes(), 4096u);  // the mapping
  physical::note_retained(9, 0x10800);    // a driver may give it another handle
  physical::note_unmapped(0x10000, 4096);
  CHECK_EQ(memory::used_bytes(), 4096u);
  physical::end_release(9, physical::begin_release(9), false);  // refused
  CHECK_EQ(memory::used_bytes(), 4096u);
  physical::end_release(9, physical::begin_release(9), true);
  CHECK_EQ(memory::used_bytes(), 0u);
  CHECK_EQ(physical::begin_release(9), 0u);  // a second time: left to the driver
  holdings::start_afresh();
}

TEST(one_unmap_ends_several_mappings) {
  holdings::start_afresh();
  memory::start_afresh();
  memory::add(0, 300);
  for (uint64_t i = 0; i < 3; ++i) {
    physical::note_created(20 + i, 0, 100);
    physical::note_mapped(0x1000 + i * 100, 100, 20 + i);
    physical::end_release(20 + i, physical::begin_release(20 + i), true);
  }
  physical::note_unmapped(0x1000, 300);
  CHECK_EQ(memory::used_bytes(), 0u);
  CHECK_EQ(holdings::Locked()->size(), 0u);
  holdings::start_afresh();
}

TEST(arrays_have_the_bytes_of_their_texels) {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = 100;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 2;
  CHECK_EQ(array_bytes(shape), 800u);
  shape.Height = 10;
  shape.Depth = 3;
  CHECK_EQ(array_bytes(shape), 24'000u);
  CHECK_EQ(mipmapped_bytes(shape, 2), 24'000u + 50 * 5 * 1 * 8);
  CHECK_EQ(mipmapped_bytes(shape, 0), 24'000u);
  shape.Flags = CUDA_ARRAY3D_LAYERED;
  CHECK_EQ(mipmapped_bytes(shape, 2), 24'000u + 50 * 5 * 3 * 8);
  shape.Flags = CUDA_ARRAY3D_SPARSE;
  CHECK_EQ(array_bytes(shape), 0u);
  shape = {64, 64, 0, CU_AD_FORMAT_BC1_UNORM, 4, 0};
  CHECK_EQ(array_bytes(shape), 64u * 64 / 2);
  shape = {SIZE_MAX, SIZE_MAX, 0, CU_AD_FORMAT_FLOAT, 4, 0};
  CHECK(array_bytes(shape) > uint64_t{1} << 56);  // refused instead of wrapping round
}
