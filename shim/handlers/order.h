// Waits, queries, events and what else orders streams.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "driver.h"
#include "observe.h"
#include "slots.h"

namespace tandem::shim::handlers {

template <class Call>
CUresult wait_stream(CUstream stream) {
  return observed_wait(reinterpret_cast<uint64_t>(stream), [&] { return Call::real(stream); });
}
template <class Call>
CUresult wait_event(CUevent event) {
  return observed_wait(reinterpret_cast<uint64_t>(event), [&] { return Call::real(event); });
}
template <class Call>
CUresult wait_context() {
  return observed_context_wait([] { return Call::real(); });
}
template <class Call>
CUresult query_stream(CUstream stream) {
  return observed_query([&] { return Call::real(stream); });
}
template <class Call>
CUresult query_event(CUevent event) {
  return observed_query([&] { return Call::real(event); });
}
template <class Call, class... A>
CUresult record_event(CUevent event, CUstream stream, A... rest) {
  return ordered(shm::RecordKind::kEventRecord, normalise(stream, Call::kPerThread),
                 reinterpret_cast<uint64_t>(event),
                 [&] { return Call::real(event, stream, rest...); });
}
template <class Call>
CUresult wait_for_event(CUstream stream, CUevent event, unsigned flags) {
  return ordered(shm::RecordKind::kEventWait, normalise(stream, Call::kPerThread),
                 reinterpret_cast<uint64_t>(event),
                 [&] { return Call::real(stream, event, flags); });
}

}  // namespace tandem::shim::handlers
