// Copies, from all calls that ask for one.
#pragma once

#include "api.h"
#include "work.h"

namespace softgpu {

struct Rows {
  const void* source;
  void* destination;
  size_t bytes, height, source_pitch, destination_pitch;
};

// Finds the kind of memory behind a pointer; false if it must be a device pointer and is not.
bool side_of(Runtime& rt, const void* pointer, size_t bytes, bool must_be_device, Side* side);

// Reads the source now, whatever the stream has queued before this copy.
CUresult stage(Work* work);

// Makes the operation for a copy; its source is read when it runs.
Work copy_work(const Rows& rows, Side source, Side destination);

inline Rows line(const void* source, void* destination, size_t bytes) {
  return {source, destination, bytes, 1, bytes, bytes};
}
inline const void* from_device(CUdeviceptr pointer) {
  return reinterpret_cast<const void*>(pointer);
}
inline void* to_device(CUdeviceptr pointer) { return reinterpret_cast<void*>(pointer); }

// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: synchronous calls wait even if they need not.
bool synchronizes(Runtime& rt, CUdeviceptr pointer);

// Enqueues completely described work. Reads a pageable source before it returns, and waits if the
// call must: a synchronous one, or any into pageable memory.
CUresult enqueue_copy(StreamCall& on, Work work, const CopySides& sides, bool asynchronous);

}  // namespace softgpu
