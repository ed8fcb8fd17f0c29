#include "mover.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "capture.h"
#include "channel.h"
#include "clock.h"
#include "driver.h"
#include "guard.h"
#include "homes.h"
#include "log.h"
#include "own_thread.h"
#include "regions.h"
#include "relaxed.h"
#include "transit.h"
#include "use.h"
#include "wait.h"

namespace tandem::shim::swap {
namespace {

using shm::SwapOutcome;

constexpr uint64_t kLookNs = 50'000;       // for users that leave and captures that end: at first
constexpr uint64_t kSeldomNs = 5'000'000;  // and last
// For memory that others hold: often at first, since a process that moves out makes room piece by
// piece.
constexpr uint64_t kRoomLookNs = 100'000;
constexpr uint64_t kRoomSeldomNs = 10'000'000;
constexpr uint64_t kStopNs = 50'000'000;
// While a pool is given back, the door is shut for no longer than this.
constexpr uint64_t kGiveBackNs = 5'000'000;
constexpr uint32_t kNobodys = 0;  // number of an order that the shim itself gave

enum class Kind : uint32_t { kTarget, kToFile, kGiveBack };

struct Order {
  uint32_t number = kNobodys;
  uint64_t target = shm::kNoLimit;
  Kind kind = Kind::kTarget;
  uint64_t pool = 0;  // that is to move to a file, or to be given back
};

// The newest order. Only the helper writes it; the serial, odd while it writes, tells readers of a
// change.
std::atomic<uint32_t> g_serial{0};
std::atomic<uint32_t> g_number{kNobodys};
std::atomic<uint64_t> g_target{shm::kNoLimit};
std::atomic<Kind> g_kind{Kind::kTarget};
std::atomic<uint64_t> g_pool{0};
// The file for the order: its number << 32 | descriptor; 0 = none. The thread that takes it out
// owns it.
std::atomic<uint64_t> g_file{0};
std::atomic<uint32_t> g_answered{kNobodys};  // the last order whose end the daemon was told
std::atomic<bool> g_running{false};

// Whether pages are moving already. Until they are, the helper may open the door again for a newer
// order: the GPU may be waiting for a thread that the door keeps out.
enum class Stage : uint32_t { kAtRest, kDraining, kMoving };
std::atomic<Stage> g_stage{Stage::kAtRest};

uint32_t newest(Order* order) {
  for (;;) {
    const uint32_t serial = g_serial.load(std::memory_order_acquire);
    // Acquire, so that the second read of the serial stays after these.
    order->number = g_number.load(std::memory_order_acquire);
    order->target = g_target.load(std::memory_order_acquire);
    order->kind = g_kind.load(std::memory_order_acquire);
    order->pool = g_pool.load(std::memory_order_acquire);
    if (!(serial & 1) && serial == g_serial.load(std::memory_order_relaxed)) return serial;
    cpu_pause();
  }
}

class Mover {
 public:
  explicit Mover(uint32_t serial, const Order& order) : serial_(serial), order_(order) {}

  SwapOutcome carry_out() {
    comes_back_ = order_.kind == Kind::kTarget && resident_bytes() <= order_.target;
    if (is_ending() && !comes_back_) return SwapOutcome::kNotDrained;
    if (is_shut() && !take_tables()) return SwapOutcome::kNotDrained;
    if (comes_back_) return swapped_bytes() == 0 ? SwapOutcome::kReached : move_in();
    if (order_.kind == Kind::kToFile) return to_file();
    if (order_.kind == Kind::kGiveBack) return give_back();
    return move_out();
  }

 private:
  [[nodiscard]] bool is_superseded() const {
    return g_serial.load() != serial_ || (is_ending() && !comes_back_);
  }

  static void pause(uint64_t ns) { g_clock.sleep_until_ns(g_clock.now_ns() + ns); }

  template <class Fact>
  bool wait_for(Fact fact) const {
    for (uint64_t ns = kLookNs; !fact(); ns = std::min(2 * ns, kSeldomNs)) {
      if (is_superseded()) return false;
      pause(ns);
    }
    return true;
  }

  // Takes the tables from threads that were let in while nothing moved.
  [[nodiscard]] bool take_tables() const {
    shut();
    return wait_for(is_empty);
  }

  // A capture goes on through the door, and must not be kept from ending.
  bool drain() {
    do {
      open_if_all_are_back();
      if (!wait_for([] { return !any_capture(); })) return false;
      g_stage.store(swapped_bytes() == 0 ? Stage::kDraining : Stage::kMoving);
      shut();
      if (!wait_for([] { return is_empty() || any_capture(); })) return false;
    } while (any_capture() || !is_empty());
    // If a newer order, or the end of the process, came after the stage was set, its thread has
    // opened the door.
    return !is_superseded() && transit_.wait_for_all_work();
  }

  // The helper may have opened the door meanwhile for a newer order.
  bool begin_moving() { return drain() && begin_alone(); }

  static bool begin_alone() {
    Stage stage = Stage::kDraining;
    return g_stage.compare_exchange_strong(stage, Stage::kMoving) || stage == Stage::kMoving;
  }

  void open_if_all_are_back() {
    if (swapped_bytes() != 0) return;
    g_stage.store(Stage::kAtRest);
    open();
  }

  // The index of the first piece that goes: the last pieces go first, until the target is met.
  [[nodiscard]] size_t first_to_go() const {
    uint64_t left = resident_bytes();
    size_t at = piece_count();
    for (; at > 0 && left > order_.target; --at) {
      if (piece(at - 1).can_go()) left -= piece(at - 1).bytes;
    }
    return at;
  }

  // A home is for a piece that goes; one that is on the device needs none.
  static void take_homes_back() {
    for (size_t i = 0; i < piece_count(); ++i) {
      Piece& each = piece(i);
      if (!each.resident || !each.home) continue;
      give_home_back(each.home);
      each.home = 0;
    }
  }

  SwapOutcome to_file() {
    uint64_t file = g_file.load();
    if (file >> 32 != order_.number || !g_file.compare_exchange_strong(file, 0))
      return SwapOutcome::kNotDrained;  // a newer order came first
    return transit_.to_file(order_.pool, static_cast<int>(file)) ? SwapOutcome::kReached
                                                                 : SwapOutcome::kFailed;
  }

  // Nobody waits for the result, so a thread that stays inside is not waited for long.
  SwapOutcome give_back() {
    if (any_capture() || swapped_bytes() != 0) return SwapOutcome::kNotDrained;
    g_stage.store(Stage::kDraining);
    shut();
    const uint64_t until_ns = g_clock.now_ns() + kGiveBackNs;
    const bool alone =
        wait_for([until_ns] { return is_empty() || g_clock.now_ns() >= until_ns; }) && is_empty() &&
        !any_capture() && begin_alone();
    if (alone) {
      take_homes_back();
      Transit::enter_any();  // without such a context, only a pool that was never pinned can go
    }
    open_if_all_are_back();
    if (!alone) return SwapOutcome::kNotDrained;
    return give_pool_back(order_.pool) ? SwapOutcome::kReached : SwapOutcome::kFailed;
  }

  static bool give_homes(size_t first) {
    take_homes_back();
    for (size_t i = first; i < piece_count(); ++i) {
      Piece& each = piece(i);
      if (!each.can_go()) continue;
      each.home = take_home(each.bytes);
      if (each.home) continue;
      take_homes_back();
      return false;
    }
    return true;
  }

  SwapOutcome move_out() {
    if (!begin_moving()) {
      open_if_all_are_back();
      return SwapOutcome::kNotDrained;
    }
    transit_.pin();
    const size_t first = first_to_go();
    if (!give_homes(first)) {
      open_if_all_are_back();
      return SwapOutcome::kNoHostRoom;
    }
    bool good = true;
    for (size_t i = piece_count(); good && i > first && !is_superseded(); --i) {
      if (piece(i - 1).can_go()) good = transit_.out(&piece(i - 1));
    }
    good = transit_.settle() && good;
    if (good) {
      open_if_all_are_back();
      return SwapOutcome::kReached;
    }
    order_.target = shm::kNoLimit;
    comes_back_ = true;
    move_in();
    return SwapOutcome::kFailed;
  }

  // A process that ends may not need the memory any more, and the driver's exit must not find the
  // mover inside.
  static bool may_stay() { return is_ending() && !is_wanted(); }

  // Brings in what the target allows. False: something did not come.
  bool bring_pieces() {
    bool good = true;
    for (size_t i = 0; good && i < piece_count() && !is_superseded(); ++i) {
      Piece& each = piece(i);
      if (each.resident || each.lost) continue;
      if (resident_bytes() + each.bytes > order_.target) break;
      good = !may_stay() && transit_.in(&each) == CUDA_SUCCESS;
    }
    return transit_.settle() && good;
  }

  // False: a newer order came.
  bool pause_outside(uint64_t ns) {
    if (!is_ending()) {
      pause(ns);
      return true;
    }
    transit_.leave_context();  // the context may be destroyed meanwhile
    set_ajar();
    pause(ns);
    return take_tables();
  }

  // Others may hold the room for as long as they like, or free it bit by bit.
  SwapOutcome move_in() {
    uint64_t ns = kRoomLookNs;
    while (!is_superseded()) {
      const uint64_t before = resident_bytes();
      if (bring_pieces() || is_superseded()) break;
      if (!may_stay() && transit_.is_device_lost()) {
        // By now every call returns the device's error, so nobody can find pages missing any more.
        g_stage.store(Stage::kAtRest);
        open();
        return SwapOutcome::kFailed;
      }
      if (resident_bytes() != before) {
        ns = kRoomLookNs;  // the copies took time: there may be room by now
        continue;
      }
      if (!pause_outside(ns)) break;
      ns = std::min(2 * ns, kRoomSeldomNs);
    }
    open_if_all_are_back();
    return SwapOutcome::kReached;
  }

  uint32_t serial_;
  Order order_;
  bool comes_back_ = false;
  Transit transit_;
};

void tell(uint32_t number, SwapOutcome outcome) {
  publish_bytes();
  if (number != kNobodys) g_answered.store(number);
  Channel* channel = g_channel.load(std::memory_order_acquire);
  if (!channel || number == kNobodys) return;
  const uint64_t done = number | uint64_t{static_cast<uint32_t>(outcome)} << 32;
  channel->state->swap.done.store(done, std::memory_order_release);
  ring_doorbell(*channel);
}

void* run(void*) {
  prctl(PR_SET_NAME, "tandem-swap", 0, 0, 0);
  const Reentry everything_is_ours;
  const RelaxedCapture relaxed;
  for (;;) {
    Order order;
    const uint32_t serial = newest(&order);
    const SwapOutcome outcome = Mover(serial, order).carry_out();
    set_ajar();
    tell(order.number, outcome);
    g_running.store(false);
    // A thread that orders now starts the next mover, unless this one is quicker.
    if (g_serial.load() == serial || g_running.exchange(true)) return nullptr;
  }
}

void say(const Order& order) {
  g_serial.fetch_add(1);
  g_number.store(order.number, std::memory_order_relaxed);
  g_target.store(order.target, std::memory_order_relaxed);
  g_kind.store(order.kind, std::memory_order_relaxed);
  g_pool.store(order.pool, std::memory_order_relaxed);
  g_serial.fetch_add(1);
}

// Nothing has been moved yet, so the door can open at once.
void let_in_if_draining() {
  Stage stage = Stage::kDraining;
  if (g_stage.compare_exchange_strong(stage, Stage::kAtRest)) open();
}

// A newer order came before the mover took the file.
void refuse_file() {
  const uint64_t file = g_file.exchange(0);
  if (!file) return;
  close(static_cast<int>(file));
  tell(static_cast<uint32_t>(file >> 32), SwapOutcome::kNotDrained);
}

void start(const Order& order) {
  say(order);
  let_in_if_draining();
  if (g_running.exchange(true) || start_own_thread(run)) return;
  g_running.store(false);
  refuse_file();
  tell(order.number, SwapOutcome::kFailed);
}

}  // namespace

void order(uint32_t number, uint64_t target) {
  if (!g_on.load(std::memory_order_relaxed)) {
    tell(number, SwapOutcome::kReached);  // there is nothing to move
    return;
  }
  refuse_file();
  start({number, target, Kind::kTarget, 0});
}

void order_to_file(uint32_t number, uint32_t since, uint64_t pool, int fd) {
  // What is at home may have changed since the copy began.
  if (!g_on.load(std::memory_order_relaxed) || !number || !pool || g_number.load() != since) {
    close(fd);
    tell(number, SwapOutcome::kNotDrained);
    return;
  }
  g_file.store(uint64_t{number} << 32 | static_cast<uint32_t>(fd));
  start({number, g_target.load(), Kind::kToFile, pool});
}

void order_to_give_back(uint32_t number, uint32_t since, uint64_t pool) {
  if (!g_on.load(std::memory_order_relaxed) || !number || !pool || g_number.load() != since) {
    tell(number, SwapOutcome::kNotDrained);
    return;
  }
  start({number, g_target.load(), Kind::kGiveBack, pool});
}

void bring_back() {
  if (!g_on.load(std::memory_order_relaxed)) return;
  if (g_target.load(std::memory_order_relaxed) == shm::kNoLimit) return;  // in progress, or done
  if (const uint64_t away = swapped_bytes(); away >> 20)
    say_mib_once("bringing", away,
                 "of memory back from the host without the daemon, once there is room");
  const uint32_t replaced = g_number.load();
  order(kNobodys, shm::kNoLimit);
  // The mover may not have taken that order yet, and a daemon that recovers waits for its end.
  if (replaced != kNobodys && g_answered.load() != replaced)
    tell(replaced, SwapOutcome::kNotDrained);
}

void end_moving() {
  begin_end();
  let_in_if_draining();
  // The driver's exit must not find the mover inside.
  const uint64_t start_ns = monotonic_ns();
  while (g_running.load() && !is_ajar() && monotonic_ns() - start_ns < kStopNs) usleep(50);
}

void forget_mover() {
  g_serial.store(0);
  g_number.store(kNobodys);
  g_target.store(shm::kNoLimit);
  g_kind.store(Kind::kTarget);
  g_pool.store(0);
  if (const uint64_t file = g_file.exchange(0)) close(static_cast<int>(file));
  g_answered.store(kNobodys);
  g_running.store(false);
  g_stage.store(Stage::kAtRest);
}

}  // namespace tandem::shim::swap
