"""Run copies of a training loop in one process, offset by a phase: Wavelet's waves.

Forward passes of different waves never overlap on the GPU, nor do backward passes. But the forward
pass of one wave overlaps the backward pass of another, so one takes memory while the other releases
it (Wang et al., Wavelet, MLSys 2021). A wave is a thread with a stream of its own:

    waves = Waves(2)

    def train(wave, stream):
        with wave:
            for batch in loader:
                with wave.forward(stream):
                    loss = model(batch)
                with wave.backward(stream):
                    loss.backward()

Streams may be torch's (anything with `record_event` and `wait_event`), those of cuda.bindings and
cuda.core, or raw handles; neither library is imported unless a stream needs it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Protocol, cast

__all__ = ["Wave", "Waves"]


class _Stream(Protocol):
    """A stream with torch's methods."""

    def record_event(self) -> object: ...
    def wait_event(self, event: object) -> None: ...


class _Turns:
    """One phase (forward or backward), which the waves enter one at a time, round robin."""

    def __init__(self, count: int) -> None:
        self._condition = threading.Condition()
        self._next = 0  # the wave whose turn it is
        self._gone = [False] * count
        self._end: object = None  # the event at the end of the newest pass, on its stream

    def enter(self, wave: int) -> object:
        """Block until it is the wave's turn; return the end of the previous pass, if any."""
        with self._condition:
            self._condition.wait_for(lambda: self._next == wave)
            return self._end

    def leave(self, wave: int, end: object) -> None:
        """Pass the turn on; `end` is the event after the submitted pass."""
        with self._condition:
            self._end = end
            self._pass_on(wave)

    def leave_for_good(self, wave: int) -> None:
        """Take the wave out of the rotation, so that the others continue without it."""
        with self._condition:
            self._gone[wave] = True
            if self._next == wave:
                self._pass_on(wave)

    def _pass_on(self, wave: int) -> None:
        count = len(self._gone)
        after = ((wave + step) % count for step in range(1, count + 1))
        self._next = next((other for other in after if not self._gone[other]), wave)
        self._condition.notify_all()


class Waves:
    """The waves of a process; give `waves[0]`, `waves[1]`.. to one thread each."""

    def __init__(self, count: int = 2) -> None:
        """Make `count` waves.

        Raises:
            ValueError: fewer than one.
        """
        if count < 1:
            raise ValueError(f"there cannot be {count} waves; give 1 or more")
        phases = _Turns(count), _Turns(count)
        self._waves = [Wave(number, *phases) for number in range(count)]

    def __getitem__(self, number: int) -> Wave:
        """Return one wave, counted from 0."""
        return self._waves[number]

    def __len__(self) -> int:
        """Return the number of waves."""
        return len(self._waves)


class Wave:
    """One copy of the loop, for one thread; it ends with its `with` block, even by an exception."""

    def __init__(self, number: int, forward: _Turns, backward: _Turns) -> None:
        """Store its number and phases; called by `Waves`."""
        self._number = number
        self._forward = forward
        self._backward = backward

    @contextmanager
    def forward(self, stream: object) -> Iterator[None]:
        """Enclose the forward pass: block until the previous wave has submitted its own.

        On the GPU, `stream` waits for the end of that pass. A pass that raises also passes the turn
        on.
        """
        with _phase(self._forward, self._number, stream):
            yield

    @contextmanager
    def backward(self, stream: object) -> Iterator[None]:
        """Enclose the backward pass, as `forward` does the forward pass."""
        with _phase(self._backward, self._number, stream):
            yield

    def close(self) -> None:
        """Take no more turns, so that the others do not wait for this one."""
        self._forward.leave_for_good(self._number)
        self._backward.leave_for_good(self._number)

    def __enter__(self) -> Wave:
        """Return the wave itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


@contextmanager
def _phase(turns: _Turns, wave: int, stream: object) -> Iterator[None]:
    on_gpu = _usable(stream)
    before = turns.enter(wave)
    end = before
    try:
        if before is not None:
            on_gpu.wait_event(before)
        yield
        end = on_gpu.record_event()
    finally:
        turns.leave(wave, end)


def _usable(stream: object) -> _Stream:
    if hasattr(stream, "record_event") and hasattr(stream, "wait_event"):
        return cast("_Stream", stream)
    return _DriverStream(stream)


class _DriverStream:
    """Gives a stream of cuda.bindings or cuda.core, or a handle, torch's two methods."""

    def __init__(self, stream: object) -> None:
        from cuda.bindings import driver

        named = getattr(stream, "__cuda_stream__", None)
        self._driver = driver
        self._handle = driver.CUstream(int(named()[1] if named else cast("int", stream)))

    def record_event(self) -> object:
        """Record an event after all work in the stream; it is destroyed with its last reference."""
        event = _DriverEvent(self._driver)
        _check(self._driver.cuEventRecord(event.handle, self._handle))
        return event

    def wait_event(self, event: object) -> None:
        """Make all later work in the stream wait for the event.

        Raises:
            TypeError: the event is from another kind of stream.
        """
        if not isinstance(event, _DriverEvent):
            raise TypeError("waves need streams of one kind: torch's, or others, for all of them")
        _check(self._driver.cuStreamWaitEvent(self._handle, event.handle, 0))


class _DriverEvent:
    """An event without timing."""

    def __init__(self, driver: ModuleType) -> None:
        self._driver = driver
        flags = driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
        (self.handle,) = _check(driver.cuEventCreate(int(flags)))

    def __del__(self) -> None:
        self._driver.cuEventDestroy(self.handle)


def _check(result: tuple[Any, ...]) -> tuple[Any, ...]:
    status, *values = result
    if int(status) != 0:
        raise RuntimeError(f"the driver says {status.name}; the wave cannot go on")
    return tuple(values)
