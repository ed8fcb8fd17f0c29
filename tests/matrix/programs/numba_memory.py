"""numba-cuda: detection, device arrays, pinned and mapped arrays, streams, events."""

import numpy as np
from numba import cuda

assert cuda.is_available()
assert cuda.detect()
assert len(cuda.gpus) == 1
device = cuda.get_current_device()
assert device.compute_capability == (9, 0)
assert device.MULTIPROCESSOR_COUNT == 8
assert device.name in ("Tandem Software GPU (tiny)", b"Tandem Software GPU (tiny)")
free_bytes, total_bytes = cuda.current_context().get_memory_info()
assert 0 < free_bytes < total_bytes

given = np.arange(10_000, dtype=np.float64).reshape(100, 100)
on_device = cuda.to_device(given)
assert np.array_equal(on_device.copy_to_host(), given)
assert np.array_equal(on_device[10:20].copy_to_host(), given[10:20])
other = cuda.device_array_like(on_device)
other.copy_to_device(on_device)
assert np.array_equal(other.copy_to_host(), given)

stream = cuda.stream()
begin, end = cuda.event(timing=True), cuda.event(timing=True)
with cuda.pinned(given):
    begin.record(stream)
    moved = cuda.to_device(given, stream=stream)
    back = moved.copy_to_host(stream=stream)
    end.record(stream)
    end.synchronize()
assert np.array_equal(back, given)
assert begin.elapsed_time(end) > 0.319  # milliseconds: twice 80 KB at 0.5 GB/s

pinned = cuda.pinned_array(1000, dtype=np.int32)
pinned[:] = 3
assert (cuda.to_device(pinned).copy_to_host() == 3).all()
mapped = cuda.mapped_array(1000, dtype=np.int32)
mapped[:] = 4
assert (mapped == 4).all()

# Device memory of another library, through the array interface.
foreign = cuda.as_cuda_array(other)
assert foreign.shape == (100, 100)
assert np.array_equal(foreign.copy_to_host(), given)

del on_device, other, moved, foreign
cuda.synchronize()
cuda.close()
