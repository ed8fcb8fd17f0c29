"""pynvml: a monitor's questions about the device and about this process on it."""

import os

import pynvml
from cuda.core import Device

pynvml.nvmlInit()
assert pynvml.nvmlSystemGetDriverVersion()
assert pynvml.nvmlSystemGetCudaDriverVersion() >= 12090
assert pynvml.nvmlDeviceGetCount() == 1
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
assert pynvml.nvmlDeviceGetName(handle) == "Tandem Software GPU (tiny)"
assert pynvml.nvmlDeviceGetCudaComputeCapability(handle) == (9, 0)
assert pynvml.nvmlDeviceGetMemoryInfo(handle).total == 1 << 30

device = Device()
device.set_current()
assert pynvml.nvmlDeviceGetUUID(handle) == f"GPU-{device.uuid}"
same = pynvml.nvmlDeviceGetHandleByUUID(pynvml.nvmlDeviceGetUUID(handle))
assert pynvml.nvmlDeviceGetIndex(same) == 0

before = pynvml.nvmlDeviceGetMemoryInfo(handle).used
buffer = device.allocate(64 << 20, stream=device.default_stream)
assert pynvml.nvmlDeviceGetMemoryInfo(handle).used - before == 64 << 20
(mine,) = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
assert mine.pid == os.getpid()
assert mine.usedGpuMemory >= 64 << 20
buffer.close(device.default_stream)

refused = None
try:
    pynvml.nvmlDeviceGetHandleByIndex(1)
except pynvml.NVMLError as error:
    refused = error.value
assert refused == pynvml.NVML_ERROR_INVALID_ARGUMENT
pynvml.nvmlShutdown()
