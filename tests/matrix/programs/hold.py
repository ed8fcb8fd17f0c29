"""A job for the monitors: holds 256 MiB until its input ends."""

import sys

from cuda.core import Device

device = Device()
device.set_current()
buffer = device.allocate(256 << 20, stream=device.default_stream)
print("holding", flush=True)
sys.stdin.read()
