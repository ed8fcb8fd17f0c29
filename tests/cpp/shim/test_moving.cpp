// Memory that moves, on a driver that fails wherever it can: no byte is lost, and nobody waits for
// ever.
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "fake_gpu.h"
#include "homes.h"
#include "imports.h"
#include "mover.h"
#include "offers.h"
#include "regions.h"
#include "slabs.h"
#include "swappable.h"
#include "use.h"
#include "wait.h"
#include "wire.h"

using namespace pages;
using fake_gpu::g_gpu;
namespace swap = tandem::shim::swap;

namespace {

constexpr uint64_t kMiB = 1 << 20;
// Step between the calls that are made to fail. Under TSan memory is slow, and for races some are
// enough.
#ifdef __SANITIZE_THREAD__
constexpr int64_t kNextCall = 7;
#else
constexpr int64_t kNextCall = 1;
#endif
constexpr uint64_t kContext = 0x1000;

uint64_t used() {
  const fake_gpu::Guard guard(g_gpu.lock);
  return g_gpu.used;
}

bool is_mover_alive() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name == "tandem-swap") return true;
  }
  return false;
}

// A process whose memory may be moved, with nothing on the device yet.
class Job {
 public:
  Job() {
    swap::start_afresh();
    fake_gpu::make_once();
    channel_ = make_channel();
    channel_->features = wire::kFeatureSwap;
    g_channel = channel_;
    CHECK(swap::is_wanted(channel_, 1));
  }
  ~Job() {
    fake_gpu::plant(0);
    swap::end_moving();
    move(0);                              // else the mover would wait until what is away is wanted
    while (is_mover_alive()) usleep(50);  // it looks once more at what the next Job resets
    for (const int fd : pools_) close(fd);
    g_channel = nullptr;
  }

  void give_pool(uint64_t bytes) {
    const int fd = memfd_create("pool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    pools_.push_back(dup(fd));
    CHECK(ftruncate(fd, static_cast<off_t>(bytes)) == 0);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    swap::add_pool(fd, bytes);
  }

  uint32_t order(uint64_t target) {
    swap::order(++orders_, target);
    return orders_;
  }

  shm::SwapOutcome await(uint32_t number) {
    shm::StatePage& state = *channel_->state;
    for (;;) {
      const uint32_t rung = state.control.doorbell.load(std::memory_order_acquire);
      const uint64_t done = state.swap.done.load(std::memory_order_acquire);
      if (static_cast<uint32_t>(done) == number) return static_cast<shm::SwapOutcome>(done >> 32);
      futex_wait(state.control.doorbell, rung, 1'000'000'000);
    }
  }

  shm::SwapOutcome move(uint64_t target) { return await(order(target)); }

  // Returns a file with the pool's current contents; without that, zeros would be read.
  [[nodiscard]] int copy_of(size_t pool) const {
    struct stat about{};
    CHECK(fstat(pools_[pool], &about) == 0);
    const int file = memfd_create("file", MFD_CLOEXEC);
    CHECK(sendfile(file, pools_[pool], nullptr, 0) == 0);
    off_t at = 0;
    while (at < about.st_size)
      CHECK(sendfile(file, pools_[pool], &at, static_cast<size_t>(about.st_size - at)) > 0);
    return file;
  }
  // As the daemon does: the file holds what was in the pool after the order before.
  uint32_t give_file(size_t pool, int fd, uint32_t late = 0) {
    const uint32_t since = orders_ - late;
    swap::order_to_file(++orders_, since, pool + 1, dup(fd));
    return orders_;
  }
  uint32_t ask_back(size_t pool, uint32_t late = 0) {
    const uint32_t since = orders_ - late;
    swap::order_to_give_back(++orders_, since, pool + 1);
    return orders_;
  }
  // Tells whether only this test still has the pool's memory.
  [[nodiscard]] bool is_given_up(size_t pool) const {
    struct stat about{};
    CHECK(fstat(pools_[pool], &about) == 0);
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      const bool of_pool = line.find("/memfd:pool") != std::string::npos;
      if (of_pool && line.find(" " + std::to_string(about.st_ino) + " ") != std::string::npos)
        return false;
    }
    return true;
  }
  [[nodiscard]] uint64_t filed_bytes() const { return channel_->state->swap.filed_bytes.load(); }

 private:
  std::vector<int> pools_;
  Channel* channel_;
  uint32_t orders_ = 0;
};

// Allocations and a model of their contents.
class Memory {
 public:
  explicit Memory(unsigned seed = 1) : random_(seed) {}

  bool add(uint64_t bytes) {
    const swap::Use use;
    CUdeviceptr at = 0;
    uint64_t held = 0;
    const CUresult result = bytes < swap::kSmallestRegion
                                ? swap::pack(&at, bytes, kContext, 0)
                                : swap::allocate_region(&at, bytes, kContext, 0, &held);
    if (result != CUDA_SUCCESS) return false;
    std::vector<char> content(bytes);
    fill(&content);
    fake_gpu::copy_bytes(fake_gpu::as_pointer(at), content.data(), bytes);
    parts_.push_back({at, std::move(content)});
    return true;
  }

  [[nodiscard]] CUdeviceptr address(size_t index) const { return parts_[index].at; }

  // Returns whether it was freed.
  bool drop(size_t index) {
    const swap::Use use(swap::Needs::kTables);
    const CUresult result = swap::release_if_ours(parts_[index].at);
    if (result != CUDA_SUCCESS) return false;
    parts_.erase(parts_.begin() + static_cast<long>(index));
    return true;
  }
  void drop_all() {
    while (size()) CHECK(drop(size() - 1));
    const swap::Use use(swap::Needs::kTables);
    swap::give_up_spare(0);
  }

  void rewrite(size_t index) {
    const swap::Use use;
    fill(&parts_[index].content);
    const Part& part = parts_[index];
    fake_gpu::copy_bytes(fake_gpu::as_pointer(part.at), part.content.data(), part.content.size());
  }

  bool is_right() {
    const swap::Use use;
    for (const Part& part : parts_) {
      if (std::memcmp(fake_gpu::as_pointer(part.at), part.content.data(), part.content.size()) != 0)
        return false;
    }
    return true;
  }

  [[nodiscard]] size_t size() const { return parts_.size(); }

 private:
  struct Part {
    CUdeviceptr at;
    std::vector<char> content;
  };

  // Copies from a random place in a longer string of random bytes.
  void fill(std::vector<char>* content) {
    static const std::vector<char> source = [] {
      std::mt19937_64 random;
      std::vector<char> bytes(40 * kMiB);
      for (size_t i = 0; i < bytes.size(); i += 8) {
        const uint64_t word = random();
        std::memcpy(&bytes[i], &word, 8);
      }
      return bytes;
    }();
    const size_t at = random_() % (source.size() - content->size());
    fake_gpu::copy_bytes(content->data(), &source[at], content->size());
  }

  std::mt19937_64 random_;
  std::vector<Part> parts_;
};

// Allocates more pieces than are in flight at a time.
void fill(Memory* memory) {
  for (int i = 0; i < 5; ++i) CHECK(memory->add(kMiB + 1000));
  for (const uint64_t bytes : {1u, 70'000u, 900'000u}) CHECK(memory->add(bytes));
}
constexpr uint64_t kFilled = 12 * kMiB;

}  // namespace

TEST(all_goes_and_comes_back) {
  Job job;
  Memory memory;
  fill(&memory);
  CHECK(memory.add(33 * kMiB));  // two pieces
  job.give_pool(kFilled + 34 * kMiB);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  CHECK_EQ(used(), 0u);
  CHECK(swap::is_shut());
  CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
  CHECK(!swap::is_shut());
  CHECK(memory.is_right());
  memory.drop_all();
  CHECK_EQ(used(), 0u);
  CHECK(g_gpu.reserved.empty());
}

// Three pools, none of which can hold a piece alone: every byte of them is used.
TEST(a_piece_whose_home_is_in_several_parts_comes_back_as_it_was) {
  int64_t failures = 0;
  for (bool hit = true; hit; ++failures) {
    Job job;
    Memory memory;
    CHECK(memory.add(8 * kMiB));
    CHECK(memory.add(4 * kMiB));
    for (const uint64_t bytes : {2u, 6u, 4u}) job.give_pool(bytes * kMiB);
    fake_gpu::plant(failures);
    const auto outcome = job.move(0);
    hit = failures == 0 || g_gpu.calls >= failures;
    if (failures == 0) CHECK_EQ(used(), 0u);
    if (!hit) CHECK(outcome == shm::SwapOutcome::kReached);
    CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
    fake_gpu::plant(0);
    CHECK(memory.is_right());
    memory.drop_all();
    CHECK_EQ(used(), 0u);
  }
  CHECK(failures > 10);
}

TEST(what_lies_in_a_file_comes_back_as_it_was) {
  Job job;
  Memory memory;
  fill(&memory);
  job.give_pool(4 * kMiB);
  job.give_pool(kFilled - 4 * kMiB);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  const int file = job.copy_of(1);
  CHECK(job.await(job.give_file(1, file)) == shm::SwapOutcome::kReached);
  CHECK(job.is_given_up(1));
  CHECK(!job.is_given_up(0));
  CHECK_EQ(job.filed_bytes(), kFilled - 4 * kMiB);
  CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
  CHECK(memory.is_right());
  CHECK_EQ(job.filed_bytes(), 0u);
  // What the file held has no room on the host until there is a new pool.
  CHECK(job.move(0) == shm::SwapOutcome::kNoHostRoom);
  job.give_pool(kFilled - 4 * kMiB);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  CHECK(job.await(job.give_file(2, file)) == shm::SwapOutcome::kReached);  // numbers continue
  close(file);
}

TEST(a_pool_with_nothing_in_it_is_given_back) {
  Job job;
  Memory memory;
  fill(&memory);
  job.give_pool(4 * kMiB);
  job.give_pool(kFilled - 4 * kMiB);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  CHECK(job.await(job.ask_back(1)) == shm::SwapOutcome::kNotDrained);
  CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
  CHECK(job.await(job.ask_back(1, 1)) == shm::SwapOutcome::kNotDrained);  // an order came later
  CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
  CHECK(job.await(job.ask_back(2)) == shm::SwapOutcome::kFailed);  // there is no such pool
  CHECK(!job.is_given_up(1));
  CHECK(job.await(job.ask_back(1)) == shm::SwapOutcome::kReached);
  CHECK(job.is_given_up(1));
  CHECK(!job.is_given_up(0));
  CHECK(!swap::is_shut());
  CHECK(job.await(job.ask_back(1)) == shm::SwapOutcome::kFailed);  // it is already gone
  // What it held has no room on the host until there is a new pool.
  CHECK(job.move(0) == shm::SwapOutcome::kNoHostRoom);
  CHECK(!swap::is_shut());
  job.give_pool(kFilled - 4 * kMiB);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
  CHECK(memory.is_right());
  for (const size_t pool : {0u, 2u}) {  // numbers continue
    CHECK(job.await(job.ask_back(pool)) == shm::SwapOutcome::kReached);
    CHECK(job.is_given_up(pool));
  }
  memory.drop_all();
}

TEST(a_pool_that_is_in_use_is_not_given_back) {
  Job job;
  Memory memory;
  CHECK(memory.add(4 * kMiB));
  job.give_pool(6 * kMiB);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
  {
    const swap::Use use;  // a call that stays inside is not waited for long
    CHECK(job.await(job.ask_back(0)) == shm::SwapOutcome::kNotDrained);
  }
  CHECK(!swap::is_shut());
  CHECK(memory.is_right());
  // Nor is a pool that the driver does not release.
  size_t pool = 0;
  int refused = 0;
  bool hit = true;
  for (int64_t failures = 1; hit; ++failures) {
    fake_gpu::plant(failures);
    const shm::SwapOutcome outcome = job.await(job.ask_back(pool));
    hit = g_gpu.calls >= failures;
    fake_gpu::plant(0);
    CHECK_EQ(job.is_given_up(pool), outcome == shm::SwapOutcome::kReached);
    CHECK(!swap::is_shut());
    CHECK(memory.is_right());
    if (outcome != shm::SwapOutcome::kReached) {
      CHECK(outcome == shm::SwapOutcome::kFailed);
      ++refused;
      continue;
    }
    job.give_pool(6 * kMiB);
    ++pool;
    CHECK(job.move(0) == shm::SwapOutcome::kReached);
    CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
  }
  CHECK_EQ(refused, 1);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
  CHECK(memory.is_right());
  memory.drop_all();
}

TEST(a_file_is_not_taken_for_what_may_have_changed_since) {
  Job job;
  Memory memory;
  fill(&memory);
  job.give_pool(kFilled);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  const int file = job.copy_of(0);
  CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
  memory.rewrite(0);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  CHECK(job.await(job.give_file(0, file, 2)) == shm::SwapOutcome::kNotDrained);
  swap::bring_back();  // as if the daemon had hung for a while
  CHECK(job.await(job.give_file(0, file)) == shm::SwapOutcome::kNotDrained);
  CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
  CHECK(memory.is_right());
  close(file);
}

TEST(a_file_that_is_too_short_or_for_no_pool_is_not_taken) {
  Job job;
  Memory memory;
  fill(&memory);
  job.give_pool(kFilled);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  const int file = job.copy_of(0);
  CHECK(job.await(job.give_file(1, file)) == shm::SwapOutcome::kFailed);
  CHECK(ftruncate(file, kFilled - 1) == 0);
  CHECK(job.await(job.give_file(0, file)) == shm::SwapOutcome::kFailed);
  CHECK_EQ(job.filed_bytes(), 0u);
  CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
  CHECK(memory.is_right());
  close(file);
}

// No daemon is needed, because the process has the file.
TEST(what_lies_in_a_file_comes_back_by_itself) {
  Job job;
  Memory memory;
  fill(&memory);
  job.give_pool(kFilled);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  const int file = job.copy_of(0);
  CHECK(job.await(job.give_file(0, file)) == shm::SwapOutcome::kReached);
  close(file);
  swap::bring_back();
  CHECK(memory.is_right());  // waits at the door
}

TEST(an_order_that_a_hung_daemons_memory_goes_before_is_answered) {
  Job job;
  Memory memory;
  fill(&memory);
  job.give_pool(kFilled);
  const uint64_t copied = swap::resident_bytes();
  fake_gpu::g_held = true;
  job.order(0);
  while (!swap::is_shut()) usleep(50);
  const uint32_t late = job.order(kMiB);
  swap::bring_back();
  fake_gpu::g_held = false;
  CHECK(job.await(late) == shm::SwapOutcome::kNotDrained);
  while (is_mover_alive()) usleep(50);
  CHECK_EQ(swap::resident_bytes(), copied);
  CHECK(memory.is_right());
  memory.drop_all();
}

TEST(one_failure_while_a_file_is_read_loses_nothing) {
  int64_t failures = 0;
  for (bool hit = true; hit; failures += kNextCall) {
    Job job;
    Memory memory;
    fill(&memory);
    job.give_pool(kFilled);
    CHECK(job.move(0) == shm::SwapOutcome::kReached);
    const int file = job.copy_of(0);
    fake_gpu::plant(failures + 1);
    job.await(job.give_file(0, file));
    CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
    hit = g_gpu.calls > failures;
    fake_gpu::plant(0);
    CHECK(memory.is_right());
    CHECK_EQ(job.filed_bytes(), 0u);
    close(file);
  }
  CHECK(failures > 30);
}

// The rest comes back, nobody waits, and work finds the lost memory on no device.
TEST(what_a_file_does_not_give_back_is_lost_alone) {
  Job job;
  Memory memory;
  for (int i = 0; i < 3; ++i) CHECK(memory.add(4 * kMiB));
  job.give_pool(12 * kMiB);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  const int file = job.copy_of(0);
  CHECK(job.await(job.give_file(0, file)) == shm::SwapOutcome::kReached);
  CHECK(ftruncate(file, 8 * kMiB) == 0);
  CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
  CHECK(!swap::is_shut());
  CHECK_EQ(used(), 8 * kMiB);
  CHECK_EQ(swap::swappable_bytes(), 8 * kMiB);
  CHECK_EQ(job.filed_bytes(), 0u);
  // What is left can still be moved.
  job.give_pool(8 * kMiB);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
  memory.drop_all();
  CHECK_EQ(used(), 0u);
  CHECK_EQ(swap::swappable_bytes(), 0u);
  CHECK(g_gpu.reserved.empty());
  close(file);
}

TEST(nothing_is_put_where_something_was_lost) {
  Job job;
  Memory memory;
  CHECK(memory.add(70'000));
  job.give_pool(2 * kMiB);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  const int file = job.copy_of(0);
  CHECK(job.await(job.give_file(0, file)) == shm::SwapOutcome::kReached);
  CHECK(ftruncate(file, 0) == 0);
  CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
  CHECK_EQ(used(), 0u);
  CHECK(memory.add(70'000));  // there would be room beside it
  CHECK_EQ(used(), 2 * kMiB);
  CHECK(memory.drop(0));
  CHECK(memory.is_right());
  CHECK(memory.drop(0));
  CHECK_EQ(used(), 2 * kMiB);  // one slab is kept, the one that can be used
  CHECK(memory.add(300));
  CHECK(memory.is_right());
  memory.drop_all();
  CHECK_EQ(used(), 0u);
  CHECK(g_gpu.reserved.empty());
  close(file);
}

// Each driver call fails in turn, until no call is left to fail.
TEST(one_failure_anywhere_loses_nothing) {
  int64_t failures = 0;
  for (bool hit = true; hit; failures += kNextCall) {
    Job job;
    Memory memory;
    fill(&memory);
    job.give_pool(kFilled);
    fake_gpu::plant(failures + 1);
    job.move(0);
    CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
    hit = g_gpu.calls > failures;
    fake_gpu::plant(0);
    CHECK(!swap::is_shut());
    CHECK(memory.is_right());
    CHECK_EQ(used(), kFilled);
    memory.drop_all();
    CHECK_EQ(used(), 0u);
  }
  CHECK(failures > 50);
}

// As if the device were lost: the door opens, so every waiter gets an error.
TEST(a_device_that_fails_for_good_keeps_nobody_waiting) {
  for (int64_t fail_at = 1; fail_at <= 100; fail_at += 11) {
    Job job;
    Memory memory;
    fill(&memory);
    job.give_pool(kFilled);
    fake_gpu::plant(fail_at, true);
    job.move(0);
    job.move(shm::kNoLimit);
    CHECK(!swap::is_shut());
  }
}

TEST(who_comes_back_takes_no_more_than_there_is) {
  Job job;
  Memory memory;
  fill(&memory);
  job.give_pool(kFilled);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  g_gpu.capacity = 6 * kMiB;
  const uint32_t back = job.order(shm::kNoLimit);
  while (used() < 6 * kMiB) usleep(50);
  CHECK(swap::is_shut());
  {
    const fake_gpu::Guard guard(g_gpu.lock);
    g_gpu.capacity = uint64_t{1} << 30;
  }
  CHECK(job.await(back) == shm::SwapOutcome::kReached);
  CHECK(memory.is_right());
  memory.drop_all();
}

// The last thing the process does is to look at its memory.
TEST(what_is_away_when_the_process_ends_comes_back_for_who_wants_it) {
  for (const bool ordered_before : {false, true}) {
    Job job;
    Memory memory;
    fill(&memory);
    job.give_pool(kFilled);
    CHECK(job.move(0) == shm::SwapOutcome::kReached);
    uint32_t back = 0;
    if (ordered_before) {
      g_gpu.capacity = 0;
      back = job.order(shm::kNoLimit);
    }
    swap::end_moving();
    g_gpu.capacity = uint64_t{1} << 30;
    if (!ordered_before) back = job.order(shm::kNoLimit);
    CHECK(memory.is_right());
    CHECK(job.await(back) == shm::SwapOutcome::kReached);
    CHECK(!swap::is_shut());
    CHECK(job.move(0) == shm::SwapOutcome::kNotDrained);  // nothing moves out any more
    CHECK_EQ(used(), kFilled);
    memory.drop_all();
  }
}

TEST(what_is_away_when_the_process_ends_is_freed_where_it_is) {
  Job job;
  Memory memory;
  fill(&memory);
  job.give_pool(kFilled);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  swap::end_moving();
  job.order(shm::kNoLimit);  // nobody waits for it
  const auto next_made = g_gpu.next;
  memory.drop_all();
  CHECK_EQ(g_gpu.next, next_made);
  CHECK(g_gpu.reserved.empty());
}

// Others occupy the room: a thread that needs its memory waits, a thread that frees some does not.
TEST(memory_is_freed_while_the_process_that_ends_waits_for_room) {
  Job job;
  Memory memory, wanted(2);
  fill(&memory);
  CHECK(wanted.add(3 * kMiB));
  job.give_pool(kFilled + 4 * kMiB);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  g_gpu.capacity = 4 * kMiB;
  swap::end_moving();
  const uint32_t back = job.order(shm::kNoLimit);
  std::thread thread([&] { CHECK(wanted.is_right()); });
  while (used() < 4 * kMiB) usleep(50);
  memory.drop_all();
  {
    const fake_gpu::Guard guard(g_gpu.lock);
    g_gpu.capacity = uint64_t{1} << 30;
  }
  thread.join();
  CHECK(job.await(back) == shm::SwapOutcome::kReached);
  CHECK_EQ(used(), 4 * kMiB);
  wanted.drop_all();
  CHECK_EQ(used(), 0u);
}

TEST(who_frees_all_that_is_away_opens_the_door) {
  Job job;
  Memory memory;
  fill(&memory);
  job.give_pool(kFilled);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  swap::end_moving();
  CHECK(swap::is_shut());
  memory.drop_all();
  CHECK(!swap::is_shut());
  CHECK(memory.add(kMiB));
  CHECK(memory.is_right());
}

TEST(the_end_of_the_process_lets_in_who_waits_for_an_order_that_waits_for_the_gpu) {
  Job job;
  Memory memory;
  fill(&memory);
  job.give_pool(kFilled);
  fake_gpu::g_held = true;
  const uint32_t out = job.order(0);
  while (!swap::is_shut()) usleep(50);
  swap::end_moving();
  CHECK(memory.is_right());
  fake_gpu::g_held = false;
  CHECK(job.await(out) == shm::SwapOutcome::kNotDrained);
  CHECK_EQ(used(), kFilled);
}

TEST(nobody_waits_for_memory_of_a_driver_that_has_ended) {
  Job job;
  Memory memory;
  fill(&memory);
  job.give_pool(kFilled);
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  swap::end_moving();
  g_driver.cuCtxGetCurrent = [](CUcontext*) { return CUDA_ERROR_DEINITIALIZED; };
  {
    const swap::Use use;
  }
  CHECK(swap::is_shut());
  g_driver.cuCtxGetCurrent = pages::current;
}

namespace {

// Gives `memory` a pool of 150 MiB and moves it there and back.
void move_through_a_large_pool(Job* job, Memory* memory) {
  for (int i = 0; i < 5; ++i) CHECK(memory->add(30 * kMiB));
  job->give_pool(150 * kMiB);
  CHECK(job->move(0) == shm::SwapOutcome::kReached);
  CHECK(job->move(shm::kNoLimit) == shm::SwapOutcome::kReached);
  CHECK(memory->is_right());
}

std::vector<uint64_t> pinned_mib() {
  std::vector<uint64_t> found;
  for (const auto& [at, bytes] : g_gpu.pinned) found.push_back(bytes / kMiB);
  return found;
}

}  // namespace

// While it pins memory, a driver keeps other processes out.
TEST(a_pool_is_pinned_piece_by_piece_and_no_copy_lies_across_two) {
  Job job;
  Memory memory;
  move_through_a_large_pool(&job, &memory);
  CHECK(pinned_mib() == (std::vector<uint64_t>{64, 64, 22}));
  // The first attempt to give it back fails, the second succeeds: then the driver no longer
  // objects.
  fake_gpu::plant(3, true);
  CHECK(job.await(job.ask_back(0)) != shm::SwapOutcome::kReached);
  CHECK(!job.is_given_up(0));
  CHECK_EQ(pinned_mib().size(), 2u);
  fake_gpu::plant(0);
  CHECK(job.await(job.ask_back(0)) == shm::SwapOutcome::kReached);
  CHECK(job.is_given_up(0));
  CHECK(g_gpu.pinned.empty());
  memory.drop_all();
}

TEST(a_pool_of_which_only_a_part_can_be_pinned_does_as_well) {
  Job job;
  Memory memory;
  g_gpu.most_pinned = 2;
  move_through_a_large_pool(&job, &memory);
  CHECK(pinned_mib() == (std::vector<uint64_t>{64, 64}));
  CHECK(job.await(job.ask_back(0)) == shm::SwapOutcome::kReached);
  CHECK(g_gpu.pinned.empty());
  memory.drop_all();
}

// They are slower, but nothing has to stay on the device.
TEST(homes_that_cannot_be_pinned_do_as_well) {
  Job job;
  Memory memory;
  fill(&memory);
  job.give_pool(kFilled);
  pages::g_seen.refuse_register = 1;
  const int tried = pages::g_seen.registrations.load();
  CHECK(job.move(0) == shm::SwapOutcome::kReached);
  CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
  pages::g_seen.refuse_register = 0;
  CHECK_EQ(pages::g_seen.registrations.load(), tried + 1);
  CHECK(memory.is_right());
  memory.drop_all();
}

// docs/adr/0008: a copy needs no thread, so the only thread maps meanwhile.
TEST(the_copy_engine_never_waits_for_mappings_that_are_no_slower_than_copies) {
  constexpr uint64_t kPieces = 16, kCopyNs = 100;
  for (const uint64_t map_ns : {1u, 50u, 100u, 150u}) {
    Job job;
    Memory memory;
    for (uint64_t i = 0; i < kPieces; ++i) CHECK(memory.add(kMiB + 1000));
    job.give_pool(kPieces * 2 * kMiB);
    for (const uint64_t target : {uint64_t{0}, shm::kNoLimit}) {
      const auto exchange = [](const fake_gpu::Times& times) {
        const fake_gpu::Guard guard(g_gpu.lock);
        return std::exchange(g_gpu.times, times);
      };
      exchange({kCopyNs, map_ns});
      CHECK(job.move(target) == shm::SwapOutcome::kReached);
      const fake_gpu::Times took = exchange({});
      if (map_ns <= kCopyNs) {
        CHECK_EQ(took.idle_ns, 0u);
      } else {  // mapping dominates, one piece after the other
        CHECK_EQ(took.thread_ns, kPieces * map_ns + kCopyNs);
      }
    }
    CHECK(memory.is_right());
    memory.drop_all();
  }
}

TEST(an_allocation_that_fails_half_way_takes_nothing) {
  for (int64_t failures = 1; failures <= 7; ++failures) {
    Job job;
    Memory memory;
    fake_gpu::plant(failures);
    const bool made = memory.add(33 * kMiB);
    CHECK_EQ(made, g_gpu.calls < failures);
    fake_gpu::plant(0);
    CHECK_EQ(used(), made ? 34 * kMiB : 0);
    CHECK_EQ(swap::resident_bytes(), used());
    memory.drop_all();
    CHECK(g_gpu.reserved.empty());
  }
}

TEST(random_allocations_moves_and_failures_against_a_model) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    Job job;
    Memory memory(seed);
    std::mt19937 random(seed);
    job.give_pool(8 * kMiB);  // not always enough
    uint64_t pool = 8 * kMiB;
    size_t pools = 1;
    for (int step = 0; step < 25; ++step) {
      if (random() % 4 == 0) fake_gpu::plant(1 + random() % 20);
      switch (random() % 7) {
        case 0: memory.add(kMiB + random() % (3 * kMiB)); break;
        case 1: memory.add(1 + random() % (kMiB - 1)); break;
        case 2:
          // A mapping that cannot be removed is a driver error that nobody can repair.
          fake_gpu::plant(0);
          if (memory.size()) CHECK(memory.drop(random() % memory.size()));
          break;
        case 3:
          if (memory.size()) memory.rewrite(random() % memory.size());
          break;
        case 4:
          if (pool >= 32 * kMiB || random() % 3 != 0) break;
          job.give_pool(4 * kMiB);
          pool += 4 * kMiB;
          ++pools;
          break;
        case 5:
          if (job.await(job.ask_back(random() % pools)) == shm::SwapOutcome::kReached)
            pool -= 4 * kMiB;
          break;
        default:
          // An order that may be ended by a newer one.
          job.order(random() % 2 ? 0 : random() % (8 * kMiB));
          if (random() % 2) job.move(random() % (8 * kMiB));
          CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
          fake_gpu::plant(0);
          CHECK(memory.is_right());
      }
      fake_gpu::plant(0);
      CHECK_EQ(used(), swap::resident_bytes());
    }
    CHECK(memory.is_right());
    memory.drop_all();
    CHECK_EQ(used(), 0u);
    CHECK_EQ(swap::swappable_bytes(), 0u);
  }
}

TEST(what_is_shared_is_opened_while_the_rest_moves) {
  Job job;
  Memory memory;
  CHECK(memory.add(3 * kMiB) && memory.add(5 * kMiB));
  job.give_pool(64 * kMiB);
  CUipcMemHandle handle;
  {
    const swap::Use use;
    CHECK_EQ(swap::offer(memory.address(0), &handle), CUDA_SUCCESS);
  }
  const pid_t child = fork();
  if (child == 0) {
    swap::start_afresh();
    fake_gpu::make_once();
    for (int i = 0; i < 20; ++i) {
      swap::Range range;
      CHECK_EQ(swap::open_shared(&range, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_SUCCESS);
      CHECK_EQ(swap::close_shared(range.base), CUDA_SUCCESS);
    }
    _exit(0);
  }
  std::atomic<bool> over{false};
  std::thread helper([&] {
    for (; !over; usleep(50)) swap::answer_openers();
  });
  int status = -1;
  while (waitpid(child, &status, WNOHANG) != child) {
    CHECK(job.move(0) == shm::SwapOutcome::kReached);
    CHECK_EQ(swap::swapped_bytes(), 6 * kMiB);
    CHECK(job.move(shm::kNoLimit) == shm::SwapOutcome::kReached);
    CHECK(memory.add(2 * kMiB) && memory.drop(2));
  }
  over = true;
  helper.join();
  CHECK_EQ(status, 0);
  CHECK(memory.is_right());
  memory.drop_all();
  CHECK_EQ(used(), 0u);
}
