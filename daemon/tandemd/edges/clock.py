"""The only reader of time: the attach clock that core, shims and shared pages count in."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol


class Clock(Protocol):
    """Nanoseconds of the attach clock."""

    @property
    def is_virtual(self) -> bool:
        """Tell whether it is the software GPU's virtual clock, stopped while programs compute."""

    def now_ns(self) -> int:
        """Return the present time."""

    def wait_until_ns(
        self, deadline_ns: int, *, looks: bool = False, only_looked: bool = False
    ) -> bool:
        """Block the calling thread until then, or until `end_wait`; returns whether it is time.

        `looks`: on the virtual clock it is also time as soon as another program has been at work.
        `only_looked`: since the last wait the caller has written nothing that a job reads.
        """

    def end_wait(self) -> None:
        """Wake the thread that waits on the virtual clock with `looks`. Any thread."""

    def outside(self) -> AbstractContextManager[None]:
        """Return a context for waiting for another process that computes: time passes meanwhile."""


class MonotonicClock:
    """CLOCK_MONOTONIC, as the shims use it."""

    is_virtual = False

    def now_ns(self) -> int:
        """Return the present time."""
        return time.monotonic_ns()

    def wait_until_ns(
        self, deadline_ns: int, *, looks: bool = False, only_looked: bool = False
    ) -> bool:
        """Sleep until then."""
        del looks, only_looked
        time.sleep(max(0, deadline_ns - self.now_ns()) / 1e9)
        return True

    def end_wait(self) -> None:
        """Do nothing: on this clock the loop sleeps in the poller, not here."""

    def outside(self) -> AbstractContextManager[None]:
        """Do nothing: real time always passes."""
        return contextlib.nullcontext()


class SoftGpuClock:
    """The software GPU's clock, through its libcuda.so.1 (csrc/softgpu/softgpu_hooks.h).

    The thread that creates it and waits on it is an observer of the clock: virtual time does not
    pass while that thread works.
    """

    def __init__(self, library: str = "libcuda.so.1") -> None:
        """Load the library and join the clock.

        Raises:
            OSError: no such library is on the library path, or it is a real driver's.
        """
        driver = ctypes.CDLL(library)
        try:
            self._now = driver.softgpu_now_ns
            self._wait, self._end_nap = driver.softgpu_wait_for_change, driver.softgpu_end_nap
            observe = driver.softgpu_observe
            is_virtual = driver.softgpu_clock_is_virtual
            self._begin, self._end = driver.softgpu_wait_begin, driver.softgpu_wait_end
        except AttributeError as missing:
            raise OSError(f"{library} is not the software GPU's: {missing}") from None
        self._now.restype = ctypes.c_uint64
        self._wait.restype = ctypes.c_int
        self._end_nap.restype = None
        self._wait.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int]
        observe.restype = None
        is_virtual.restype = ctypes.c_int
        observe()
        self._virtual = bool(is_virtual())

    @property
    def is_virtual(self) -> bool:
        """Tell whether the device's clock is virtual."""
        return self._virtual

    def now_ns(self) -> int:
        """Return the present time of the device's clock."""
        return int(self._now())

    def wait_until_ns(
        self, deadline_ns: int, *, looks: bool = False, only_looked: bool = False
    ) -> bool:
        """Let time pass until then; `only_looked` does not wake those that wait for a change."""
        return bool(self._wait(looks, deadline_ns, only_looked))

    def end_wait(self) -> None:
        """Wake the thread that waits with `looks`, or have the next such wait end at once."""
        self._end_nap()

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        """Take the calling thread out of the clock, which would else stop while it waits."""
        self._begin()
        try:
            yield
        finally:
            self._end()


class Calendar:
    """Converts times of the attach clock to Unix time; only for display.

    The offset between the two is taken once, so that a moment always has the same date. Later steps
    of the wall clock and suspends are not followed.
    """

    def __init__(self, clock: Clock) -> None:
        self._offset_ns = time.time_ns() - clock.now_ns()

    def wall_ns(self, at_ns: int) -> int:
        """Return the Unix time of a moment."""
        return self._offset_ns + at_ns
