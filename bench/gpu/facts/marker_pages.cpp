// Tests whether the device can write a number into a host page that is registered like the shim's
// slots: by a stream memory operation, from several contexts, and visible through every mapping.
//
//   marker_pages KERNELS memfd|anonymous
#include <string.h>

#include "page.h"

namespace {

// Returns whether a word has the value once all earlier work in the stream has ended.
bool is_seen(CUstream stream, const Word& word, uint64_t value) {
  if (cu().cuStreamSynchronize(stream) != CUDA_SUCCESS) return false;
  return poll([&] { return word.load(std::memory_order_acquire) == value; }, 0.2);
}

Json written(CUstream stream, const Page& page, size_t line, const Word& seen_at) {
  const uint64_t value = 0x1122334455667788u + line;
  const CUresult result = write_value(stream, page.device_line(line), value);
  return Json().add("result", name_of(result)).add("seen", is_seen(stream, seen_at, value));
}

// Tests the same page from a context that did not register it.
Json from_another_context(const Page& page) {
  using Create = decltype(cuCtxCreate_v2);
  void* found = nullptr;
  CUdriverProcAddressQueryResult status;
  CUcontext context = nullptr;
  DRIVER(cuGetProcAddress_v2, "cuGetProcAddress")("cuCtxCreate", &found, 3020, 0, &status);
  const CUresult created = found ? ((Create*)found)(&context, 0, 0) : CUDA_ERROR_NOT_FOUND;
  if (created != CUDA_SUCCESS) return Json().add("result", name_of(created)).add("seen", false);
  return written(new_stream(), page, 3, page.line(3));
}

}  // namespace

int main(int, char** arguments) {
  make_module(arguments[1]);
  Page page(strcmp(arguments[2], "memfd") == 0);
  Json said;
  const CUresult registered = page.register_it();
  said.add("register", name_of(registered));
  said.add("register_again", name_of(page.register_it()));
  const CUresult pointed = page.find_device_pointer();
  said.add("device_pointer", name_of(pointed));
  said.add("same_address", page.device_line(0) == (CUdeviceptr)page.at());
  said.add("memory_operations_attribute",
           (double)attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS));
  if (registered == CUDA_SUCCESS && pointed == CUDA_SUCCESS) {
    const CUstream stream = new_stream();
    said.add("write", written(stream, page, 0, page.line(0)));
    if (Word* again = page.mapped_again())
      said.add("write_seen_by_others", written(stream, page, 1, again[8]));
    said.add("write_in_legacy_stream", written(nullptr, page, 2, page.line(2)));
    said.add("write_in_another_context", from_another_context(page));
    said.add("unregister", name_of(page.unregister()));
  }
  said.print();
  return 0;
}
