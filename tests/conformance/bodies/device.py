"""The device, and how calls are refused."""

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


def errors_have_names_and_texts():
    is_older = ok(cu.cuDriverGetVersion()) < cu.CUDA_VERSION  # so it need not know all of them
    for error in cu.CUresult:
        status, name = cu.cuGetErrorName(error)
        if is_older and status == cu.CUresult.CUDA_ERROR_INVALID_VALUE:
            continue
        assert name == error.name.encode()
        assert ok(cu.cuGetErrorString(error))


def a_device_is_found_by_its_place_on_the_bus():
    ok(cu.cuInit(0))
    device = ok(cu.cuDeviceGet(0))
    name = ok(cu.cuDeviceGetPCIBusId(64, device)).rstrip(b"\0")
    assert int(ok(cu.cuDeviceGetByPCIBusId(name))) == int(device)
    assert refused(cu.cuDeviceGetByPCIBusId(b"nowhere")) == "INVALID_VALUE"
    attribute = cu.CUdevice_attribute
    bus = ok(cu.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device))
    assert name.split(b":")[1].lower() == f"{bus:02x}".encode()


def every_attribute_has_a_value():
    ok(cu.cuInit(0))
    device = ok(cu.cuDeviceGet(0))
    values = {}
    for attribute in cu.CUdevice_attribute:
        if attribute.name != "CU_DEVICE_ATTRIBUTE_MAX":
            status, value = cu.cuDeviceGetAttribute(attribute, device)
            values[attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_")] = value
            assert status in (cu.CUresult.CUDA_SUCCESS, cu.CUresult.CUDA_ERROR_INVALID_VALUE)
    assert values["MAX_THREADS_PER_BLOCK"] == 1024
    assert values["MAX_BLOCK_DIM_X"] == 1024
    assert values["MAX_GRID_DIM_X"] == 2147483647
    assert values["MAX_SHARED_MEMORY_PER_BLOCK"] == 48 << 10
    optin, reserved = (
        values["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"],
        values["RESERVED_SHARED_MEMORY_PER_BLOCK"],
    )
    assert optin + reserved == values["MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"]
    for name in ("CLOCK_RATE", "L2_CACHE_SIZE", "TEXTURE_ALIGNMENT", "MAXIMUM_TEXTURE2D_WIDTH"):
        assert values[name] > 0, name
    width = cu.cuDeviceGetTexture1DLinearMaxWidth
    assert ok(width(cu.CUarray_format.CU_AD_FORMAT_FLOAT, 1, device)) > 0
    assert refused(width(cu.CUarray_format.CU_AD_FORMAT_FLOAT, 3, device)) == "INVALID_VALUE"
