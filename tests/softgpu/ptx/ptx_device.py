"""The few helpers that programs for the interpreter need: modules, device arrays, launches."""

from __future__ import annotations

import array
import ctypes
from pathlib import Path

from cuda.bindings import driver as cu

DATA = Path(__file__).resolve().parents[2] / "data" / "ptx"
POINTER = ctypes.c_void_p


def ok(result):
    """Return the values of a call that must succeed."""
    status, *values = result
    assert status == cu.CUresult.CUDA_SUCCESS, status
    return values[0] if len(values) == 1 else tuple(values)


def refused(result) -> str:
    """Return the error name of a call that must fail."""
    assert result[0] != cu.CUresult.CUDA_SUCCESS
    return result[0].name.removeprefix("CUDA_ERROR_")


class OnDevice:
    """The values of an array.array in device memory."""

    def __init__(self, typecode: str, values) -> None:
        self.host = array.array(typecode, values)
        self.bytes = len(self.host) * self.host.itemsize
        self.pointer = int(ok(cu.cuMemAlloc(max(self.bytes, 1))))
        ok(cu.cuMemcpyHtoD(self.pointer, self.host.buffer_info()[0], self.bytes))

    def read(self) -> list:
        ok(cu.cuMemcpyDtoH(self.host.buffer_info()[0], self.pointer, self.bytes))
        return self.host.tolist()


class Device:
    """The current context of device 0, with modules loaded from text or from tests/data/ptx."""

    def __init__(self) -> None:
        ok(cu.cuInit(0))
        self.context = ok(cu.cuDevicePrimaryCtxRetain(ok(cu.cuDeviceGet(0))))
        ok(cu.cuCtxSetCurrent(self.context))
        self.modules = {}

    def module(self, name: str):
        if name not in self.modules:
            text = (DATA / f"{name}.ptx").read_bytes() + b"\0"
            self.modules[name] = ok(cu.cuModuleLoadData(text))
        return self.modules[name]

    def launch(
        self, kernel: str, grid, block, *arguments, shared: int = 0, stream=0, cooperative=False
    ):
        """Launch `kernel`, given as "file.name"; arguments are OnDevice or ctypes values."""
        module, name = kernel.split(".")
        function = ok(cu.cuModuleGetFunction(self.module(module), name.encode()))
        values = [POINTER(a.pointer) if isinstance(a, OnDevice) else a for a in arguments]
        addresses = (POINTER * max(1, len(values)))(*[ctypes.addressof(v) for v in values])
        shapes = [(*shape, 1, 1)[:3] if isinstance(shape, tuple) else (shape, 1, 1)
                  for shape in (grid, block)]  # fmt: skip
        where = ctypes.addressof(addresses)
        if cooperative:
            return cu.cuLaunchCooperativeKernel(
                function, *shapes[0], *shapes[1], shared, stream, where
            )
        return cu.cuLaunchKernel(function, *shapes[0], *shapes[1], shared, stream, where, 0)

    def run(self, kernel: str, grid, block, *arguments, **more) -> None:
        ok(self.launch(kernel, grid, block, *arguments, **more))
        ok(cu.cuCtxSynchronize())
