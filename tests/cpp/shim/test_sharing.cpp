// Another process opens memory that can be moved: only one of the same user can, and a failure
// leaves no trace.
#include <sys/wait.h>

#include <cstring>

#include "fake_gpu.h"
#include "imports.h"
#include "offers.h"
#include "regions.h"
#include "share.h"
#include "slabs.h"
#include "swappable.h"
#include "use.h"
#include "wire.h"

using namespace pages;
using fake_gpu::g_gpu;
namespace swap = tandem::shim::swap;

namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kContext = 0x1000;
constexpr int kLeftSomething = 255;

// A process whose memory may be moved.
class Owner {
 public:
  Owner() {
    swap::start_afresh();
    fake_gpu::make_once();
    channel_ = make_channel();
    channel_->features = wire::kFeatureSwap;
    CHECK(swap::is_wanted(channel_, 1));
  }

  CUdeviceptr allocate(uint64_t bytes) {
    const swap::Use use;
    CUdeviceptr at = 0;
    uint64_t held = 0;
    CHECK_EQ(bytes < swap::kSmallestRegion ? swap::pack(&at, bytes, kContext, 0)
                                           : swap::allocate_region(&at, bytes, kContext, 0, &held),
             CUDA_SUCCESS);
    std::memset(fake_gpu::as_pointer(at), 7, bytes);
    return at;
  }

  CUipcMemHandle offer(CUdeviceptr at) {
    const swap::Use use;
    CUipcMemHandle handle;
    CHECK_EQ(swap::offer(at, &handle), CUDA_SUCCESS);
    return handle;
  }

 private:
  Channel* channel_;
};

// Runs `body` in another process, answering its requests as those of `user`; returns its result.
template <class Body>
int in_another_process(Body body, uid_t user = getuid()) {
  const pid_t child = fork();
  if (child == 0) {
    swap::start_afresh();
    fake_gpu::make_once();
    _exit(body());
  }
  for (int status = 0;; usleep(50)) {
    swap::answer_openers(user);
    if (waitpid(child, &status, WNOHANG) != child) continue;
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
  }
}

CUresult open(const CUipcMemHandle& handle, swap::Range* range) {
  return swap::open_shared(range, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

bool nothing_is_left() {
  return g_gpu.reserved.empty() && g_gpu.physical.empty() && g_gpu.mapped.empty();
}

// The part of a result that fits into a process's exit status.
constexpr int told(CUresult result) { return static_cast<int>(result) & 0xff; }

int open_and_close(const CUipcMemHandle& handle) {
  swap::Range range;
  const CUresult result = open(handle, &range);
  if (result == CUDA_SUCCESS) CHECK_EQ(swap::close_shared(range.base), CUDA_SUCCESS);
  return nothing_is_left() ? told(result) : kLeftSomething;
}

}  // namespace

TEST(another_process_reads_and_writes_all_of_it) {
  Owner owner;
  for (const uint64_t bytes : {uint64_t{5000}, 3 * kMiB}) {
    const CUdeviceptr at = owner.allocate(bytes);
    const CUipcMemHandle handle = owner.offer(at);
    const int end = in_another_process([&] {
      swap::Range range;
      CHECK_EQ(open(handle, &range), CUDA_SUCCESS);
      CHECK_EQ(range.bytes, bytes);
      auto* const found = static_cast<char*>(fake_gpu::as_pointer(range.base));
      CHECK_EQ(found[0] + found[bytes - 1], 14);
      std::memset(found, 8, bytes);
      CHECK_EQ(swap::close_shared(range.base), CUDA_SUCCESS);
      return nothing_is_left() ? 0 : kLeftSomething;
    });
    CHECK_EQ(end, 0);
    const auto* const written = static_cast<const char*>(fake_gpu::as_pointer(at));
    CHECK_EQ(written[0] + written[bytes - 1], 16);
  }
}

TEST(two_allocations_of_one_slab_are_mapped_once) {
  Owner owner;
  const CUdeviceptr one = owner.allocate(300), other = owner.allocate(300);
  const CUipcMemHandle first = owner.offer(one), second = owner.offer(other);
  const int end = in_another_process([&] {
    swap::Range a, b;
    CHECK_EQ(open(first, &a), CUDA_SUCCESS);
    CHECK_EQ(open(second, &b), CUDA_SUCCESS);
    CHECK_EQ(b.base - a.base, other - one);
    CHECK_EQ(g_gpu.reserved.size(), 1u);
    CHECK_EQ(swap::close_shared(a.base), CUDA_SUCCESS);
    CHECK_EQ(swap::shared_range_at(a.base).bytes, 0u);
    CHECK_EQ(swap::shared_range_at(b.base + 299).base, b.base);
    CHECK_EQ(swap::close_shared(b.base), CUDA_SUCCESS);
    return nothing_is_left() ? 0 : kLeftSomething;
  });
  CHECK_EQ(end, 0);
}

TEST(another_user_gets_nothing) {
  Owner owner;
  const CUipcMemHandle handle = owner.offer(owner.allocate(3 * kMiB));
  const auto try_to_open = [&] { return open_and_close(handle); };
  CHECK_EQ(in_another_process(try_to_open, getuid() + 1), told(CUDA_ERROR_INVALID_HANDLE));
  CHECK_EQ(in_another_process(try_to_open), 0);
}

TEST(whoever_does_not_know_the_token_gets_nothing) {
  Owner owner;
  const CUipcMemHandle handle = owner.offer(owner.allocate(3 * kMiB));
  for (size_t byte = offsetof(swap::ShareHandle, token); byte < offsetof(swap::ShareHandle, bytes);
       ++byte) {
    CUipcMemHandle wrong = handle;
    wrong.reserved[byte] = static_cast<char>(wrong.reserved[byte] ^ 1);
    CHECK_EQ(in_another_process([&] { return open_and_close(wrong); }),
             told(CUDA_ERROR_INVALID_HANDLE));
  }
}

TEST(a_driver_that_fails_leaves_nothing_behind) {
  Owner owner;
  const CUipcMemHandle handle = owner.offer(owner.allocate(3 * kMiB));
  const auto with_a_failure = [&](int64_t at) {
    return in_another_process([&] {
      fake_gpu::plant(at);
      return open_and_close(handle);
    });
  };
  for (int64_t at = 1; at <= 4; ++at) {  // reserve, import, map, access
    CHECK_EQ(with_a_failure(at), told(fake_gpu::kFault));
  }
  CHECK_EQ(with_a_failure(0), 0);
}

TEST(what_the_owner_cannot_export_is_refused) {
  Owner owner;
  const CUipcMemHandle handle = owner.offer(owner.allocate(3 * kMiB));
  fake_gpu::plant(1);
  CHECK_EQ(in_another_process([&] { return open_and_close(handle); }),
           told(CUDA_ERROR_INVALID_HANDLE));
}

TEST(junk_on_the_socket_is_nobodys_question) {
  Owner owner;
  const CUipcMemHandle handle = owner.offer(owner.allocate(3 * kMiB));
  swap::ShareHandle given;
  std::memcpy(&given, &handle, sizeof(given));
  sockaddr_un address;
  const socklen_t size = swap::share_address(given.socket, &address);
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  for (const size_t bytes : {size_t{0}, size_t{1}, sizeof(swap::Question), size_t{4000}}) {
    char junk[4000] = {1};
    CHECK(sendto(fd, junk, bytes, 0, reinterpret_cast<sockaddr*>(&address), size) >= 0);
  }
  close(fd);
  CHECK_EQ(in_another_process([&] { return open_and_close(handle); }), 0);
}

TEST(a_socket_that_the_program_has_closed_is_made_again) {
  Owner owner;
  const CUipcMemHandle handle = owner.offer(owner.allocate(3 * kMiB));
  close(swap::openers_socket());
  CHECK(swap::openers_socket() >= 0);
  CHECK_EQ(in_another_process([&] { return open_and_close(handle); }), 0);
}

TEST(what_is_shared_can_be_moved_no_more) {
  Owner owner;
  const CUdeviceptr at = owner.allocate(3 * kMiB);
  owner.allocate(5 * kMiB);
  CHECK_EQ(swap::swappable_bytes(), 10 * kMiB);
  owner.offer(at);
  CHECK_EQ(swap::swappable_bytes(), 6 * kMiB);
  CHECK_EQ(swap::resident_bytes(), 6 * kMiB);
  const swap::Use use;
  CHECK_EQ(swap::release_if_ours(at), CUDA_SUCCESS);
  CHECK_EQ(swap::swappable_bytes(), 6 * kMiB);
  CHECK_EQ(swap::resident_bytes(), 6 * kMiB);
}
