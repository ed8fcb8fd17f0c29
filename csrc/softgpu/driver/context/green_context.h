// Green contexts: SMs of a device for streams of its primary context.
//
// A green context is no context of the device process: its streams are the primary context's, each
// confined to the SMs. The CUcontext of it (`view`) only stands for "the primary context, on these
// SMs"; a thread that has it current works in the primary one.
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

GreenContext* find_green(CUgreenCtx handle);  // null when it is not a live one

// Where the work of a context is done: itself, or the primary one it is the view of.
Context* home_of(Context* context);
// What programs know the stream's context as, which also says on which SMs: the view, or the context.
Context* context_of(const Stream& stream);
// Of a green context its own streams, of any other all, those of its green contexts included.
std::vector<Stream*> streams_of(const Context* context);
// What has to end for all work given to the context to have ended.
std::vector<uint64_t> last_ops_of(const Context* context);

// Makes a new stream one of the green context.
void confine(Runtime& rt, Stream* stream, GreenContext* green);
// A new stream begins after what cuCtxWaitEvent made its context wait for.
void wait_for_awaited(Runtime& rt, Stream* stream);

// The primary context is being destroyed: its green contexts go with it.
void end_green_contexts_of(Runtime& rt, const Context* primary);

}  // namespace softgpu
