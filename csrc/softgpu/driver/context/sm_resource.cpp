// SM resources of a device and how they are split. The rules are those in section "Green Contexts"
// of the driver API; SMs are taken in ascending order of their index.
#include "sm_resource.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "api.h"

namespace softgpu {
namespace {

constexpr uint32_t kMagic = 0x534d7331;  // "SMs1"

struct Hidden {
  uint32_t magic;
  int32_t device;
  uint64_t sms[proto::kMaxSms / 64];
  uint64_t split;
  uint32_t origin, alignment;
};
static_assert(sizeof(Hidden) <= sizeof(CUdevResource::_internal_padding));

unsigned round_up(unsigned count, unsigned unit) { return (count + unit - 1) / unit * unit; }

// Moves the first `count` SMs out of `from`.
SmSet take_first(SmSet* from, unsigned count) {
  SmSet taken;
  for (size_t i = 0; i < from->size() && taken.count() < count; ++i) {
    if (!(*from)[i]) continue;
    taken.set(i);
    from->reset(i);
  }
  return taken;
}

unsigned count_of(const SmSet& set) { return static_cast<unsigned>(set.count()); }

// The split in progress: every group and the remainder carry its number.
struct Split {
  const SmResource& input;
  uint64_t number;
  SmSet left;

  void write_group(unsigned count, unsigned alignment, unsigned least, CUdevResource* out) {
    const SmSet sms = take_first(&left, count);
    write_sm_resource({input.device, sms, ResourceOrigin::kGroup, number, alignment}, least, out);
  }
  void write_remainder(unsigned least, CUdevResource* out) const {
    if (!out) return;
    *out = CUdevResource{};  // type INVALID if nothing is left
    if (left.none()) return;
    write_sm_resource({input.device, left, ResourceOrigin::kRemainder, number, 2}, least, out);
  }
};

CUresult check_input(const Call& call, const CUdevResource* input, SmResource* resource) {
  if (!input) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = read_sm_resource(*input, resource)) return bad;
  if (static_cast<uint32_t>(resource->device) >= call.rt.device.device_count) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  // A group must become a green context before it can be divided further.
  return resource->origin == ResourceOrigin::kGroup ? CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION
                                                    : CUDA_SUCCESS;
}

SmGranularity granularity_of(const Call& call, int device) {
  return sm_granularity(call.rt.device.device[device].compute_major);
}

// How many SMs each group of a split by count gets.
CUresult group_size(const SmGranularity& usual, unsigned flags, unsigned wanted, unsigned available,
                    unsigned* size, unsigned* alignment) {
  constexpr unsigned kLargestClusterSms = 16;
  *alignment = usual.multiple;
  unsigned least = usual.least;
  if (flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) {
    *alignment = least = 2;
  } else if (flags & CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE) {
    if (usual.most_coscheduled <= 2) return CUDA_ERROR_INVALID_VALUE;  // only from 9.0 on
    if (round_up(std::max(wanted, 1U), kLargestClusterSms) <= available) {
      *alignment = least = kLargestClusterSms;
    }
  }
  *size = std::max(least, round_up(wanted, *alignment));
  return CUDA_SUCCESS;
}

}  // namespace

SmGranularity sm_granularity(unsigned compute_major) {
  if (compute_major >= 9) return {8, 8, 32};
  if (compute_major == 8) return {4, 2, 2};
  return {2, 2, 2};
}

void write_sm_resource(const SmResource& resource, unsigned least, CUdevResource* out) {
  *out = CUdevResource{};
  out->type = CU_DEV_RESOURCE_TYPE_SM;
  out->sm.smCount = count_of(resource.sms);
#if CUDA_VERSION >= 13010
  out->sm.minSmPartitionSize = least;
  out->sm.smCoscheduledAlignment = resource.alignment;
#else
  (void)least;
#endif
  Hidden hidden{};
  hidden.magic = kMagic;
  hidden.device = resource.device;
  for (size_t i = 0; i < resource.sms.size(); ++i) {
    if (resource.sms[i]) hidden.sms[i / 64] |= uint64_t{1} << (i % 64);
  }
  hidden.split = resource.split;
  hidden.origin = static_cast<uint32_t>(resource.origin);
  hidden.alignment = resource.alignment;
  memcpy(out->_internal_padding, &hidden, sizeof hidden);
}

CUresult read_sm_resource(const CUdevResource& given, SmResource* out) {
  if (given.type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  Hidden hidden;
  memcpy(&hidden, given._internal_padding, sizeof hidden);
  *out = SmResource();
  for (size_t i = 0; i < out->sms.size(); ++i) {
    out->sms[i] = (hidden.sms[i / 64] >> (i % 64)) & 1;
  }
  if (hidden.magic != kMagic || hidden.device < 0 || given.sm.smCount == 0 ||
      given.sm.smCount != count_of(out->sms)) {
    return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  }
  out->device = hidden.device;
  out->split = hidden.split;
  out->origin = static_cast<ResourceOrigin>(hidden.origin);
  out->alignment = hidden.alignment;
  return CUDA_SUCCESS;
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* count,
                                        const CUdevResource* input, CUdevResource* remainder,
                                        unsigned int flags, unsigned int least_sms) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  constexpr unsigned kKnown = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING |
                              CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
  if (!count || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  SmResource from;
  if (const CUresult bad = check_input(call, input, &from)) return bad;
  const unsigned available = count_of(from.sms);
  if (least_sms > available || (result && *count == 0)) return CUDA_ERROR_INVALID_VALUE;
  const SmGranularity usual = granularity_of(call, from.device);
  unsigned size = 0, alignment = 0;
  if (const CUresult bad = group_size(usual, flags, least_sms, available, &size, &alignment)) {
    return bad;
  }
  const unsigned possible = available / size;
  if (!result) {
    *count = possible;
    return CUDA_SUCCESS;
  }
  if (possible == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  *count = std::min(*count, possible);
  Split split{from, call.rt.next_number(), from.sms};
  for (unsigned i = 0; i < *count; ++i) {
    split.write_group(size, alignment, usual.least, &result[i]);
  }
  split.write_remainder(usual.least, remainder);
  return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 13010
namespace {

// The SMs that one group of a structured split gets out of `left`; 0 if there are too few.
CUresult resolve_group(const CU_DEV_SM_RESOURCE_GROUP_PARAMS& wanted, const SmGranularity& usual,
                       unsigned left, unsigned* count, unsigned* alignment) {
  // Devices here are a single locality domain, so flags that refer to it are refused.
  if ((wanted.flags & ~static_cast<unsigned>(CU_DEV_SM_RESOURCE_GROUP_BACKFILL)) != 0) {
    return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  }
  const bool backfill = (wanted.flags & CU_DEV_SM_RESOURCE_GROUP_BACKFILL) != 0;
  const unsigned together = wanted.coscheduledSmCount;
  const unsigned merged = wanted.preferredCoscheduledSmCount;
  if (together % 2 != 0 || together > usual.most_coscheduled || wanted.smCount % 2 != 0 ||
      (together != 0 && merged % together != 0)) {
    return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  }
  const unsigned unit = together == 0 || backfill ? 2 : together;
  *count = wanted.smCount == 0 ? left / unit * unit : wanted.smCount;
  if (*count < together) *count = 0;
  if (*count > left || *count % unit != 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  const unsigned usually = together == 0 ? usual.multiple : together;
  *alignment = *count % usually == 0 ? usually : 2;
  return CUDA_SUCCESS;
}

}  // namespace

SOFTGPU_API cuDevSmResourceSplit(CUdevResource* result, unsigned int count,
                                 const CUdevResource* input, CUdevResource* remainder,
                                 unsigned int flags, CU_DEV_SM_RESOURCE_GROUP_PARAMS* params) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (count == 0 || !params || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  SmResource from;
  if (const CUresult bad = check_input(call, input, &from)) return bad;
  const SmGranularity usual = granularity_of(call, from.device);
  unsigned left = count_of(from.sms);
  if (count > left) return CUDA_ERROR_INVALID_VALUE;
  // Write nothing before everything is known to fit.
  std::vector<unsigned> counts(count), alignments(count);
  for (unsigned i = 0; i < count; ++i) {
    if (const CUresult bad = resolve_group(params[i], usual, left, &counts[i], &alignments[i])) {
      return bad;
    }
    if (counts[i] == 0 && (result || params[i].smCount != 0)) {
      return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    left -= counts[i];
  }
  Split split{from, call.rt.next_number(), from.sms};
  for (unsigned i = 0; i < count; ++i) {
    params[i].smCount = counts[i];
    CUdevResource group;
    split.write_group(counts[i], alignments[i], usual.least, &group);
    if (result) result[i] = group;
  }
  split.write_remainder(usual.least, remainder);
  return CUDA_SUCCESS;
}
#endif
