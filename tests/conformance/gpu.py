"""The few things that every conformance body needs: checked calls and host memory."""

from __future__ import annotations

import array
import collections
import contextlib
import ctypes
import os
from pathlib import Path

from cuda.bindings import driver as cu

NOT_READY = cu.CUresult.CUDA_ERROR_NOT_READY


class NothingToTest(Exception):  # noqa: N818
    """The device lacks what the body tests (such as a second GPU), so the test is skipped."""


# The driver's most recent answers, printed when a body fails.
ANSWERS: collections.deque[str] = collections.deque(maxlen=8)


def ok(result):
    """Return the values of a call that must succeed."""
    status, *values = result
    ANSWERS.append(status.name)
    assert status == cu.CUresult.CUDA_SUCCESS, status
    return values[0] if len(values) == 1 else tuple(values)


def refused(result) -> str:
    """Return the error name of a call that must fail."""
    ANSWERS.append(result[0].name)
    assert result[0] != cu.CUresult.CUDA_SUCCESS
    return result[0].name.removeprefix("CUDA_ERROR_")


@contextlib.contextmanager
def outside():
    """Let virtual time pass while waiting for another process or thread."""
    driver = ctypes.CDLL("libcuda.so.1")
    hooks = [getattr(driver, f"softgpu_wait_{end}", int) for end in ("begin", "end")]
    hooks[0]()
    yield
    hooks[1]()


def u32(*values: int) -> array.array:
    return array.array("I", values)


def address(host: array.array) -> int:
    return host.buffer_info()[0]


class Gpu:
    """A current context with the test kernels loaded."""

    def __init__(self) -> None:
        ok(cu.cuInit(0))
        self.device = ok(cu.cuDeviceGet(0))
        self.context = ok(cu.cuDevicePrimaryCtxRetain(self.device))
        ok(cu.cuCtxSetCurrent(self.context))
        self.module = ok(cu.cuModuleLoadData(Path(os.environ["TEST_IMAGE"]).read_bytes()))

    def function(self, name: str):
        return ok(cu.cuModuleGetFunction(self.module, name.encode()))

    def launch(self, name, values, types, *, stream=0, grid=1, block=1):
        return cu.cuLaunchKernel(
            self.function(name), grid, 1, 1, block, 1, 1, 0, stream, (values, types), 0
        )

    def affine(self, word, factor, addend, *, stream=0, slow=False) -> None:
        name = "slow_affine" if slow else "affine"
        types = (None, ctypes.c_uint, ctypes.c_uint)
        ok(self.launch(name, (word, factor, addend), types, stream=stream))

    def word(self, value: int):
        """Allocate a device word and set it before anything else happens."""
        pointer = ok(cu.cuMemAlloc(4))
        ok(cu.cuMemsetD32(pointer, value, 1))
        ok(cu.cuCtxSynchronize())
        return pointer

    def read(self, pointer, count: int = 1) -> list[int]:
        host = u32(*[0] * count)
        ok(cu.cuMemcpyDtoH(address(host), pointer, 4 * count))
        return host.tolist()

    def kernel_node(self, word, factor, addend, *, slow=False):
        """Return the parameters of a node that does the same as `affine`."""
        params = cu.CUDA_KERNEL_NODE_PARAMS()
        params.func = self.function("slow_affine" if slow else "affine")
        params.gridDimX = params.gridDimY = params.gridDimZ = 1
        params.blockDimX = params.blockDimY = params.blockDimZ = 1
        params.kernelParams = ((word, factor, addend), (None, ctypes.c_uint, ctypes.c_uint))
        return params

    def add_kernel(self, graph, after, word, factor, addend, **how):
        params = self.kernel_node(word, factor, addend, **how)
        return ok(cu.cuGraphAddKernelNode(graph, after, len(after), params))

    def run_graph(self, graph, stream=0) -> None:
        """Run the graph once, to its end."""
        executable = ok(cu.cuGraphInstantiate(graph, 0))
        ok(cu.cuGraphLaunch(executable, stream))
        ok(cu.cuStreamSynchronize(stream))
        ok(cu.cuGraphExecDestroy(executable))
