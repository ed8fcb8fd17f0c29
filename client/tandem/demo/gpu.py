"""One context on device 0 through cuda.bindings' driver API, with the demo's kernels in it."""

from __future__ import annotations

import ctypes
from typing import Any, TypeAlias

from cuda.bindings import driver

from tandem.demo.clock import Clock

CHUNK_WORDS = 4096  # kChunk in kernels.cu
WORD_BYTES = 4
THREADS = 256  # per block; also the number of words that `fold` reduces a chunk to


# A stream, event, function.. of cuda.bindings, which has no type annotations.
Handle: TypeAlias = Any


class DriverError(RuntimeError):
    """A driver call failed. The text names the result as the driver does."""


def check(answer: tuple[Any, ...]) -> Handle:
    """Unpack the result of a cuda.bindings call.

    Raises:
        DriverError: the call did not return CUDA_SUCCESS.
    """
    result, *values = answer
    if result != driver.CUresult.CUDA_SUCCESS:
        msg = f"CUDA driver call failed: {getattr(result, 'name', result)}"
        raise DriverError(msg)
    return values[0] if len(values) == 1 else tuple(values)


class PinnedWords:
    """Pinned host memory of 32-bit words, at an address for the driver to copy from and to."""

    def __init__(self, words: int, address: int) -> None:
        self.bytes = words * WORD_BYTES
        self.address = address
        self._view = (ctypes.c_uint32 * words).from_address(address)

    def store(self, index: int, value: int) -> None:
        """Write one word."""
        self._view[index] = value & 0xFFFFFFFF

    def total(self) -> int:
        """The sum of all words, modulo 2^32."""
        return sum(self._view) & 0xFFFFFFFF


class Gpu:
    """The primary context of device 0 with the module loaded. Owned by the thread that made it."""

    def __init__(self, image: bytes, *, stream_priority: int = 0) -> None:
        check(driver.cuInit(0))
        self.device = check(driver.cuDeviceGet(0))
        context = check(driver.cuDevicePrimaryCtxRetain(self.device))
        check(driver.cuCtxSetCurrent(context))
        self.clock = Clock()
        self._image = image  # the driver may read it lazily
        self._module = check(driver.cuModuleLoadData(image))
        self._functions: dict[str, Any] = {}
        self._stream_priority = stream_priority

    @property
    def name(self) -> str:
        """The device's name in the driver."""
        raw = check(driver.cuDeviceGetName(128, self.device))
        return bytes(raw).split(b"\0")[0].decode()

    def stream(self) -> Handle:
        """Create a stream that does not wait for the legacy one."""
        flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING.value
        return check(driver.cuStreamCreateWithPriority(flags, self._stream_priority))

    def event(self, *, timing: bool = False) -> Handle:
        """Create an event; without timing it only orders."""
        flags = driver.CUevent_flags
        chosen = flags.CU_EVENT_DEFAULT if timing else flags.CU_EVENT_DISABLE_TIMING
        return check(driver.cuEventCreate(chosen.value))

    def record(self, event: Handle, stream: Handle) -> None:
        """Record the event in the stream."""
        check(driver.cuEventRecord(event, stream))

    def wait(self, stream: Handle, event: Handle) -> None:
        """Make the stream's later work wait for the event."""
        check(driver.cuStreamWaitEvent(stream, event, 0))

    def elapsed_ms(self, start: Handle, end: Handle) -> float:
        """The time between two completed timing events."""
        return float(check(driver.cuEventElapsedTime(start, end)))

    def synchronize(self, stream: Handle) -> None:
        """Block until the stream is empty."""
        check(driver.cuStreamSynchronize(stream))

    def pinned(self, words: int) -> PinnedWords:
        """Allocate page-locked host memory."""
        return PinnedWords(words, int(check(driver.cuMemHostAlloc(words * WORD_BYTES, 0))))

    def allocate(self, words: int) -> int:
        """Allocate zeroed device memory; return its address."""
        address = check(driver.cuMemAlloc(words * WORD_BYTES))
        check(driver.cuMemsetD32(address, 0, words))
        # The memset runs in the legacy stream, for which our non-blocking streams do not wait.
        check(driver.cuStreamSynchronize(driver.CUstream(0)))
        return int(address)

    def free(self, address: int) -> None:
        """Free device memory."""
        check(driver.cuMemFree(address))

    def copy_in(self, address: int, source: PinnedWords, stream: Handle) -> None:
        """Copy from host to device, in stream order."""
        check(driver.cuMemcpyHtoDAsync(address, source.address, source.bytes, stream))

    def copy_out(self, target: PinnedWords, address: int, stream: Handle) -> None:
        """Copy from device to host, in stream order."""
        check(driver.cuMemcpyDtoHAsync(target.address, address, target.bytes, stream))

    def launch(
        self,
        name: str,
        blocks: int,
        stream: Handle,
        arguments: tuple[tuple[int, ...], tuple[Any, ...]],
    ) -> None:
        """Launch a kernel of the module; `arguments` are (values, their ctypes types)."""
        if name not in self._functions:
            self._functions[name] = check(driver.cuModuleGetFunction(self._module, name.encode()))
        function = self._functions[name]
        check(driver.cuLaunchKernel(function, blocks, 1, 1, THREADS, 1, 1, 0, stream, arguments, 0))
