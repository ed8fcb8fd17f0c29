// Copies, however they are asked for.
#pragma once

#include "api.h"
#include "work.h"

namespace softgpu {

struct Rows {
  const void* source;
  void* destination;
  size_t bytes, height, source_pitch, destination_pitch;
};

// What a pointer is; false when a device pointer was needed and this is none.
bool side_of(Runtime& rt, const void* pointer, size_t bytes, bool must_be_device, Side* side);

// Reads the source now, whatever the stream has before this copy.
CUresult stage(Work* work);

// The operation for a copy; its source is read when it runs.
Work copy_work(const Rows& rows, Side source, Side destination);

inline Rows line(const void* source, void* destination, size_t bytes) {
  return {source, destination, bytes, 1, bytes, bytes};
}
inline const void* from_device(CUdeviceptr pointer) {
  return reinterpret_cast<const void*>(pointer);
}
inline void* to_device(CUdeviceptr pointer) { return reinterpret_cast<void*>(pointer); }

// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: synchronous calls wait even where they need not.
bool synchronizes(Runtime& rt, CUdeviceptr pointer);

// Of work that is described completely. Reads a pageable source before it returns and waits where
// the call has to: a synchronous one, and any into pageable memory.
CUresult enqueue_copy(StreamCall& on, Work work, const CopySides& sides, bool asynchronous);

}  // namespace softgpu
