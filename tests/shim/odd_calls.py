"""Calls every interposed function with meaningless arguments and prints what it answers.

    python odd_calls.py shim_signatures.json

Prints one JSON object a line, one for each symbol: name -> for each set of arguments, the result
and which buffers the call wrote. Each symbol runs in its own process, because some calls end
contexts.
"""

import ctypes
import json
import os
import random
import signal
import sys

SETS = 8
BUFFER_BYTES = 4096
DONTWAIT_S = 20  # in real time; nothing here waits for anything
SMALL = {"unsigned short": ctypes.c_uint16, "unsigned char": ctypes.c_uint8, "int": ctypes.c_int}
# Types that are passed by value, with their sizes in bytes.
VALUES = {"CUipcMemHandle": 64, "CUipcEventHandle": 64, "CUmemLocation": 8}
HANDLES = [
    "CUstream",
    "CUevent",
    "CUcontext",
    "CUfunction",
    "CUgraph",
    "CUgraphExec",
    "CUgraphNode",
    "CUarray",
    "CUmipmappedArray",
    "CUmemoryPool",
    "CUgreenCtx",
    "CUexternalMemory",
]
CALLBACKS = ("CUhostFn", "CUstreamCallback", "CUgraphRecaptureCallback")
WIDE = ("size_t", "unsigned long long", "cuuint64_t", "CUmemGenericAllocationHandle")
ADDRESSES = ("CUdeviceptr", "CUdeviceptr_v1")


class Place:
    """A context and one object of each kind that a call may take."""

    def __init__(self):
        self.cu = cu = ctypes.CDLL("libcuda.so.1")
        context, stream, event, address = (ctypes.c_uint64() for _ in range(4))
        for result in (
            cu.cuInit(0),
            cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
            cu.cuCtxSetCurrent(context),
            cu.cuStreamCreate(ctypes.byref(stream), 1),
            cu.cuEventCreate(ctypes.byref(event), 0),
            cu.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096)),
            cu.cuMemsetD8_v2(address, 0, ctypes.c_size_t(4096)),
            cu.cuCtxSynchronize(),
        ):
            assert result == 0, result
        self.live = {"CUstream": stream.value, "CUevent": event.value, "CUcontext": context.value}
        self.address = address.value

    def answers(self, symbol, kinds):
        function = getattr(self.cu, symbol)
        draw = random.Random(symbol)
        found = []
        for number in range(SETS):
            buffers = []
            arguments = [self.argument(kind, number, draw, buffers) for kind in kinds]
            result = function(*arguments)
            found.append([result, [bytes(buffer) != bytes(BUFFER_BYTES) for buffer in buffers]])
        return found

    def argument(self, kind, number, draw, buffers):
        """Make an argument: for number 0 NULL, for 1 pointers to zeroed memory, then a mix."""
        some = number and draw.random() < 0.7
        if kind in VALUES:
            return structure(VALUES[kind])()
        if kind in CALLBACKS or kind == "CUmemLocation *":
            return None
        if kind in HANDLES:
            return ctypes.c_void_p(self.live.get(kind) if some else None)
        if kind in ADDRESSES:
            return ctypes.c_uint64(self.address if some else 0)
        if kind.endswith("*"):
            return self.pointer(some or number == 1, buffers)
        value = draw.choice([0, 1, 2, 16]) if number > 1 else 0
        if kind in WIDE:
            return ctypes.c_uint64(value)
        return SMALL.get(kind, ctypes.c_uint)(value)

    def pointer(self, wanted, buffers):
        if not wanted:
            return None
        buffers.append((ctypes.c_char * BUFFER_BYTES)())
        return buffers[-1]


def structure(size):
    return type("Value", (ctypes.Structure,), {"_fields_": [("bytes", ctypes.c_char * size)]})


def in_child(symbol, kinds):
    """Make the calls in a child; return the answers, or how the child ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(DONTWAIT_S)
        os.write(writing, json.dumps(Place().answers(symbol, kinds)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    status = os.waitpid(child, 0)[1]
    return json.loads(text) if status == 0 else f"ended with status {status}"


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        signatures = json.load(file)
    for name in sys.argv[2:] or signatures:
        print(json.dumps({name: in_child(name, signatures[name])}), flush=True)
