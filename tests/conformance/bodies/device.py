"""The device and how calls are refused."""

from __future__ import annotations

from cuda.bindings import driver as cu
from gpu import Gpu, ok, refused


def the_device_describes_itself():
    ok(cu.cuInit(0))
    assert ok(cu.cuDeviceGetCount()) >= 1
    assert ok(cu.cuDriverGetVersion()) >= 12000
    device = ok(cu.cuDeviceGet(0))
    assert ok(cu.cuDeviceGetName(64, device)).strip(b"\0 ")
    assert any(ok(cu.cuDeviceGetUuid(device)).bytes)
    assert ok(cu.cuDeviceTotalMem(device)) > 0
    attribute = cu.CUdevice_attribute
    for name, least in (
        ("WARP_SIZE", 32),
        ("MULTIPROCESSOR_COUNT", 1),
        ("UNIFIED_ADDRESSING", 1),
        ("VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED", 1),
        ("CAN_MAP_HOST_MEMORY", 1),
        ("STREAM_PRIORITIES_SUPPORTED", 1),
    ):
        which = getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        assert ok(cu.cuDeviceGetAttribute(which, device)) >= least, name


def wrong_arguments_give_the_documented_errors():
    assert refused(cu.cuDeviceGetCount()) == "NOT_INITIALIZED"
    assert refused(cu.cuInit(1)) == "INVALID_VALUE"
    ok(cu.cuInit(0))
    assert refused(cu.cuDeviceGet(99)) == "INVALID_DEVICE"
    assert refused(cu.cuMemAlloc(16)) == "INVALID_CONTEXT"
    gpu = Gpu()
    assert refused(cu.cuMemAlloc(0)) == "INVALID_VALUE"
    assert refused(cu.cuModuleGetFunction(gpu.module, b"no_such_kernel")) == "NOT_FOUND"
    assert refused(cu.cuStreamCreate(99)) == "INVALID_VALUE"
    assert refused(cu.cuEventCreate(1 << 20)) == "INVALID_VALUE"
    assert refused(gpu.launch("count_up", (), (), block=2048)) == "INVALID_VALUE"
    assert refused(cu.cuMemAlloc(1 << 60)) == "OUT_OF_MEMORY"
    assert refused(cu.cuModuleLoadData(b"\0" * 256)) in (
        "NO_BINARY_FOR_GPU",
        "INVALID_IMAGE",
        "INVALID_PTX",
    )
