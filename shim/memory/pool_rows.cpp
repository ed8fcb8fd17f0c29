#include "pool_rows.h"

#include <sched.h>

#include <algorithm>

#include "admission.h"
#include "driver.h"
#include "holdings.h"
#include "line.h"
#include "memory.h"
#include "place.h"
#include "relaxed.h"

namespace tandem::shim::pools {

std::atomic<bool> g_unsettled{false};

namespace {

using holdings::Kind;
using holdings::Locked;
using holdings::Table;

constexpr uint32_t kRows = 256;
constexpr uint64_t kGranule = 2 << 20;  // the unit in which a device's memory is mapped
constexpr uint64_t kAlignment = 512;
// Waits after a free until the pool is no longer expected to shrink.
constexpr uint32_t kPatience = 8;
constexpr int kMostYields = 10'000;

// Protected by the lock of holdings.
struct Row {
  CUmemoryPool pool = nullptr;  // null once destroyed
  bool in_use = false;
  bool is_default = false;
  bool is_foreign = false;
  uint8_t device = 0;
  uint32_t outstanding = 0;  // allocations
  uint32_t patience = 0;
  uint32_t queries = 0;  // driver calls with the handle in progress
  uint64_t used = 0;
  uint64_t reserved = 0;  // as charged
  uint64_t threshold = 0;
  // The answer to the latest question counts: it includes every allocation before it.
  uint64_t asked = 0, answered = 0;
};
Row g_rows[kRows];
std::atomic<uint32_t> g_end{0};  // written under the lock
uint64_t g_leaving[memory::kMostDevices];

std::atomic<uint32_t> g_current[memory::kMostDevices];  // row + 1; 0: not known

constexpr uint64_t round_up(uint64_t bytes, uint64_t to) {
  return bytes > UINT64_MAX - to ? bytes : (bytes + to - 1) / to * to;
}

Row* row_with(CUmemoryPool pool) {
  if (!pool) return nullptr;
  for (uint32_t i = 0; i < g_end; ++i) {
    if (g_rows[i].in_use && g_rows[i].pool == pool) return &g_rows[i];
  }
  return nullptr;
}

Row* new_row(CUmemoryPool pool, uint32_t device) {
  uint32_t i = 0;
  while (i < g_end && g_rows[i].in_use) ++i;
  if (i == kRows) return nullptr;
  g_end = std::max(g_end.load(), i + 1);
  const uint64_t asked = g_rows[i].asked;  // late answers for the row's last owner stay late
  g_rows[i] = Row{};
  g_rows[i].asked = g_rows[i].answered = asked;
  g_rows[i].in_use = true;
  g_rows[i].pool = pool;
  g_rows[i].device = static_cast<uint8_t>(device);
  return &g_rows[i];
}

void charge(Row& row, uint64_t reserved) {
  if (reserved > row.reserved) memory::add(row.device, reserved - row.reserved);
  else memory::give_back(row.device, row.reserved - reserved);
  row.reserved = reserved;
}

void drop(Row& row) {
  charge(row, 0);
  row.in_use = false;
  row.pool = nullptr;
}

// The handle, valid until end_query; null when there is none to query. The lock is held.
CUmemoryPool begin_query(Row& row, uint64_t* ticket) {
  if (!row.in_use || !row.pool || row.is_foreign) return nullptr;
  ++row.queries;
  *ticket = ++row.asked;
  return row.pool;
}

void end_query(uint32_t index, uint64_t ticket, const uint64_t* reserved) {
  const Locked lock;
  Row& row = g_rows[index];
  --row.queries;
  if (!reserved || ticket <= row.answered) return;
  row.answered = ticket;
  charge(row, *reserved);
}

void ask(uint32_t index, CUmemoryPool pool, uint64_t ticket) {
  uint64_t reserved = 0;
  const bool known = g_driver.cuMemPoolGetAttribute &&
                     g_driver.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                                    &reserved) == CUDA_SUCCESS;
  end_query(index, ticket, known ? &reserved : nullptr);
}

uint32_t index_of(const Row* row) { return static_cast<uint32_t>(row - g_rows); }

bool is_default_of(CUmemoryPool pool, uint32_t device) {
  CUmemoryPool of_device = nullptr;
  return g_driver.cuDeviceGetDefaultMemPool &&
         g_driver.cuDeviceGetDefaultMemPool(&of_device, static_cast<CUdevice>(device)) ==
             CUDA_SUCCESS &&
         of_device == pool;
}

// True: a later wait may find more to give back.
bool may_shrink(const Row& row) {
  return row.in_use && row.patience > 0 && row.reserved > std::max(row.threshold, row.used);
}

void settle_row(uint32_t index) {
  bool ask = false;
  {
    const Locked lock;
    Row& row = g_rows[index];
    if (!row.in_use) return;
    if (!row.pool && row.outstanding == 0) return drop(row);
    ask = may_shrink(row);
    if (row.patience > 0) --row.patience;
  }
  if (ask) refresh(index);
  const Locked lock;
  if (may_shrink(g_rows[index])) g_unsettled.store(true, std::memory_order_relaxed);
}

}  // namespace

uint32_t find(CUmemoryPool pool, uint32_t device_if_new) {
  {
    const Locked lock;
    if (const Row* row = row_with(pool)) return row->is_foreign ? kForeign : index_of(row);
  }
  const bool is_default = is_default_of(pool, device_if_new);
  const Locked lock;
  Row* row = row_with(pool);  // another thread may have been faster
  if (!row) row = new_row(pool, device_if_new);
  if (!row) return kNoRow;
  row->is_default = is_default;
  return index_of(row);
}

uint32_t current_of(uint32_t device) {
  std::atomic<uint32_t>& current = g_current[std::min(device, memory::kMostDevices - 1)];
  if (const uint32_t known = current.load(std::memory_order_acquire)) return known - 1;
  CUmemoryPool pool = nullptr;
  if (!g_driver.cuDeviceGetMemPool ||
      g_driver.cuDeviceGetMemPool(&pool, static_cast<CUdevice>(device)) != CUDA_SUCCESS || !pool) {
    return kNoRow;
  }
  const uint32_t row = find(pool, device);
  if (row != kNoRow) current.store(row + 1, std::memory_order_release);
  return row;
}

void forget_current() {
  for (auto& current : g_current) current.store(0, std::memory_order_release);
}

void note_created(CUmemoryPool pool, const CUmemPoolProps& props) {
  const bool on_device = props.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const Locked lock;
  Row* row = new_row(pool, on_device ? static_cast<uint32_t>(props.location.id) : 0);
  if (row) row->is_foreign = !on_device;
}

void note_foreign(CUmemoryPool pool) {
  const Locked lock;
  Row* row = row_with(pool);
  if (!row) row = new_row(pool, 0);
  if (row) row->is_foreign = true;
}

void set_threshold(CUmemoryPool pool, uint64_t bytes) {
  const Locked lock;
  Row* row = row_with(pool);
  if (!row) return;
  row->threshold = bytes;
  row->patience = kPatience;
  g_unsettled.store(true, std::memory_order_relaxed);
}

uint32_t begin_destroy(CUmemoryPool pool) {
  uint32_t index = kNoRow;
  {
    const Locked lock;
    Row* row = row_with(pool);
    if (!row) return kNoRow;
    index = index_of(row);
    row->pool = nullptr;
    ++row->outstanding;  // so that nobody drops it meanwhile
  }
  forget_current();
  // Another thread may be querying the pool. That ends soon, and no new query begins.
  for (int i = 0; i < kMostYields; ++i) {
    {
      const Locked lock;
      if (g_rows[index].queries == 0) break;
    }
    sched_yield();
  }
  return index;
}

// A destroyed pool goes with its last allocation, and then with the end of the work before it.
void end_destroy(uint32_t index, CUmemoryPool pool, bool destroyed) {
  if (index == kNoRow) return;
  const Locked lock;
  Row& row = g_rows[index];
  --row.outstanding;
  if (!destroyed) {
    row.pool = pool;
  } else if (row.outstanding == 0 && row.patience == 0) {
    drop(row);
  } else {
    g_unsettled.store(true, std::memory_order_relaxed);
  }
}

Growth growth_of(uint32_t index, uint64_t bytes) {
  const Locked lock;
  const Row& row = g_rows[index];
  const uint64_t unused = row.reserved > row.used ? row.reserved - row.used : 0;
  return {index, row.device, bytes > unused ? round_up(bytes, kGranule) : 0};
}

bool begin_allocation(uint32_t index, uint64_t bytes, Growth* growth) {
  *growth = growth_of(index, bytes);
  return growth->bytes ? admit(growth->device, growth->bytes) : admit_reuse(growth->device);
}

// The lock is held.
static void remember(Table& table, const Growth& growth, CUdeviceptr address, uint64_t bytes) {
  holdings::Entry entry;
  entry.kind = Kind::kPooled;
  entry.key = address;
  entry.owner = growth.row;
  entry.bytes = bytes;
  entry.device = static_cast<uint8_t>(growth.device);
  Row& row = g_rows[growth.row];
  if (!table.find(Kind::kPooled, address)) {  // otherwise it was freed without the shim noticing
    ++row.outstanding;
    row.used += round_up(bytes, kAlignment);
  }
  table.put(entry);
}

// True: the allocation is freed in its stream, as if it had never existed.
static bool take_back(const Growth& growth, CUdeviceptr address, uint64_t bytes, CUstream stream) {
  if (!g_driver.cuMemFreeAsync) return false;
  const holdings::Entry entry = holdings::take_out(Kind::kPooled, address);
  if (g_driver.cuMemFreeAsync(address, stream) != CUDA_SUCCESS) {
    holdings::put(entry);
    return false;
  }
  note_freed(growth.row, bytes);
  return true;
}

CUresult end_allocation(const Growth& growth, CUresult result, CUdeviceptr address, uint64_t bytes,
                        CUstream stream) {
  if (result != CUDA_SUCCESS) {
    undo_admission(growth.device, growth.bytes, result);
    return result;
  }
  uint64_t ticket = 0;
  CUmemoryPool pool = nullptr;
  {
    const Locked table;
    remember(*table, growth, address, bytes);
    pool = begin_query(g_rows[growth.row], &ticket);
  }
  if (pool) ask(growth.row, pool, ticket);
  memory::give_back(growth.device, growth.bytes);
  if (memory::is_over_limit(growth.device) && take_back(growth, address, bytes, stream)) {
    line::note_refused_by_quota();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memory::count_allocated();
  return CUDA_SUCCESS;
}

void note_freed(uint32_t index, uint64_t bytes) {
  const Locked lock;
  Row& row = g_rows[index];
  if (row.outstanding) --row.outstanding;
  row.used -= std::min(row.used, round_up(bytes, kAlignment));
  row.patience = kPatience;
  g_unsettled.store(true, std::memory_order_relaxed);
}

void free_later(uint32_t device, uint64_t bytes) {
  const Locked lock;
  g_leaving[std::min(device, memory::kMostDevices - 1)] += bytes;
  g_unsettled.store(true, std::memory_order_relaxed);
}

void refresh(uint32_t index) {
  uint64_t ticket = 0;
  CUmemoryPool pool = nullptr;
  {
    const Locked lock;
    pool = begin_query(g_rows[index], &ticket);
  }
  if (pool) ask(index, pool, ticket);
}

void refresh_if_known(CUmemoryPool pool) {
  uint32_t index = kNoRow;
  {
    const Locked lock;
    if (const Row* row = row_with(pool)) index = index_of(row);
  }
  if (index != kNoRow) refresh(index);
}

template <class Act>
static void for_each_of(uint32_t device, Act act) {
  for (uint32_t i = 0; i < kRows; ++i) {
    {
      const Locked lock;
      if (i >= g_end) return;
      if (!g_rows[i].in_use || g_rows[i].device != device) continue;
    }
    act(i);
  }
}

void refresh_all(uint32_t device) { for_each_of(device, refresh); }

void trim(uint32_t device) {
  for_each_of(device, [](uint32_t index) {
    uint64_t ticket = 0;
    CUmemoryPool pool = nullptr;
    {
      const Locked lock;
      pool = begin_query(g_rows[index], &ticket);
    }
    if (!pool) return;
    {
      const RelaxedCapture relaxed;
      if (g_driver.cuMemPoolTrimTo) g_driver.cuMemPoolTrimTo(pool, 0);
    }
    end_query(index, ticket, nullptr);
    refresh(index);
  });
}

// Only the driver knows which handle the default pool has afterwards.
static void empty_row(uint32_t index) {
  const Locked table;
  Row& row = g_rows[index];
  table->erase_if([&](const holdings::Entry& entry) {
    return entry.kind == Kind::kPooled && entry.owner == index;
  });
  row.used = row.outstanding = row.patience = 0;
  if (row.is_default || !row.pool) drop(row);
  else charge(row, 0);
}

void context_gone(uint32_t device) {
  if (has_contexts(device)) return refresh_all(device);
  forget_current();
  for_each_of(device, empty_row);
  const Locked lock;
  uint64_t& leaving = g_leaving[std::min(device, memory::kMostDevices - 1)];
  memory::give_back(device, leaving);
  leaving = 0;
}

void settle() {
  g_unsettled.store(false, std::memory_order_relaxed);
  {
    const Locked lock;
    for (uint32_t device = 0; device < memory::kMostDevices; ++device) {
      memory::give_back(device, g_leaving[device]);
      g_leaving[device] = 0;
    }
  }
  for (uint32_t i = 0; i < g_end; ++i) settle_row(i);
}

void start_afresh() {
  for (uint32_t i = 0; i < g_end; ++i) g_rows[i] = Row{};
  g_end = 0;
  for (uint64_t& leaving : g_leaving) leaving = 0;
  forget_current();
  g_unsettled.store(false, std::memory_order_relaxed);
}

}  // namespace tandem::shim::pools
