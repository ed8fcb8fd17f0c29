#include "device_attributes.h"

#include <algorithm>
#include <iterator>

#include "device_limits.h"

namespace softgpu {
namespace {

struct Facts {
  const AttributeSource& of;
  DeviceLimits limits;
  int arch() const { return static_cast<int>(of.info.compute_major * 10 + of.info.compute_minor); }
  // As in products with that architecture, in bits.
  int bus_width() const { return arch() == 89 ? 384 : arch() == 80 ? 5120 : 6144; }
};

struct Row {
  int attribute;
  int (*value)(const Facts& device);
};

#define ROW(name, expression)                       \
  {CU_DEVICE_ATTRIBUTE_##name, [](const Facts& d) { \
     (void)d;                                       \
     return static_cast<int>(expression);           \
   }},

// Attributes without a row are 0: they stand for what the software GPU does not have (TCC, ECC,
// NVLink multicast, fabric handles, GPUDirect RDMA, dma-buf, CIG, decompression, NUMA memory,
// sparse arrays).
// clang-format off
const Row kRows[] = {
    ROW(MAX_THREADS_PER_BLOCK, DeviceLimits::kThreadsPerBlock)
    ROW(MAX_BLOCK_DIM_X, DeviceLimits::kMaxBlock[0])
    ROW(MAX_BLOCK_DIM_Y, DeviceLimits::kMaxBlock[1])
    ROW(MAX_BLOCK_DIM_Z, DeviceLimits::kMaxBlock[2])
    ROW(MAX_GRID_DIM_X, DeviceLimits::kMaxGrid[0])
    ROW(MAX_GRID_DIM_Y, DeviceLimits::kMaxGrid[1])
    ROW(MAX_GRID_DIM_Z, DeviceLimits::kMaxGrid[2])
    ROW(MAX_SHARED_MEMORY_PER_BLOCK, d.limits.shared_per_block)
    ROW(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, d.limits.shared_per_block_optin)
    ROW(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, d.limits.shared_per_sm)
    ROW(RESERVED_SHARED_MEMORY_PER_BLOCK, DeviceLimits::kSharedReserved)
    ROW(MAX_REGISTERS_PER_BLOCK, DeviceLimits::kRegistersPerBlock)
    ROW(MAX_REGISTERS_PER_MULTIPROCESSOR, DeviceLimits::kRegistersPerSm)
    ROW(MAX_THREADS_PER_MULTIPROCESSOR, d.limits.threads_per_sm)
    ROW(MAX_BLOCKS_PER_MULTIPROCESSOR, d.limits.blocks_per_sm)
    ROW(MULTIPROCESSOR_COUNT, d.limits.sm_count)
    ROW(WARP_SIZE, DeviceLimits::kWarp)
    ROW(TOTAL_CONSTANT_MEMORY, 65536)
    ROW(CLUSTER_LAUNCH, d.limits.max_cluster > 0)
    ROW(COOPERATIVE_LAUNCH, 1)
    ROW(COMPUTE_CAPABILITY_MAJOR, d.of.info.compute_major)
    ROW(COMPUTE_CAPABILITY_MINOR, d.of.info.compute_minor)
    ROW(CLOCK_RATE, d.of.info.clock_mhz * 1000)
    ROW(GLOBAL_MEMORY_BUS_WIDTH, d.bus_width())
    // Two transfers per clock, so that the bus has the profile's bandwidth.
    ROW(MEMORY_CLOCK_RATE, d.of.info.bytes_per_s * 8 / d.bus_width() / 2 / 1000)
    ROW(L2_CACHE_SIZE, d.of.info.l2_bytes)
    ROW(MAX_PERSISTING_L2_CACHE_SIZE, d.limits.max_persisting_l2)
    ROW(MAX_ACCESS_POLICY_WINDOW_SIZE, DeviceLimits::kMaxAccessWindowBytes)
    ROW(SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, d.arch() == 89 ? 64 : 2)
    ROW(MEM_SYNC_DOMAIN_COUNT, d.limits.mem_sync_domains)

    ROW(COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT)
    ROW(PCI_BUS_ID, 1)
    ROW(PCI_DEVICE_ID, d.of.device)
    ROW(PCI_DOMAIN_ID, 0)
    ROW(MULTI_GPU_BOARD_GROUP_ID, d.of.device)
    ROW(GPU_OVERLAP, 1)
    ROW(ASYNC_ENGINE_COUNT, 2)
    ROW(CONCURRENT_KERNELS, 1)
    ROW(COMPUTE_PREEMPTION_SUPPORTED, 1)
    ROW(STREAM_PRIORITIES_SUPPORTED, 1)
    ROW(GLOBAL_L1_CACHE_SUPPORTED, 1)
    ROW(LOCAL_L1_CACHE_SUPPORTED, 1)
    ROW(MPS_ENABLED, d.of.mps)
    ROW(NUMA_CONFIG, CU_DEVICE_NUMA_CONFIG_NONE)
    ROW(NUMA_ID, -1)
    ROW(HOST_NUMA_ID, -1)

    ROW(UNIFIED_ADDRESSING, 1)
    ROW(CAN_MAP_HOST_MEMORY, 1)
    ROW(HOST_REGISTER_SUPPORTED, 1)
    ROW(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1)
    ROW(MAX_PITCH, 2147483647)
    ROW(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1)
    ROW(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1)
    ROW(MEMORY_POOLS_SUPPORTED, 1)
    ROW(IPC_EVENT_SUPPORTED, 1)
    ROW(MANAGED_MEMORY, 1)
    ROW(CONCURRENT_MANAGED_ACCESS, 1)
    ROW(MEMPOOL_SUPPORTED_HANDLE_TYPES, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    ROW(CAN_USE_STREAM_MEM_OPS_V1, 1)
    ROW(CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1)
    ROW(CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1)
    ROW(CAN_USE_64_BIT_STREAM_MEM_OPS, 1)
    ROW(CAN_USE_STREAM_WAIT_VALUE_NOR, 1)

    // "Technical Specifications per Compute Capability", textures and surfaces.
    ROW(TEXTURE_ALIGNMENT, 512)
    ROW(TEXTURE_PITCH_ALIGNMENT, 32)
    ROW(SURFACE_ALIGNMENT, 512)
    ROW(MAXIMUM_TEXTURE1D_WIDTH, 131072)
    ROW(MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 268435456)
    ROW(MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, 32768)
    ROW(MAXIMUM_TEXTURE1D_LAYERED_WIDTH, 32768)
    ROW(MAXIMUM_TEXTURE1D_LAYERED_LAYERS, 2048)
    ROW(MAXIMUM_TEXTURE2D_WIDTH, 131072)
    ROW(MAXIMUM_TEXTURE2D_HEIGHT, 65536)
    ROW(MAXIMUM_TEXTURE2D_LINEAR_WIDTH, 131072)
    ROW(MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, 65000)
    ROW(MAXIMUM_TEXTURE2D_LINEAR_PITCH, 2097120)
    ROW(MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, 32768)
    ROW(MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 32768)
    ROW(MAXIMUM_TEXTURE2D_LAYERED_WIDTH, 32768)
    ROW(MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, 32768)
    ROW(MAXIMUM_TEXTURE2D_LAYERED_LAYERS, 2048)
    ROW(CAN_TEX2D_GATHER, 1)
    ROW(MAXIMUM_TEXTURE2D_GATHER_WIDTH, 32768)
    ROW(MAXIMUM_TEXTURE2D_GATHER_HEIGHT, 32768)
    ROW(MAXIMUM_TEXTURE3D_WIDTH, 16384)
    ROW(MAXIMUM_TEXTURE3D_HEIGHT, 16384)
    ROW(MAXIMUM_TEXTURE3D_DEPTH, 16384)
    ROW(MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, 8192)
    ROW(MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, 8192)
    ROW(MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE, 32768)
    ROW(MAXIMUM_TEXTURECUBEMAP_WIDTH, 32768)
    ROW(MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, 32768)
    ROW(MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS, 2046)
    ROW(MAXIMUM_SURFACE1D_WIDTH, 32768)
    ROW(MAXIMUM_SURFACE1D_LAYERED_WIDTH, 32768)
    ROW(MAXIMUM_SURFACE1D_LAYERED_LAYERS, 2048)
    ROW(MAXIMUM_SURFACE2D_WIDTH, 131072)
    ROW(MAXIMUM_SURFACE2D_HEIGHT, 65536)
    ROW(MAXIMUM_SURFACE2D_LAYERED_WIDTH, 32768)
    ROW(MAXIMUM_SURFACE2D_LAYERED_HEIGHT, 32768)
    ROW(MAXIMUM_SURFACE2D_LAYERED_LAYERS, 2048)
    ROW(MAXIMUM_SURFACE3D_WIDTH, 16384)
    ROW(MAXIMUM_SURFACE3D_HEIGHT, 16384)
    ROW(MAXIMUM_SURFACE3D_DEPTH, 16384)
    ROW(MAXIMUM_SURFACECUBEMAP_WIDTH, 32768)
    ROW(MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, 32768)
    ROW(MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS, 2046)
};
// clang-format on
#undef ROW

}  // namespace

bool device_attribute(const AttributeSource& source, int attribute, int* value) {
  if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return false;
  const Facts facts{source, device_limits(source.info)};
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const Row& known) { return known.attribute == attribute; });
  *value = row == std::end(kRows) ? 0 : row->value(facts);
  return true;
}

}  // namespace softgpu
