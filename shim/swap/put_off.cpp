#include "put_off.h"

#include <atomic>

#include "capture.h"
#include "driver.h"
#include "memory.h"
#include "swappable.h"

namespace tandem::shim::swap {
namespace {

using holdings::Entry;
using holdings::Kind;

constexpr uint32_t kPutOff = 0;     // as `count` of an entry: the program holds it no more
std::atomic<bool> g_any{false};     // relaxed: says whether to look

bool is_out_of(Kind kind) { return kind == Kind::kLinear || kind == Kind::kPacked; }

// What the driver says to a free that it need not wait for, which the calling thread may not make beside
// some captures (CUDA driver API, cuThreadExchangeStreamCaptureMode); they are invalid then, as by its own.
CUresult ask_driver() {
  CUdeviceptr probe = 0;
  const CUresult result = g_driver.cuMemAlloc_v2(&probe, 1);
  if (result == CUDA_SUCCESS) return g_driver.cuMemFree_v2(probe);
  return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : result;
}

Entry take_one() {
  const holdings::Locked table;
  Entry one;
  table->for_each([&one](const Entry& entry) {
    if (is_put_off(entry)) one = entry;
  });
  if (one.kind != Kind::kNone) table->erase(table->find(one.kind, one.key));
  return one;
}

}  // namespace

bool is_put_off(const Entry& entry) { return is_out_of(entry.kind) && entry.count == kPutOff; }

CUresult put_off(const Entry& entry, bool in_order) {
  const CUresult allowed = in_order ? CUDA_SUCCESS : ask_driver();
  if (allowed != CUDA_SUCCESS) return allowed;
  Entry kept = entry;
  kept.count = kPutOff;
  holdings::put(kept);
  g_any.store(true, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

void free_what_was_put_off() {
  if (!g_any.load(std::memory_order_relaxed) || any_capture()) return;
  g_any.store(false, std::memory_order_relaxed);
  for (Entry entry = take_one(); entry.kind != Kind::kNone; entry = take_one()) {
    if (release_if_ours(entry.key) == CUDA_SUCCESS) {
      if (entry.kind == Kind::kLinear) memory::give_back(entry.device, entry.bytes);
      continue;
    }
    holdings::put(entry);  // of a lost device, say: it goes with its context
    g_any.store(true, std::memory_order_relaxed);
    return;
  }
}

}  // namespace tandem::shim::swap
