"""cuda.core: stream-ordered memory from pools."""

import numpy as np
from cuda.core import (
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    LegacyPinnedMemoryResource,
)

MIB = 1 << 20

device = Device()
device.set_current()
stream = device.create_stream()
on_host = LegacyPinnedMemoryResource().allocate(MIB)
seen = np.from_dlpack(on_host).view(np.uint8)

pool = DeviceMemoryResource(device)
assert pool.device_id == 0
assert pool.is_device_accessible
assert not pool.is_host_accessible
before = pool.attributes.used_mem_current
buffer = pool.allocate(MIB, stream=stream)
assert buffer.memory_resource is pool
assert pool.attributes.used_mem_current == before + MIB
buffer.fill(7, stream=stream)
buffer.copy_to(on_host, stream=stream)
buffer.close(stream)
stream.sync()
assert (seen == 7).all()
assert pool.attributes.used_mem_current == before

# Memory allocated by the device itself comes from its pool.
assert isinstance(device.memory_resource, DeviceMemoryResource)

small = DeviceMemoryResource(device, options=DeviceMemoryResourceOptions(max_size=4 * MIB))
first = small.allocate(2 * MIB, stream=stream)
refused = None
try:
    small.allocate(4 * MIB, stream=stream)
except Exception as error:
    refused = error
assert "CUDA_ERROR_OUT_OF_MEMORY" in str(refused)

# Freed in stream order, so the stream's next allocation may reuse it at once.
first.close(stream)
again = small.allocate(2 * MIB, stream=stream)
again.close(stream)
stream.sync()
small.close()
