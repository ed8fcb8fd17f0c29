"""Finds what bounds the work of jobs, from an iteration of each that is recorded now and then.

A recording counts only if the process had its GPU to itself meanwhile: beside others a kernel takes
longer, and would look as if bound by something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from tandem import _native
from tandemd.core.events import WorkClassified
from tandemd.core.model import Bound, Mix, Process
from tandemd.edges.gpus import Gpu

ANEW_NS = 10_000_000_000  # between two useful recordings of a process
RETRY_NS = 1_000_000_000  # after a useless one, or one in which too much was not timed yet
MOST_SHARED = 0.1  # of its GPU time in a recording, shared with others: at a turn's edges
_PATIENCE_NS = 6_000_000_000
_MOST_LAUNCHES = 65536
_SAMPLE_NS = 5_000_000_000  # the longest that a window may take without an iteration

_CLASSES = {
    Bound.UNKNOWN: _native.OperationClass.UNKNOWN,
    Bound.COMPUTE: _native.OperationClass.COMPUTE,
    Bound.MEMORY: _native.OperationClass.MEMORY,
    Bound.COPY: _native.OperationClass.COPY,
    Bound.SMALL: _native.OperationClass.SMALL,
}


@dataclass(slots=True, kw_only=True)
class _Recording:
    asked_ns: int
    number: int  # of the sample


@dataclass(slots=True)
class Bounds:
    """Records processes on demand. `look` is for the loop's thread."""

    poller: _native.Poller
    gpus: dict[int, Gpu] = field(default_factory=dict)
    _recordings: dict[int, _Recording] = field(default_factory=dict)
    _next_ns: dict[int, int] = field(default_factory=dict)  # not before that

    def look(self, wanted: Iterable[tuple[Process, bool]], now_ns: int) -> Iterator[WorkClassified]:
        """Begin recordings that are missing or old, and yield what those that ended tell.

        `wanted` has the processes, each with whether it has its GPU to itself now.
        """
        processes = {process.process_id: (process, is_alone) for process, is_alone in wanted}
        for kept in (self._recordings, self._next_ns):
            for process_id in kept.keys() - processes.keys():
                del kept[process_id]
        for process, is_alone in processes.values():
            recording = self._recordings.get(process.process_id)
            if recording is None:
                if is_alone and process.usage.wants_gpu:
                    self._begin(process, now_ns)
            elif (mix := self._end(recording, process, now_ns)) is not None:
                yield WorkClassified(now_ns=now_ns, process_id=process.process_id, mix=mix)

    def _begin(self, process: Process, now_ns: int) -> None:
        process_id = process.process_id
        if now_ns < self._next_ns.get(process_id, 0):
            return
        # It has left, or is being sampled for another caller.
        with suppress(KeyError, RuntimeError):
            number = self.poller.begin_sample(
                process_id=process_id,
                launches=_MOST_LAUNCHES,
                with_window=True,
                timeout_ns=_SAMPLE_NS,
            )
            self._recordings[process_id] = _Recording(asked_ns=now_ns, number=number)

    def _end(self, recording: _Recording, process: Process, now_ns: int) -> Mix | None:
        """Return what a finished recording tells; None: not finished, or of no use."""
        process_id, sample = process.process_id, None
        with suppress(KeyError):
            sample = self.poller.take_sample(process_id=process_id, number=recording.number)
        if sample is None and now_ns - recording.asked_ns < _PATIENCE_NS:
            return None
        del self._recordings[process_id]
        self._next_ns[process_id] = now_ns + RETRY_NS
        if sample is None or (window := sample.window) is None:
            return None
        if window.shared_ns > MOST_SHARED * window.busy_ns:
            return None
        mix = mix_of(window, sample, self.gpus.get(process.gpu))
        if not mix.operations:
            return None
        if mix.claims:
            self._next_ns[process_id] = now_ns + ANEW_NS
        elif process.mix is not None and process.mix.claims:
            return None  # keep what is known until there is something better
        return mix


def mix_of(window: _native.Window, sample: _native.Sample, gpu: Gpu | None) -> Mix:
    """Return what bounds a window's work; without the GPU's figures only copies are recognised."""
    shares, operations, untimed = _native.bounds_of(
        window,
        sample,
        sm_count=gpu.sm_count if gpu else 0,
        bandwidth_bytes_per_s=gpu.bandwidth_bytes_per_s if gpu else 0,
    )
    return Mix(
        shares=tuple(shares[_CLASSES[bound]] for bound in Bound),
        operations=operations,
        untimed=untimed,
        at_ns=window.end_ns,
    )
