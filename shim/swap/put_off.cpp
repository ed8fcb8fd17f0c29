#include "put_off.h"

#include <atomic>
#include <initializer_list>

#include "capture.h"
#include "driver.h"
#include "memory.h"
#include "regions.h"
#include "swappable.h"

namespace tandem::shim::swap {
namespace {

using holdings::Entry;
using holdings::Kind;

constexpr uint32_t kPutOff = 0;  // as `count` of an entry: the program no longer holds it
// Whether to look: relaxed; set after the entry is in the table, cleared with the table's lock
// held.
std::atomic<bool> g_any{false};

bool is_out_of(Kind kind) { return kind == Kind::kLinear || kind == Kind::kPacked; }

// Returns the driver's answer to a free that need not wait. Beside some captures the calling thread
// may not make one (CUDA driver API, cuThreadExchangeStreamCaptureMode); that invalidates them, as
// the program's own free would.
CUresult ask_driver() {
  CUdeviceptr probe = 0;
  const CUresult result = g_driver.cuMemAlloc_v2(&probe, 1);
  if (result == CUDA_SUCCESS) return g_driver.cuMemFree_v2(probe);
  return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : result;
}

Entry find_one(uint64_t context) {
  const holdings::Locked table;
  Entry one;
  bool any = false;
  table->for_each([&](const Entry& entry) {
    if (!is_put_off(entry)) return;
    any = true;
    if (!context || entry.owner == context) one = entry;
  });
  if (!any) g_any.store(false, std::memory_order_relaxed);
  return one;
}

// False: another thread has it, or it went with its context.
bool take(const Entry& wanted) {
  const holdings::Locked table;
  Entry* const found = table->find(wanted.kind, wanted.key);
  if (!found || !is_put_off(*found)) return false;
  table->erase(found);
  return true;
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

bool is_put_off(uint64_t address) {
  if (!g_any.load(std::memory_order_relaxed)) return false;
  const holdings::Locked table;
  for (const Kind kind : {Kind::kLinear, Kind::kPacked}) {
    const Entry* const entry = table->find(kind, address);
    if (entry && is_put_off(*entry)) return true;
  }
  return false;
}

// The entry stays in the table, and the memory in place, until its context has been waited for.
bool free_what_was_put_off(uint64_t context) {
  if (!g_any.load(std::memory_order_relaxed)) return false;
  bool has_freed = false;
  while (!any_capture()) {
    const Entry entry = find_one(context);
    if (entry.kind == Kind::kNone) break;
    if (wait_for_work(entry.owner) != CUDA_SUCCESS) break;  // it goes with its context
    if (!take(entry)) continue;
    release_unused(entry.key);
    if (entry.kind == Kind::kLinear) memory::give_back(entry.device, entry.bytes);
    has_freed = true;
  }
  return has_freed;
}

}  // namespace tandem::shim::swap
