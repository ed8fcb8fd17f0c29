#include "daemon/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>

#include "check.h"
#include "daemon/futex.h"
#include "fake_shim.h"

using namespace tandem::daemon;
namespace shm = tandem::shm;

namespace {

constexpr int kBase = F_SEAL_SHRINK | F_SEAL_GROW;

int seals(int fd) { return fcntl(fd, F_GET_SEALS); }

bool maps(int fd, int protection) {
  void* base = mmap(nullptr, 4096, protection, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return false;
  munmap(base, 4096);
  return true;
}

// Tells whether the thread is off the CPU: after its first line only the futex can block it.
bool sleeps(pid_t thread) {
  std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(stat, text);
  return text.find(") S ") != std::string::npos;
}

}  // namespace

TEST(each_memfd_is_private_and_sealed_as_documented) {
  const auto channel = make_channel();

  CHECK_EQ(seals(channel->command_fd()), kBase | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
  CHECK_EQ(seals(channel->state_fd()), kBase | F_SEAL_SEAL);
  CHECK_EQ(seals(channel->presence_fd()), kBase);
  for (const int fd : {channel->command_fd(), channel->state_fd(), channel->presence_fd()}) {
    struct stat status;
    CHECK_EQ(fstat(fd, &status), 0);
    CHECK_EQ(status.st_mode & 0777u, 0600u);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(ftruncate(fd, 0), -1);
    CHECK_EQ(errno, EPERM);
  }
}

TEST(a_receiver_reads_the_command_page_and_cannot_write_it) {
  const auto channel = make_channel(7, 3);

  CHECK(!maps(channel->command_fd(), PROT_READ | PROT_WRITE));
  CHECK_EQ(pwrite(channel->command_fd(), "x", 1, 0), -1);
  Mapping received;
  CHECK(!received.map(channel->command_fd(), shm::kCommandBytes, false));
  const auto& page = *static_cast<const shm::CommandPage*>(received.base());
  CHECK_EQ(page.header.magic, shm::kCommandMagic);
  CHECK_EQ(page.header.process_id, 7u);
  CHECK_EQ(page.header.job_id, 3u);
  CHECK_EQ(page.gate.gate.load(), 0u);
  CHECK_EQ(page.gate.flags.load(), shm::kFlagHonourPresence | shm::kFlagTelemetry);
  CHECK_EQ(page.gate.window_segments.load(), 0u);
  CHECK_EQ(page.gate.segment_ns.load(), 100'000u);
  CHECK_EQ(page.gate.linger_ns.load(), 300'000u);
  CHECK_EQ(page.gate.presence_mask.load(), 0u);
  CHECK_EQ(page.heartbeat.stale_ns.load(), 2'000'000'000u);
  CHECK_EQ(page.memory.limit_bytes.load(), shm::kNoLimit);
  CHECK_EQ(page.memory.resident_target_bytes.load(), shm::kNoLimit);
  CHECK_EQ(page.memory.lease_bytes.load(), shm::kNoLimit);
  CHECK_EQ(page.gate.mark_limit.load(), 0u);

  channel->set_memory_lease(1 << 21);
  CHECK_EQ(page.memory.lease_bytes.load(), 1u << 21);
  channel->set_window(2, 50'000);
  channel->set_memory_limit(1 << 20);
  CHECK_EQ(page.gate.window_segments.load(), 2u);
  CHECK_EQ(page.memory.limit_bytes.load(), 1u << 20);
}

TEST(presence_stays_writable_for_its_job_and_for_nobody_else) {
  const auto channel = make_channel();
  FakeShim job(*channel);

  CHECK(!channel->seal_presence());

  CHECK_EQ(seals(channel->presence_fd()), kBase | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
  CHECK(!maps(channel->presence_fd(), PROT_READ | PROT_WRITE));
  CHECK(maps(channel->presence_fd(), PROT_READ));
  job.presence().busy_until_ns.store(99);
  CHECK_EQ(channel->pages()->presence().busy_until_ns.load(), 99u);
  CHECK(!channel->seal_presence());  // sealing twice changes nothing
}

TEST(a_job_that_seals_presence_first_is_found_out) {
  const auto channel = make_channel();
  CHECK_EQ(fcntl(channel->presence_fd(), F_ADD_SEALS, F_SEAL_SEAL), 0);

  const Failure failure = channel->seal_presence();

  CHECK_EQ(failure.error, EPERM);
}

TEST(the_gate_word_counts_changes_and_only_changes) {
  const auto channel = make_channel();

  CHECK_EQ(channel->set_gate(false), 0u);
  CHECK_EQ(channel->set_gate(true), 3u);
  CHECK_EQ(channel->set_gate(true), 3u);
  CHECK_EQ(channel->set_gate(false), 4u);
}

TEST(another_limit_of_marks_is_a_change_of_the_gate_word_that_leaves_it_as_closed_as_it_was) {
  const auto channel = make_channel();
  const shm::CommandGate& gate = channel->pages()->command().gate;

  channel->set_mark_limit(shm::LimitKind::kStep, 5);
  CHECK_EQ(gate.mark_limit.load(), 5u);
  CHECK_EQ(gate.gate.load(), 2u);
  channel->set_gate(true);
  channel->set_mark_limit(shm::LimitKind::kPhase, 6);
  CHECK(shm::kind_of(gate.mark_limit) == shm::LimitKind::kPhase);
  CHECK_EQ(shm::number_of(gate.mark_limit), 6u);
  CHECK_EQ(gate.gate.load(), 7u);
}

TEST(opening_the_gate_wakes_a_waiter_on_a_read_only_map) {
  const auto channel = make_channel();
  const uint32_t held = channel->set_gate(true);
  Mapping received;
  CHECK(!received.map(channel->command_fd(), shm::kCommandBytes, false));
  const auto& gate = static_cast<const shm::CommandPage*>(received.base())->gate.gate;

  std::atomic<pid_t> waiter_id{0};
  std::thread waiter([&] {
    waiter_id.store(gettid());
    const FutexWaiter waiting{&gate, held};
    CHECK(futex_wait_any(&waiting, 1, monotonic_ns() + 60'000'000'000) == Wake::kChanged);
    CHECK(gate.load(std::memory_order_acquire) != held);
  });
  while (waiter_id.load() == 0 || !sleeps(waiter_id.load())) std::this_thread::yield();
  channel->set_gate(false);
  waiter.join();
}

TEST(leaving_wakes_a_waiter_at_a_closed_gate) {
  const auto channel = make_channel();
  const uint32_t held = channel->set_gate(true);
  const auto& gate = channel->pages()->command().gate.gate;
  std::atomic<pid_t> waiter_id{0};
  std::thread waiter([&] {
    waiter_id.store(gettid());
    const FutexWaiter waiting{&gate, held};
    CHECK(futex_wait_any(&waiting, 1, monotonic_ns() + 60'000'000'000) == Wake::kChanged);
  });
  while (waiter_id.load() == 0 || !sleeps(waiter_id.load())) std::this_thread::yield();
  channel->set_flags(shm::kFlagReleased);
  waiter.join();
}

TEST(pages_outlive_their_channel_while_somebody_holds_them) {
  auto channel = make_channel();
  FakeShim job(*channel);
  const std::shared_ptr<Pages> pages = channel->pages();

  channel.reset();

  job.state().marks.steps.store(5);
  CHECK_EQ(pages->state().marks.steps.load(), 5u);
}

TEST(a_refusing_kernel_is_reported_with_its_call) {
  rlimit before;
  CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit tight{0, before.rlim_max};
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);

  Failure failure;
  const auto channel = Channel::create(1, 0, &failure);

  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  CHECK(!channel);
  CHECK_EQ(failure.error, EMFILE);
  CHECK(std::string(failure.call) == "memfd_create");
}
