// Green contexts: a subset of a device's SMs for streams of its primary context.
//
// The device process does not know green contexts: their streams are streams of the primary
// context, each confined to the SMs. The CUcontext of a green context (`view`) only stands for "the
// primary context, on these SMs"; a thread that has it current works in the primary context.
#pragma once

#include "runtime.h"
#include "sm_resource.h"

namespace softgpu {

// CUDA_ERROR_STREAM_DETACHED, which headers before 13.1 do not name.
constexpr auto kStreamDetached = static_cast<CUresult>(917);

struct GreenContext {
  Context* primary = nullptr;
  Context* view = nullptr;
  uint64_t id = 0;
  SmResource resource;
  std::vector<uint32_t> sms;  // indices, ascending; read by kernel bodies, never changed
  CUdevResource workqueue_config{};
  Stream* legacy = nullptr;  // its default stream
  bool alive = true;
};

GreenContext* find_green(CUgreenCtx handle);  // null if it is not a live one

// The context that does a context's work: itself, or the primary one whose view it is.
Context* home_of(Context* context);
// The context that programs see for the stream, which also says on which SMs it runs: a view or a
// plain context.
Context* context_of(const Stream& stream);
// A green context's own streams; for any other context all streams, including its green contexts'.
std::vector<Stream*> streams_of(const Context* context);
// The operations that have to end for all work given to the context to have ended.
std::vector<uint64_t> last_ops_of(const Context* context);

// Assigns a new stream to the green context.
void confine(Runtime& rt, Stream* stream, GreenContext* green);
// Orders a new stream after what cuCtxWaitEvent made its context wait for.
void wait_for_awaited(Runtime& rt, Stream* stream);

// The primary context is being destroyed; this ends its green contexts with it.
void end_green_contexts_of(Runtime& rt, const Context* primary);

}  // namespace softgpu
