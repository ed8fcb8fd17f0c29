// SUBMIT and BODY: an operation enters its stream; its client reports that its body was executed.
#include <algorithm>
#include <cmath>

#include "engine.h"

namespace tandem::softgpu {
namespace {

bool sensible(double amount) { return std::isfinite(amount) && amount >= 0; }

}  // namespace

const char* Engine::submit(Client* client, const Submit& message) {
  if (message.kind > static_cast<uint32_t>(OpKind::kMemOpWait)) return "an unknown operation kind";
  if (message.op <= client->last_op) return "an operation number that does not increase";
  if (!sensible(message.flops_per_block) || !sensible(message.bytes_per_block)) {
    return "flops or bytes that are not a number from 0";
  }
  if (client->ops.size() >= kMaxLiveOps) return "more operations than the device can queue";
  client->last_op = message.op;

  const auto found = client->streams.find(message.stream);
  const bool known = found != client->streams.end() && !found->second.closing &&
                     found->second.context->number == message.context;
  const uint32_t poison = known ? found->second.context->poison : kInvalidHandle;
  if (poison != kSuccess) {
    tell(client, Type::kDone, Done{{}, message.op, now_ns_, now_ns_, poison, 0});
    return nullptr;
  }

  Stream* stream = &found->second;
  Pending* submitted = make_pending(stream, message);
  if (const char* wrong = depend(submitted, client, message)) {
    forget(submitted);
    return wrong;
  }
  (stream->first ? stream->last->next : stream->first) = submitted;
  stream->last = submitted;
  client->ops.insert(submitted);
  begin_first(stream);
  return nullptr;
}

Pending* Engine::make_pending(Stream* stream, const Submit& message) {
  Pending* submitted = pending_.take();
  *submitted = Pending{};
  submitted->id = message.op;
  submitted->stream = stream;
  submitted->kind = static_cast<uint8_t>(message.kind);
  const std::string_view name(message.name, strnlen(message.name, kNameBytes));
  submitted->name = names_.hold(name);
  submitted->needs_body = message.needs_body != 0;
  submitted->amount = message.bytes;
  submitted->slowness = 1;
  const int32_t priority = message.flags & kOwnPriority ? message.priority : stream->priority;
  submitted->priority = static_cast<int8_t>(std::clamp(priority, -128, 127));
  const auto kind = static_cast<OpKind>(message.kind);
  if (kind == OpKind::kKernel) {
    submitted->amount = message.grid_blocks;
    submitted->block_threads = message.block_threads;
    submitted->flops_per_block = message.flops_per_block;
    submitted->bytes_per_block = message.bytes_per_block;
    submitted->fitting_blocks = static_cast<uint16_t>(std::min(message.blocks_per_sm, kMaxSms));
    submitted->least_sms = static_cast<uint16_t>(std::min(message.least_sms, kMaxSms));
    submitted->fault = faults_.next_kernel(name);
    // A kernel that fails or hangs writes nothing, so its body is not executed.
    const FaultKind fault = submitted->fault;
    const bool completes = fault == FaultKind::kNone || fault == FaultKind::kEccCorrected;
    if (!completes) submitted->needs_body = false;
    submitted->cost_pending = submitted->needs_body && message.needs_body == kBodyTellsCost;
  } else if (kind == OpKind::kCopyHtoD || kind == OpKind::kCopyDtoH) {
    const Faults::Copy copy = faults_.next_copy();
    submitted->slowness = static_cast<uint32_t>(std::min<uint64_t>(copy.factor, UINT32_MAX));
    if (copy.fails) submitted->fault = FaultKind::kCopyFailed;
  }
  return submitted;
}

const char* Engine::body(Client* client, const Body& message) {
  Pending* submitted = client->ops.find(message.op);
  if (!submitted) return nullptr;  // cancelled meanwhile
  if (!submitted->asked || submitted->body_done) return "a BODY that nothing STARTed";
  const bool is_first = submitted->stream->first == submitted;
  Op* op = is_first ? submitted->stream->op : nullptr;
  if (op && waits_.count(op)) return "a second BODY for one START";
  if (op && op->kind == OpKind::kMemOpWait && message.wait && message.status == kSuccess) {
    // Ask again soon, then less and less often: after an eighth of the time it has waited, 20 us to
    // 1 ms.
    const uint64_t waited_ns = now_ns_ - op->start_ns;
    op->retry_ns =
        now_ns_ + std::min<uint64_t>(std::max<uint64_t>(waited_ns / 8, 20'000), 1'000'000);
    waits_.insert(op);
    return nullptr;
  }
  if (submitted->cost_pending) {
    if (!sensible(message.flops) || !sensible(message.bytes) || !sensible(message.asleep_ns)) {
      return "a BODY with flops, bytes or a time that are not a number from 0";
    }
    const auto blocks = static_cast<double>(std::max<uint64_t>(submitted->amount, 1));
    submitted->flops_per_block = message.flops / blocks;
    submitted->bytes_per_block = message.bytes / blocks;
    submitted->asleep_ns = message.asleep_ns;
    submitted->cost_pending = false;
    if (op) {
      op->bytes = kernel_bytes(*submitted);
      gpus_[op->context->gpu].learn_cost(op, now_ns_);
    }
  }
  submitted->body_done = true;
  submitted->status = message.status;
  if (!op) return nullptr;  // the body was requested ahead
  op->body_done = true;
  op->status = message.status;
  if (op->kind >= OpKind::kHostFunc) instant_.insert(op);
  return nullptr;
}

}  // namespace tandem::softgpu
