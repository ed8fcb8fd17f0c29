// Queries about an address. Swappable memory answers like memory from cuMemAlloc, not like the
// pieces it is made of; while those are away, the query waits.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "driver.h"
#include "imports.h"
#include "swappable.h"
#include "use.h"

namespace tandem::shim::handlers {

// The range of memory that is virtual for the driver and linear for the program; no bytes: there is
// none.
inline swap::Range known_range(CUdeviceptr address) {
  const swap::Range own = swap::range_at(address);
  return own.bytes ? own : swap::shared_range_at(address);
}

template <class Call, class Address, class Size>
CUresult address_range(Address* base, Size* bytes, Address address) {
  const swap::Use use;
  const swap::Range range = known_range(address);
  if (!range.bytes) return Call::real(base, bytes, address);
  if (base) *base = static_cast<Address>(range.base);
  if (bytes) *bytes = static_cast<Size>(range.bytes);
  return CUDA_SUCCESS;
}

// `to` holds the driver's answer.
inline void correct_attribute(const swap::Range& range, CUpointer_attribute attribute, void* to) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(to) = reinterpret_cast<CUcontext>(range.context);
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *static_cast<CUdeviceptr*>(to) = range.base; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *static_cast<size_t*>(to) = range.bytes; break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      if (range.buffer_id) *static_cast<unsigned long long*>(to) = range.buffer_id;
      else g_driver.cuPointerGetAttribute(to, attribute, range.base);
      break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<bool*>(to) = true;  // the shim shares it (share.h)
      break;
    default: break;
  }
}

template <class Call>
CUresult pointer_attribute(void* to, CUpointer_attribute attribute, CUdeviceptr address) {
  const swap::Use use;
  const CUresult result = Call::real(to, attribute, address);
  if (result != CUDA_SUCCESS) return result;
  const swap::Range range = known_range(address);
  if (range.bytes) correct_attribute(range, attribute, to);
  return result;
}

template <class Call>
CUresult pointer_attributes(unsigned count, CUpointer_attribute* attributes, void** to,
                            CUdeviceptr address) {
  const swap::Use use;
  const CUresult result = Call::real(count, attributes, to, address);
  if (result != CUDA_SUCCESS) return result;
  const swap::Range range = known_range(address);
  for (unsigned i = 0; range.bytes && i < count; ++i)
    correct_attribute(range, attributes[i], to[i]);
  return result;
}

}  // namespace tandem::shim::handlers
