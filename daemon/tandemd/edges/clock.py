"""The only reader of time: the attach clock that core, shims and shared pages count in."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol


class Clock(Protocol):
    """Nanoseconds of the attach clock, and their place in the calendar."""

    @property
    def is_virtual(self) -> bool:
        """The software GPU's virtual clock, which stands still while somebody computes."""

    def now_ns(self) -> int:
        """Now."""

    def wait_until_ns(
        self, deadline_ns: int, *, looks: bool = False, only_looked: bool = False
    ) -> bool:
        """Block the calling thread until then, or until `end_wait`; whether it is then.

        `looks`: on the virtual clock it is "then" as soon as somebody else has been at work.
        `only_looked`: since the last wait the caller has written nothing that a job looks at.
        """

    def end_wait(self) -> None:
        """Have the thread that waits on the virtual clock, and looks, come back; for any thread."""

    def outside(self) -> AbstractContextManager[None]:
        """Around waiting for another process that computes: time passes meanwhile."""


class MonotonicClock:
    """CLOCK_MONOTONIC, as the shims use it."""

    is_virtual = False

    def now_ns(self) -> int:
        """Now."""
        return time.monotonic_ns()

    def wait_until_ns(
        self, deadline_ns: int, *, looks: bool = False, only_looked: bool = False
    ) -> bool:
        """Sleep until then."""
        del looks, only_looked
        time.sleep(max(0, deadline_ns - self.now_ns()) / 1e9)
        return True

    def end_wait(self) -> None:
        """Nobody waits here: on this clock the loop sleeps in the poller."""

    def outside(self) -> AbstractContextManager[None]:
        """It always passes."""
        return contextlib.nullcontext()


class SoftGpuClock:
    """The software GPU's clock, through its libcuda.so.1 (csrc/softgpu/softgpu_hooks.h).

    The thread that makes it and waits on it is an observer of the clock: virtual time does not pass
    while that thread works.
    """

    def __init__(self, library: str = "libcuda.so.1") -> None:
        """Load the library and join the clock.

        Raises:
            OSError: no such library on the library path, or it is a real driver.
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
        """As the device says."""
        return self._virtual

    def now_ns(self) -> int:
        """Now, on the device's clock."""
        return int(self._now())

    def wait_until_ns(
        self, deadline_ns: int, *, looks: bool = False, only_looked: bool = False
    ) -> bool:
        """Let time pass until then; `only_looked` leaves those asleep who wait for a change."""
        return bool(self._wait(looks, deadline_ns, only_looked))

    def end_wait(self) -> None:
        """Have the thread that waits and looks come back, or its next such wait end at once."""
        self._end_nap()

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        """Of the calling thread; else time stands for as long as it waits."""
        self._begin()
        try:
            yield
        finally:
            self._end()


class Calendar:
    """Unix time of moments of the attach clock; only for display.

    The distance between the two is taken once, so that a moment has one date however often it is
    asked for. Steps of the wall clock and suspends since then are not followed.
    """

    def __init__(self, clock: Clock) -> None:
        self._offset_ns = time.time_ns() - clock.now_ns()

    def wall_ns(self, at_ns: int) -> int:
        """Unix time of that moment."""
        return self._offset_ns + at_ns
