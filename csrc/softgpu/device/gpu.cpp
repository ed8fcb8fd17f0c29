#include "gpu.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "placement.h"

namespace tandem::softgpu {
namespace {

constexpr double kLongestNs = 1e18;  // 31 years: keeps sums of times inside 64 bits

void insert_in_order(std::vector<Op*>* ops, Op* op) {
  ops->insert(std::upper_bound(ops->begin(), ops->end(), op, RunsBefore()), op);
}

bool erase(std::vector<Op*>* ops, Op* op) {
  const auto found = std::find(ops->begin(), ops->end(), op);
  if (found == ops->end()) return false;
  ops->erase(found);
  return true;
}

}  // namespace

Gpu::Gpu(const DeviceInfo& device, const Arbitration& arbitration, Timeline* timeline)
    : device_(device), turns_(arbitration), timeline_(timeline), ledger_(device.memory_bytes) {}

void Gpu::add(Op* op) {
  switch (op->kind) {
    case OpKind::kKernel: return turns_.add(op);
    case OpKind::kCopyHtoD: return insert_in_order(&copy_queues_[0], op);
    case OpKind::kCopyDtoH: return insert_in_order(&copy_queues_[1], op);
    default: return insert_in_order(&movers_, op);
  }
}

void Gpu::remove(Op* op, uint64_t now_ns) {
  const bool was_here = turns_.remove(op) || erase(&movers_, op) || erase(&copy_queues_[0], op) ||
                        erase(&copy_queues_[1], op);
  if (!was_here || !op->started) return;
  progress(op, now_ns);
  if (op->sms > 0 || op->kind != OpKind::kKernel) timeline_->part(*op, now_ns, true);
  op->leave_sms();
}

void Gpu::learn_cost(Op* op, uint64_t now_ns) const {
  progress(op, now_ns);
  op->kernel.flops_per_block = op->submitted->flops_per_block;
  op->kernel.bytes_per_block = op->submitted->bytes_per_block;
  op->kernel.asleep_ns = op->submitted->asleep_ns;
  op->cost_pending = false;
}

std::vector<Op*> Gpu::collect(uint64_t now_ns) {
  std::vector<Op*> ended;
  for (Op* op : turns_.kernels()) {
    if (take_if_ended(op, now_ns)) ended.push_back(op);
  }
  turns_.kernels_ended(ended);
  const auto sweep = [&](std::vector<Op*>* ops) {
    const auto keep = std::stable_partition(ops->begin(), ops->end(),
                                            [&](Op* op) { return !take_if_ended(op, now_ns); });
    ended.insert(ended.end(), keep, ops->end());
    ops->erase(keep, ops->end());
  };
  sweep(&movers_);
  sweep(&copy_queues_[0]);
  sweep(&copy_queues_[1]);
  return ended;
}

bool Gpu::take_if_ended(Op* op, uint64_t now_ns) {
  if (op->end_ns <= now_ns) {
    op->remaining = 0;
    op->since_ns = now_ns;
    op->end_ns = kNever;  // its work is done; only the body may be missing
  }
  const bool on_engine = op->kind != OpKind::kKernel || op->sms > 0;
  if (!op->started || !on_engine || op->remaining > 0) return false;
  if (op->needs_body && !op->body_done) return false;
  timeline_->part(*op, now_ns, true);
  op->leave_sms();
  return true;
}

std::vector<Op*> Gpu::schedule(uint64_t now_ns) {
  std::vector<Op*> started;
  hand_over(now_ns);
  runnable_.clear();
  const std::vector<Op*>& kernels = turns_.kernels();
  for (Op* op : kernels) {
    if (turns_.may_run(now_ns)) runnable_.push_back(op);
  }
  const std::vector<SmSet> places = place_kernels(device_, kernels, runnable_);
  size_t placed = 0;
  for (Op* op : kernels) {
    const bool runs = placed < runnable_.size() && runnable_[placed] == op;
    const SmSet place = runs ? places[placed++] : SmSet();
    if (place.any()) begin(op, now_ns, &started);
    if (op->sms > 0 || place.any()) set_sms(op, place, now_ns);
  }
  for (Op* op : movers_) begin(op, now_ns, &started);
  feed_copy_engines(now_ns, &started);
  share(now_ns);
  note_busy(now_ns);
  return started;
}

void Gpu::hand_over(uint64_t now_ns) {
  const Context* next = turns_.next_due(now_ns);
  if (!next) return;
  for (Op* op : turns_.kernels()) {
    if (op->sms > 0) set_sms(op, SmSet(), now_ns);
  }
  turns_.give_to(*next, now_ns);
  const uint64_t until_ns = turns_.switch_until_ns();
  if (until_ns > now_ns) timeline_->context_switch(*next, now_ns, until_ns);
}

void Gpu::begin(Op* op, uint64_t now_ns, std::vector<Op*>* started) {
  if (op->started) return;
  op->started = true;
  op->start_ns = op->since_ns = op->part_start_ns = now_ns;
  started->push_back(op);
}

void Gpu::progress(Op* op, uint64_t now_ns) const {
  if (op->end_ns != kNever && op->duration_ns > 0) {
    op->remaining -= static_cast<double>(now_ns - op->since_ns) / op->duration_ns;
    // Some work remains until the end time is reached: rounding must not end the operation early.
    op->remaining = std::max(op->remaining, 1e-12);
  }
  if (op->cost_pending && op->sms > 0) op->held_ns += now_ns - op->since_ns;
  op->since_ns = now_ns;
}

void Gpu::set_sms(Op* op, const SmSet& place, uint64_t now_ns) {
  if (op->sm_set == place) return;
  progress(op, now_ns);
  if (op->sms > 0) {
    if (now_ns > op->part_start_ns) {
      timeline_->part(*op, now_ns, false);
      ++op->part;
    }
    op->end_ns = kNever;
  }
  op->sm_set = place;
  op->sms = count_of(place);
  op->duration_ns = -1;  // share() sets it
  op->part_start_ns = now_ns;
  op->part_remaining = op->remaining;
}

void Gpu::set_duration(Op* op, double duration_ns, uint64_t now_ns) {
  duration_ns = std::min(duration_ns, kLongestNs);
  if (op->remaining <= 0 || (op->end_ns != kNever && op->duration_ns == duration_ns)) return;
  progress(op, now_ns);
  op->duration_ns = duration_ns;
  if (op->held_ns > 0) {
    // Time spent running while the cost was unknown counts at the present share.
    const double done = duration_ns > 0 ? static_cast<double>(op->held_ns) / duration_ns : 1;
    op->remaining = std::max(op->remaining - done, 0.0);
    op->held_ns = 0;
  }
  // Subtract a little before rounding up: 1 ms computed as 1000000.0000001 ns must not last a ns
  // longer.
  op->end_ns = now_ns + static_cast<uint64_t>(std::ceil(op->remaining * duration_ns - 1e-6));
}

void Gpu::feed_copy_engines(uint64_t now_ns, std::vector<Op*>* started) {
  for (std::vector<Op*>& queue : copy_queues_) {
    // A more urgent copy may have been queued in front of the running one, which continues.
    const auto running =
        std::find_if(queue.begin(), queue.end(), [](const Op* op) { return op->started; });
    if (running != queue.end() || queue.empty()) continue;
    Op* op = queue.front();
    begin(op, now_ns, started);
    const double bytes = static_cast<double>(op->bytes) * static_cast<double>(op->slowness);
    set_duration(op, bytes / device_.copy_bytes_per_s * 1e9, now_ns);
  }
}

// Rule 4: gives everything that runs its duration at the present shares of SMs and bandwidth.
void Gpu::share(uint64_t now_ns) {
  std::vector<Op*> ops;
  std::vector<BandwidthClaim> claims;
  for (Op* op : turns_.kernels()) {
    if (op->sms == 0 || op->remaining <= 0 || op->fault == FaultKind::kHang) continue;
    if (op->cost_pending) continue;
    ops.push_back(op);
    claims.push_back({static_cast<double>(op->bytes),
                      std::max(compute_ns(device_, op->kernel, op->sms), op->kernel.asleep_ns),
                      static_cast<double>(op->sms)});
  }
  for (Op* op : movers_) {
    if (op->remaining <= 0) continue;
    ops.push_back(op);
    const double passes = op->kind == OpKind::kCopyDtoD ? 2 : 1;  // a copy reads and writes
    claims.push_back(
        {passes * static_cast<double>(op->bytes), 0, static_cast<double>(device_.sm_count)});
  }
  share_bandwidth(device_.bytes_per_s, claims);
  for (size_t i = 0; i < ops.size(); ++i) set_duration(ops[i], claims[i].duration_ns, now_ns);
}

void Gpu::note_busy(uint64_t now_ns) {
  std::vector<uint32_t> computing;  // connections, each once
  bool memory = !movers_.empty() || !copy_queues_[0].empty() || !copy_queues_[1].empty();
  for (const Op* op : turns_.kernels()) {
    if (op->sms == 0) continue;
    memory = memory || op->bytes > 0;
    const uint32_t connection = op->client->connection;
    const bool known = std::find(computing.begin(), computing.end(), connection) != computing.end();
    if (!known) computing.push_back(connection);
  }
  compute_busy_.set(!computing.empty(), now_ns);
  memory_busy_.set(memory, now_ns);
  for (size_t i = 0; i < copy_queues_.size(); ++i) {
    copy_busy_[i].set(!copy_queues_[i].empty(), now_ns);
  }
  note_computing(std::move(computing), now_ns);
}

// Touches only the clients that began or stopped computing: of many clients, few do at a time.
void Gpu::note_computing(std::vector<uint32_t> computing, uint64_t now_ns) {
  if (computing == computing_) return;
  computing_.swap(computing);
  for (const uint32_t connection : computing) {  // connections that were computing before
    const bool still =
        std::find(computing_.begin(), computing_.end(), connection) != computing_.end();
    const auto found = busy_by_.find(connection);
    if (!still && found != busy_by_.end()) found->second.set(false, now_ns);
  }
  for (const uint32_t connection : computing_) busy_by_[connection].set(true, now_ns);
}

void Gpu::forget_client(uint32_t connection) {
  busy_by_.erase(connection);
  computing_.erase(std::remove(computing_.begin(), computing_.end(), connection), computing_.end());
}

const BusyWindow* Gpu::compute_busy_of(uint32_t connection) const {
  const auto found = busy_by_.find(connection);
  return found == busy_by_.end() ? nullptr : &found->second;
}

uint64_t Gpu::next_event_ns() const {
  uint64_t next = kNever;
  for (const Op* op : turns_.kernels()) next = std::min(next, op->end_ns);
  for (const Op* op : movers_) next = std::min(next, op->end_ns);
  for (const std::vector<Op*>& queue : copy_queues_) {
    for (const Op* op : queue) next = std::min(next, op->end_ns);
  }
  return std::min(next, turns_.next_event_ns());
}

}  // namespace tandem::softgpu
