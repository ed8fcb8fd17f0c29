#include "sets.h"

#include "driver.h"
#include "shm_layout.h"

namespace tandem::shim::partition {
namespace {

constexpr unsigned kMaxGroups = 256;

struct Set {
  uint32_t word;  // 0 = free
  CUgreenCtx green;
};
Set g_sets[kSets];

// The split of which all sets are made; 0 groups until it is made.
CUdevResource g_groups[kMaxGroups];
unsigned g_group_count = 0;
unsigned g_group_sms = 0;
CUdevice g_device = 0;

bool driver_has_all() {
  return g_driver.cuDeviceGetDevResource && g_driver.cuDevSmResourceSplitByCount &&
         g_driver.cuDevResourceGenerateDesc && g_driver.cuGreenCtxCreate &&
         g_driver.cuGreenCtxDestroy && g_driver.cuGreenCtxStreamCreate;
}

// Splits the device into as many groups of `group_sms` SMs as fit: the same split in every process,
// whatever set the process gets.
bool split(CUdevice device, unsigned group_sms) {
  if (g_group_count && g_group_sms == group_sms && g_device == device) return true;
  g_group_count = 0;
  CUdevResource all{};
  unsigned count = 0;
  if (g_driver.cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS ||
      g_driver.cuDevSmResourceSplitByCount(nullptr, &count, &all, nullptr, 0, group_sms) !=
          CUDA_SUCCESS ||
      count == 0 || count > kMaxGroups) {
    return false;
  }
  CUdevResource rest{};
  if (g_driver.cuDevSmResourceSplitByCount(g_groups, &count, &all, &rest, 0, group_sms) !=
          CUDA_SUCCESS ||
      g_groups[0].sm.smCount != group_sms) {
    return false;
  }
  g_group_count = count;
  g_group_sms = group_sms;
  g_device = device;
  return true;
}

CUgreenCtx make_green(const shm::SmSet& wanted, CUdevice device) {
  if (!driver_has_all() || !split(device, wanted.group_sms)) return nullptr;
  if (wanted.first + wanted.count > g_group_count) return nullptr;
  CUdevResourceDesc description = nullptr;
  CUgreenCtx green = nullptr;
  if (g_driver.cuDevResourceGenerateDesc(&description, g_groups + wanted.first, wanted.count) !=
          CUDA_SUCCESS ||
      g_driver.cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM) !=
          CUDA_SUCCESS) {
    return nullptr;
  }
  return green;
}

int find(uint32_t word) {
  for (int i = 0; i < kSets; ++i) {
    if (g_sets[i].word == word) return i;
  }
  return kNoSet;
}

}  // namespace

int set_number(uint32_t word, CUdevice device) {
  const shm::SmSet wanted = shm::set_of(word);
  if (wanted.count == 0) return kWhole;
  const int known = find(word);
  if (known != kNoSet) return known;
  const int number = find(0);
  if (number == kNoSet) return kNoSet;
  const CUgreenCtx green = make_green(wanted, device);
  if (!green) return kNoSet;
  g_sets[number] = {word, green};
  return number;
}

bool has_room(uint32_t word) {
  return shm::set_of(word).count == 0 || find(word) != kNoSet || find(0) != kNoSet;
}
bool has_set(int number) { return g_sets[number].word != 0; }

CUstream make_stream(int number, int priority) {
  CUstream stream = nullptr;
  const CUresult result = g_driver.cuGreenCtxStreamCreate(&stream, g_sets[number].green,
                                                          CU_STREAM_NON_BLOCKING, priority);
  return result == CUDA_SUCCESS ? stream : nullptr;
}

void drop_set(int number) {
  g_driver.cuGreenCtxDestroy(g_sets[number].green);
  g_sets[number] = {};
}

void forget_sets() {
  for (Set& set : g_sets) set = {};
  g_group_count = 0;
}

}  // namespace tandem::shim::partition
