"""The device's clock, as a program on it sees it.

On a GPU that is CLOCK_MONOTONIC. The software GPU exports its own clock from libcuda.so.1. If that
is virtual, time passes only in its own wait, and `time.sleep` would stop the world.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Reads the clock that times the device's work, and waits on it. Thread-safe."""

    def __init__(self) -> None:
        """Find the clock in the driver; call this after cuInit, when the driver is loaded."""
        driver = ctypes.CDLL("libcuda.so.1")
        self._now = getattr(driver, "softgpu_now_ns", None)
        self._wait = getattr(driver, "softgpu_wait_until_ns", None)
        self.is_virtual = False
        self._driver = driver
        if self._now is not None and self._wait is not None:
            self._now.restype = ctypes.c_uint64
            self._wait.argtypes = [ctypes.c_uint64]
            self._wait.restype = None
            self.is_virtual = bool(driver.softgpu_clock_is_virtual())

    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary start."""
        return int(self._now()) if self._now is not None else time.monotonic_ns()

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Let time pass while this thread does something that is not on the device."""
        if not self.is_virtual:
            yield
            return
        self._driver.softgpu_wait_begin()
        try:
            yield
        finally:
            self._driver.softgpu_wait_end()

    def wait_until_ns(self, deadline_ns: int) -> None:
        """Wait until the clock has reached the deadline; return at once if it already has."""
        if self._wait is not None:
            if self.now_ns() < deadline_ns:
                self._wait(deadline_ns)
            return
        while (left_ns := deadline_ns - time.monotonic_ns()) > 0:
            time.sleep(left_ns / 1e9)
