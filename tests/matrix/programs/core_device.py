"""cuda.core: devices and their properties, streams, events, contexts."""

from cuda.core import Device, EventOptions, StreamOptions

device = Device()
assert device.name == "Tandem Software GPU (tiny)"
assert len(Device.get_all_devices()) == 1
assert device.arch == "90"
assert tuple(device.compute_capability) == (9, 0)
assert len(device.uuid) == 36

properties = device.properties
assert properties.multiprocessor_count == 8
assert properties.warp_size == 32
assert properties.max_threads_per_block == 1024
for name in dir(properties):  # each of them has an answer
    getattr(properties, name)

device.set_current()
assert device.context is not None
first = device.create_stream(options=StreamOptions(nonblocking=True, priority=-1))
second = device.create_stream()
assert first.is_nonblocking
assert first.priority == -1
assert first.device.device_id == 0
assert first != second
assert device.default_stream is not None

timed = EventOptions(timing_enabled=True)
begin = first.record(options=timed)
end = first.record(options=timed)
second.wait(end)
second.sync()
assert begin.is_done
assert end - begin == 0.0  # nothing lies between the two
assert not second.record().is_timing_enabled
