// SUBMIT and BODY: an operation enters its stream, and its client says that it was executed.
#include <algorithm>
#include <cmath>

#include "engine.h"

namespace tandem::softgpu {
namespace {

constexpr size_t kMaxLiveOps = 1'000'000;  // a client beyond it is broken

bool sensible(double amount) { return std::isfinite(amount) && amount >= 0; }

uint64_t kernel_bytes(const Submit& message) {
  const double bytes = static_cast<double>(message.grid_blocks) * message.bytes_per_block;
  return bytes < 1e18 ? static_cast<uint64_t>(bytes) : uint64_t{1'000'000'000'000'000'000};
}

}  // namespace

const char* Engine::submit(Client* client, const Submit& message) {
  if (message.kind > static_cast<uint32_t>(OpKind::kMemOpWait)) return "an unknown operation kind";
  if (message.op <= client->last_op) return "an operation number that does not increase";
  if (!sensible(message.flops_per_block) || !sensible(message.bytes_per_block)) {
    return "flops or bytes that are not a number from 0";
  }
  if (client->ops.size() >= kMaxLiveOps) return "more operations than the device can queue";
  client->last_op = message.op;

  const auto stream = client->streams.find(message.stream);
  const bool known = stream != client->streams.end() && !stream->second.closing &&
                     stream->second.context->number == message.context;
  const uint32_t poison = known ? stream->second.context->poison : kInvalidHandle;
  if (poison != kSuccess) {
    client->events.add(Type::kDone, Done{{}, message.op, now_ns_, now_ns_, poison, 0});
    return nullptr;
  }

  std::unique_ptr<Op> op = make_op(&stream->second, message);
  for (uint32_t i = 0; i < message.dep_count; ++i) {
    const auto dep = client->ops.find(message.dep[i]);
    if (dep == client->ops.end()) continue;
    dep->second->dependents.push_back(op.get());
    ++op->pending_deps;
  }
  stream->second.queue.push_back(op.get());
  Op* submitted = op.get();
  client->ops.emplace(submitted->id, std::move(op));
  make_ready_if_free(submitted);
  return nullptr;
}

std::unique_ptr<Op> Engine::make_op(Stream* stream, const Submit& message) {
  auto op = std::make_unique<Op>();
  op->id = message.op;
  op->stream = stream;
  op->context = stream->context;
  op->client = stream->context->client;
  op->kind = static_cast<OpKind>(message.kind);
  op->name = name_of(message.name);
  op->needs_body = message.needs_body != 0;
  op->bytes = message.bytes;
  if (op->kind == OpKind::kKernel) {
    op->kernel = {message.grid_blocks, message.block_threads, message.flops_per_block,
                  message.bytes_per_block};
    op->bytes = kernel_bytes(message);
    op->fault = faults_.next_kernel(op->name);
    // A kernel that fails or hangs writes nothing.
    if (op->fault != FaultKind::kNone) op->needs_body = false;
  } else if (op->kind == OpKind::kCopyHtoD || op->kind == OpKind::kCopyDtoH) {
    op->slowness = faults_.next_copy_factor();
  }
  return op;
}

const char* Engine::body(Client* client, const Body& message) {
  const auto found = client->ops.find(message.op);
  if (found == client->ops.end()) return nullptr;  // cancelled meanwhile
  Op* op = found->second.get();
  if (!op->started || !op->needs_body || op->body_done) return "a BODY that nothing STARTed";
  if (waits_.count(op)) return "a second BODY for one START";
  if (op->kind == OpKind::kMemOpWait && message.wait && message.status == kSuccess) {
    // Ask again soon, then ever more rarely: an eighth of the time it has waited, 20 us to 1 ms.
    const uint64_t waited_ns = now_ns_ - op->start_ns;
    op->retry_ns = now_ns_ + std::min<uint64_t>(std::max<uint64_t>(waited_ns / 8, 20'000),
                                                1'000'000);
    waits_.insert(op);
    return nullptr;
  }
  op->body_done = true;
  op->status = message.status;
  if (op->kind >= OpKind::kHostFunc) instant_.insert(op);
  return nullptr;
}

}  // namespace tandem::softgpu
