"""cuda.core: device and host buffers, copies, fills, and views without a copy."""

import numpy as np
from cuda.core import Device, LegacyPinnedMemoryResource, VirtualMemoryResource
from cuda.core.utils import StridedMemoryView, args_viewable_as_strided_memory

device = Device()
device.set_current()
stream = device.create_stream()

on_host = LegacyPinnedMemoryResource()
given, got = on_host.allocate(4096), on_host.allocate(4096)
assert given.is_host_accessible
seen = np.from_dlpack(given).view(np.uint32)
seen[:] = np.arange(1024)

buffer = device.allocate(4096, stream=stream)
assert buffer.size == 4096
assert buffer.is_device_accessible
assert not buffer.is_host_accessible
given.copy_to(buffer, stream=stream)
got.copy_from(buffer, stream=stream)
stream.sync()
assert np.array_equal(np.from_dlpack(got).view(np.uint32), np.arange(1024))

buffer.fill(0xAB, stream=stream)
buffer.copy_to(got, stream=stream)
stream.sync()
assert (np.from_dlpack(got).view(np.uint8) == 0xAB).all()


@args_viewable_as_strided_memory((0,))
def shape_of(array):
    view = array.view(-1)
    assert isinstance(view, StridedMemoryView)
    return view.shape, view.is_device_accessible


assert shape_of(np.zeros((3, 5), dtype=np.float32)) == ((3, 5), False)

pages = VirtualMemoryResource(device).allocate(1 << 21)
pages.fill(1, stream=stream)
got.copy_from(pages.from_handle(pages.handle, 4096), stream=stream)
stream.sync()
assert (np.from_dlpack(got).view(np.uint8) == 1).all()

pages.close()
buffer.close(stream)
given.close()
got.close()
stream.close()
