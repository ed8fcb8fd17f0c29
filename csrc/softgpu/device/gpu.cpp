#include "gpu.h"

#include <algorithm>
#include <cmath>

namespace tandem::softgpu {
namespace {

constexpr double kLongestNs = 1e18;  // 31 years: keeps sums of times inside 64 bits

std::pair<uint32_t, uint64_t> key_of(const Context& context) {
  return {context.client->id, context.number};
}

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
    : device_(device),
      arbitration_(arbitration),
      timeline_(timeline),
      ledger_(device.memory_bytes) {}

void Gpu::add(Op* op) {
  switch (op->kind) {
    case OpKind::kKernel: return insert_in_order(&kernels_, op);
    case OpKind::kCopyHtoD: return insert_in_order(&copy_queues_[0], op);
    case OpKind::kCopyDtoH: return insert_in_order(&copy_queues_[1], op);
    default: return insert_in_order(&movers_, op);
  }
}

void Gpu::remove(Op* op, uint64_t now_ns) {
  const bool was_here = erase(&kernels_, op) || erase(&movers_, op) ||
                        erase(&copy_queues_[0], op) || erase(&copy_queues_[1], op);
  if (!was_here || !op->started) return;
  progress(op, now_ns);
  if (op->sms > 0 || op->kind != OpKind::kKernel) timeline_->part(*op, now_ns, true);
  op->sms = 0;
}

void Gpu::forget(const Context& context) {
  // The number may come back with another context, which must then pay for its switch.
  if (active_ == key_of(context)) active_->second = kNever;
}

std::vector<Op*> Gpu::collect(uint64_t now_ns) {
  std::vector<Op*> ended;
  const auto sweep = [&](std::vector<Op*>* ops) {
    const auto keep = std::stable_partition(
        ops->begin(), ops->end(), [&](Op* op) { return !take_if_ended(op, now_ns); });
    ended.insert(ended.end(), keep, ops->end());
    ops->erase(keep, ops->end());
  };
  sweep(&kernels_);
  if (!ended.empty()) kernel_ended_ = true;
  sweep(&movers_);
  sweep(&copy_queues_[0]);
  sweep(&copy_queues_[1]);
  return ended;
}

bool Gpu::take_if_ended(Op* op, uint64_t now_ns) {
  if (op->end_ns <= now_ns) {
    op->remaining = 0;
    op->since_ns = now_ns;
    op->end_ns = kNever;  // its work is done; from here on only the body is missing
  }
  const bool on_engine = op->kind != OpKind::kKernel || op->sms > 0;
  if (!op->started || !on_engine || op->remaining > 0) return false;
  if (op->needs_body && !op->body_done) return false;
  timeline_->part(*op, now_ns, true);
  op->sms = 0;
  return true;
}

std::vector<Op*> Gpu::schedule(uint64_t now_ns) {
  std::vector<Op*> started;
  arbitrate(now_ns);
  const std::vector<uint32_t> sms = allot_sms(now_ns);
  for (size_t i = 0; i < kernels_.size(); ++i) {
    if (sms[i] > 0) begin(kernels_[i], now_ns, &started);
    set_sms(kernels_[i], sms[i], now_ns);
  }
  for (Op* op : movers_) begin(op, now_ns, &started);
  feed_copy_engines(now_ns, &started);
  share(now_ns);
  note_busy(now_ns);
  return started;
}

void Gpu::begin(Op* op, uint64_t now_ns, std::vector<Op*>* started) {
  if (op->started) return;
  op->started = true;
  op->start_ns = op->since_ns = op->part_start_ns = now_ns;
  started->push_back(op);
}

// The first context after the active one, in the order of their numbers, that has a kernel.
const Context* Gpu::next_in_turn() const {
  const Context* first = nullptr;
  const Context* after = nullptr;
  for (const Op* op : kernels_) {
    const Context* context = op->context;
    if (active_ == key_of(*context)) continue;
    if (!first || key_of(*context) < key_of(*first)) first = context;
    if (active_ && key_of(*context) < *active_) continue;
    if (!after || key_of(*context) < key_of(*after)) after = context;
  }
  return after ? after : first;
}

bool Gpu::wants_compute(const ContextKey& key) const {
  return std::any_of(kernels_.begin(), kernels_.end(),
                     [&](const Op* op) { return key_of(*op->context) == key; });
}

void Gpu::arbitrate(uint64_t now_ns) {
  if (arbitration_.mode == Mode::kMps) return;
  const Context* next = next_in_turn();
  others_wait_ = next != nullptr;
  if (!others_wait_) kernel_ended_ = false;
  if (!next || now_ns < switch_until_ns_) return;
  if (!active_ || !wants_compute(*active_)) return give_compute_to(*next, now_ns);

  const bool running = std::any_of(kernels_.begin(), kernels_.end(),
                                   [](const Op* op) { return op->sms > 0; });
  const bool kernel_end = kernel_ended_ && !running;
  const bool slice_end = now_ns - slice_start_ns_ >= arbitration_.slice_ns;
  if (kernel_end || slice_end) give_compute_to(*next, now_ns);
}

void Gpu::give_compute_to(const Context& next, uint64_t now_ns) {
  const bool first_ever = !active_;
  for (Op* op : kernels_) set_sms(op, 0, now_ns);
  active_ = key_of(next);
  switch_until_ns_ = now_ns + (first_ever ? 0 : arbitration_.switch_ns);
  slice_start_ns_ = switch_until_ns_;
  kernel_ended_ = false;
  others_wait_ = next_in_turn() != nullptr;
  if (switch_until_ns_ > now_ns) timeline_->context_switch(next, now_ns, switch_until_ns_);
}

// SMs for each of kernels_, by rule 3. While others wait and a kernel of this slice has ended, what
// already runs may end but nothing new begins: the slice is over.
std::vector<uint32_t> Gpu::allot_sms(uint64_t now_ns) const {
  const bool exclusive = arbitration_.mode == Mode::kTime;
  std::vector<uint32_t> sms(kernels_.size(), 0);
  if (exclusive && now_ns < switch_until_ns_) return sms;
  uint32_t left = device_.sm_count;
  std::map<ContextKey, uint32_t> taken;
  for (size_t i = 0; i < kernels_.size() && left > 0; ++i) {
    const Op* op = kernels_[i];
    const ContextKey key = key_of(*op->context);
    if (exclusive && active_ != key) continue;
    if (exclusive && others_wait_ && kernel_ended_ && op->sms == 0) continue;
    const uint32_t cap =
        std::max(1u, (device_.sm_count * op->context->sm_percent + 50) / 100);
    uint32_t& mine = taken[key];
    sms[i] = std::min({sm_demand(device_, op->kernel), left, cap - std::min(cap, mine)});
    mine += sms[i];
    left -= sms[i];
  }
  return sms;
}

void Gpu::progress(Op* op, uint64_t now_ns) const {
  if (op->end_ns != kNever && op->duration_ns > 0) {
    op->remaining -= static_cast<double>(now_ns - op->since_ns) / op->duration_ns;
    // Until its end has come some work is left: rounding must not end it early.
    op->remaining = std::max(op->remaining, 1e-12);
  }
  op->since_ns = now_ns;
}

void Gpu::set_sms(Op* op, uint32_t sms, uint64_t now_ns) {
  if (op->sms == sms) return;
  progress(op, now_ns);
  if (op->sms > 0) {
    if (now_ns > op->part_start_ns) {
      timeline_->part(*op, now_ns, false);
      ++op->part;
    }
    op->end_ns = kNever;
  }
  op->sms = sms;
  op->duration_ns = -1;  // share() sets it
  op->part_start_ns = now_ns;
  op->part_remaining = op->remaining;
}

void Gpu::set_duration(Op* op, double duration_ns, uint64_t now_ns) {
  duration_ns = std::min(duration_ns, kLongestNs);
  if (op->remaining <= 0 || (op->end_ns != kNever && op->duration_ns == duration_ns)) return;
  progress(op, now_ns);
  op->duration_ns = duration_ns;
  // A whisker less before rounding up: 1 ms computed as 1000000.0000001 ns must not last a ns more.
  op->end_ns = now_ns + static_cast<uint64_t>(std::ceil(op->remaining * duration_ns - 1e-6));
}

void Gpu::feed_copy_engines(uint64_t now_ns, std::vector<Op*>* started) {
  for (std::vector<Op*>& queue : copy_queues_) {
    // A more urgent copy may have come in front of the running one; that one goes on.
    const auto running =
        std::find_if(queue.begin(), queue.end(), [](const Op* op) { return op->started; });
    if (running != queue.end() || queue.empty()) continue;
    Op* op = queue.front();
    begin(op, now_ns, started);
    const double bytes = static_cast<double>(op->bytes) * static_cast<double>(op->slowness);
    set_duration(op, bytes / device_.copy_bytes_per_s * 1e9, now_ns);
  }
}

// Rule 4: everything that runs gets its duration at the present shares of SMs and bandwidth.
void Gpu::share(uint64_t now_ns) {
  std::vector<Op*> ops;
  std::vector<BandwidthClaim> claims;
  for (Op* op : kernels_) {
    if (op->sms == 0 || op->remaining <= 0 || op->fault == FaultKind::kHang) continue;
    ops.push_back(op);
    claims.push_back({static_cast<double>(op->bytes),
                      compute_ns(device_, op->kernel, op->sms), static_cast<double>(op->sms)});
  }
  for (Op* op : movers_) {
    if (op->remaining <= 0) continue;
    ops.push_back(op);
    const double passes = op->kind == OpKind::kCopyDtoD ? 2 : 1;  // a copy reads and writes
    claims.push_back({passes * static_cast<double>(op->bytes), 0,
                      static_cast<double>(device_.sm_count)});
  }
  share_bandwidth(device_.bytes_per_s, claims);
  for (size_t i = 0; i < ops.size(); ++i) set_duration(ops[i], claims[i].duration_ns, now_ns);
}

void Gpu::note_busy(uint64_t now_ns) {
  bool compute = false;
  bool memory = !movers_.empty() || !copy_queues_[0].empty() || !copy_queues_[1].empty();
  for (const Op* op : kernels_) {
    if (op->sms == 0) continue;
    compute = true;
    memory = memory || op->bytes > 0;
  }
  compute_busy_.set(compute, now_ns);
  memory_busy_.set(memory, now_ns);
}

uint64_t Gpu::next_event_ns() const {
  uint64_t next = kNever;
  for (const Op* op : kernels_) next = std::min(next, op->end_ns);
  for (const Op* op : movers_) next = std::min(next, op->end_ns);
  for (const std::vector<Op*>& queue : copy_queues_) {
    for (const Op* op : queue) next = std::min(next, op->end_ns);
  }
  if (arbitration_.mode == Mode::kMps || kernels_.empty() || !active_) return next;
  const bool running = std::any_of(kernels_.begin(), kernels_.end(),
                                   [](const Op* op) { return op->sms > 0; });
  if (!running) return std::min(next, switch_until_ns_);
  if (others_wait_) next = std::min(next, slice_start_ns_ + arbitration_.slice_ns);
  return next;
}

}  // namespace tandem::softgpu
