// Device memory in chunks whose pages come and go under fixed addresses, as in the shim's mover.
#pragma once

#include "facts.h"

// `exportable`: can be shared with other processes by file descriptor, as the shim requests it.
inline CUmemAllocationProp chunk_properties(bool exportable) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = 0;
  if (exportable) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

inline size_t chunk_granularity(bool recommended) {
  const CUmemAllocationProp properties = chunk_properties(true);
  size_t bytes = 0;
  check(DRIVER(cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity")(
            &bytes, &properties,
            recommended ? CU_MEM_ALLOC_GRANULARITY_RECOMMENDED : CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "granularity");
  return bytes;
}

// The calls, looked up once, because they are timed.
struct ChunkCalls {
  decltype(&cuMemAddressReserve) reserve = DRIVER(cuMemAddressReserve, "cuMemAddressReserve");
  decltype(&cuMemAddressFree) free = DRIVER(cuMemAddressFree, "cuMemAddressFree");
  decltype(&cuMemCreate) create = DRIVER(cuMemCreate, "cuMemCreate");
  decltype(&cuMemRelease) release = DRIVER(cuMemRelease, "cuMemRelease");
  decltype(&cuMemMap) map = DRIVER(cuMemMap, "cuMemMap");
  decltype(&cuMemUnmap) unmap = DRIVER(cuMemUnmap, "cuMemUnmap");
  decltype(&cuMemSetAccess) set_access = DRIVER(cuMemSetAccess, "cuMemSetAccess");
};

// A range of addresses, and the chunks mapped there.
class Chunks {
 public:
  Chunks(size_t bytes, size_t chunk_bytes, bool exportable)
      : chunk_(chunk_bytes),
        handles_(bytes / chunk_bytes),
        properties_(chunk_properties(exportable)) {
    check(calls_.reserve(&at_, bytes_of_all(), 0, 0, 0), "cuMemAddressReserve");
  }
  size_t count() const { return handles_.size(); }
  size_t chunk_bytes() const { return chunk_; }
  size_t bytes_of_all() const { return chunk_ * handles_.size(); }
  CUdeviceptr at(size_t number) const { return at_ + number * chunk_; }
  void map(size_t number) {
    CUmemAccessDesc access = {};
    access.location = properties_.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check(calls_.create(&handles_[number], chunk_, &properties_, 0), "cuMemCreate");
    check(calls_.map(at(number), chunk_, 0, handles_[number], 0), "cuMemMap");
    check(calls_.set_access(at(number), chunk_, &access, 1), "cuMemSetAccess");
  }
  void unmap(size_t number) {
    check(calls_.unmap(at(number), chunk_), "cuMemUnmap");
    check(calls_.release(handles_[number]), "cuMemRelease");
  }
  void map_all() {
    for (size_t i = 0; i < count(); i++) map(i);
  }

 private:
  ChunkCalls calls_;
  size_t chunk_;
  std::vector<CUmemGenericAllocationHandle> handles_;
  CUmemAllocationProp properties_;
  CUdeviceptr at_ = 0;
};
