"""One process of a job: its program, and what the shim does between that and the GPU.

The rules are the shim's (docs/shared-memory.md). Work is submitted in segments. A closed gate, a
busy peer of a more urgent class or a full window holds back the next segment, but nothing that was
submitted. They are checked in the shim's order, too (csrc/core/gate.h).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from tandemd.core.model import NO_LIMIT, JobClass, Usage, WaitReason
from tandemd.core.tuner.latency import RequestKind
from tandemd.sim.gaps import Gaps
from tandemd.sim.machine import Engine, Memory
from tandemd.sim.programs import (
    Allocate,
    Answer,
    Begin,
    Compute,
    Free,
    Mark,
    Sleep,
    SleepUntil,
    Step,
)


@dataclass(slots=True, kw_only=True)
class Commands:
    """What the daemon has told the process."""

    job_class: JobClass = JobClass.NORMAL
    is_open: bool = True
    window_segments: int = 0  # 0 = no limit
    segment_ns: int = 100_000
    looks_at: tuple[int, ...] = ()
    honours_presence: bool = True
    linger_ns: int = 0
    linger_limit_ns: int = 0
    memory_limit_bytes: int = NO_LIMIT
    lane_holds: bool = False  # a closed gate holds allocations, too
    step_limit: int = 0  # it stops at the mark that ends this step or a later one; 0 = never


@dataclass(slots=True, kw_only=True)
class Requests:
    """Requests of one process; the first field is for the report, the others for the daemon."""

    took_ns: list[int] = field(default_factory=list)  # from arrival to answer
    kind: RequestKind = RequestKind.MARKED
    told_ns: list[int] = field(default_factory=list)  # from when the process began with it

    def take_told(self) -> tuple[int, ...]:
        """Take the durations that were not reported yet."""
        told, self.told_ns = tuple(self.told_ns), []
        return told


@dataclass(slots=True, kw_only=True)
class Held:
    """Device memory of one process."""

    bytes_now: int = 0
    peak_bytes: int = 0
    iteration_end_bytes: int = 0
    iteration_peak_bytes: int = 0  # since the first iteration ended
    has_iterated: bool = False

    def change(self, size_bytes: int) -> None:
        """Add to it, or take away."""
        self.bytes_now += size_bytes
        self.peak_bytes = max(self.peak_bytes, self.bytes_now)
        if self.has_iterated:
            self.iteration_peak_bytes = max(self.iteration_peak_bytes, self.bytes_now)

    def end_iteration(self) -> None:
        """Note the end of an iteration that the process marked."""
        self.has_iterated = True
        self.iteration_end_bytes = self.bytes_now
        self.iteration_peak_bytes = max(self.iteration_peak_bytes, self.bytes_now)


class Process:
    """Runs its program as far as it can whenever called. Owns all that it has on the GPU."""

    def __init__(
        self,
        process_id: int,
        program: Iterator[Step],
        *,
        engine: Engine,
        memory: Memory,
        peers: Mapping[int, Process],
    ) -> None:
        self.process_id = process_id
        self.told = Commands()
        self.requests, self.held = Requests(), Held()
        self.steps = 0
        self.submitted_ns = 0
        self.has_ended = False
        self.problem = ""  # why it ended early
        self.waited_ns = [0] * len(WaitReason)
        self._program, self._engine, self._memory, self._peers = program, engine, memory, peers
        self._came_ns = engine.now_ns
        self._step: Step | None = None
        self._wakes_ns: int | None = None  # the end of a sleep
        self._to_submit_ns, self._kernel_ns = 0, 1
        self._in_flight = 0  # segments
        self._gaps = Gaps()
        self._idle_since_ns: int | None = None  # None: not idle, or nothing submitted yet
        self._linger_ns = 0  # as its gaps call for
        self._in_request = False
        # When a request began; when an iteration first submitted work.
        self._begun_ns = self._asked_ns = 0
        self._wait, self._wait_since_ns, self._waits = WaitReason.NONE, 0, 0
        self._marked = self._stopped = self._pieces = 0

    # What others see of it.

    @property
    def is_busy(self) -> bool:
        """Tell whether it has work on the GPU."""
        return self._in_flight > 0

    @property
    def is_waiting(self) -> bool:
        """Tell whether its thread is held back, by anything."""
        return self._wait is not WaitReason.NONE

    def held_ns(self, now_ns: int) -> int:
        """Return how long its gate or busy peers have held it back so far."""
        reasons = (WaitReason.GATE, WaitReason.PRESENCE)
        held_ns = sum(self.waited_ns[reason] for reason in reasons)
        return held_ns + (now_ns - self._wait_since_ns if self._wait in reasons else 0)

    @property
    def next_ns(self) -> int | None:
        """Return when it goes on by itself; None: others must act first."""
        if self._wait is WaitReason.PRESENCE:
            return self._peers_until_ns()
        return self._wakes_ns

    def shows_busy(self, now_ns: int) -> bool:
        """Tell whether its presence holds others back."""
        until_ns = self.presence_until_ns
        return until_ns is None or now_ns < until_ns

    @property
    def presence_until_ns(self) -> int | None:
        """Return the end of its presence; None: it will be busy first."""
        kept = self._wait in (WaitReason.GATE, WaitReason.MEMORY)
        if self.told.job_class is not JobClass.LATENCY:
            return 0
        if self._in_flight or (self._in_request and not kept):
            return None
        return 0 if self._idle_since_ns is None else self._idle_since_ns + self._linger_ns

    def usage(self, *, exclusive_ns: int, shared_ns: int) -> Usage:
        """Return what a look at its pages shows, together with what it was charged."""
        gap_p50_ns, gap_p90_ns = self._gaps.figures_ns(self._linger_ns)
        return Usage(
            process_id=self.process_id,
            busy=self.is_busy,
            waiting_threads=int(self.is_waiting),
            wait_reason=self._wait,
            wait_since_ns=self._wait_since_ns,
            wait_total_ns=tuple(self.waited_ns),
            exclusive_ns=exclusive_ns,
            shared_ns=shared_ns,
            # Contexts that take turns each have all SMs: the split is even anyway.
            even_ns=shared_ns,
            device_bytes=self.held.bytes_now,
            peak_bytes=self.held.peak_bytes,
            iteration_peak_bytes=self.held.iteration_peak_bytes,
            iteration_end_bytes=self.held.iteration_end_bytes,
            iteration_bytes=self.held.iteration_end_bytes,
            open_segments=self._in_flight,
            launches=self._pieces,
            steps=self._marked,
            iterations=self._marked,
            stopped=self._stopped,
            linger_ns=self._linger_ns,
            gap_p50_ns=gap_p50_ns,
            gap_p90_ns=gap_p90_ns,
        )

    @property
    def signs(self) -> tuple[object, ...]:
        """Return what is notable to the poller when it changes (csrc/core/daemon/snapshot.cpp)."""
        return self.is_busy, self.is_waiting, self._marked, self._waits, self._stopped

    # What happens to it.

    def refuse(self, why: str) -> None:
        """Refuse to start it."""
        self._end(f"refused: {why}")

    def segment_ended(self, now_ns: int) -> None:
        """Note that the GPU has finished one segment."""
        self._in_flight -= 1
        if not self._in_flight:
            self._gaps.work_ended(now_ns)
            self._rest(now_ns)

    def go_on(self, now_ns: int) -> bool:
        """Run as far as possible for now; returns whether it did anything."""
        before = (self._step, self._pieces, self._wait)
        while not self.has_ended and self._do(now_ns):
            self._step = next(self._program, None)
            if self._step is None:
                self._end("")
            else:
                self._enter(self._step, now_ns)
        return before != (self._step, self._pieces, self._wait)

    def _enter(self, step: Step, now_ns: int) -> None:
        match step:
            case Sleep():
                self._wakes_ns = now_ns + step.for_ns
            case SleepUntil():
                self._wakes_ns = self._came_ns + step.since_arrival_ns
            case Compute():
                self._to_submit_ns, self._kernel_ns = step.work_ns, step.kernel_ns
                self._asked_ns = self._asked_ns or now_ns
            case Allocate():
                pass  # handled in `_do`, because it may have to wait
            case Free():
                self._change_memory(-step.size_bytes)
            case Mark() | Begin() | Answer():
                self._tell(step, now_ns)
            case _:
                assert_never(step)

    def _tell(self, step: Mark | Begin | Answer, now_ns: int) -> None:
        """Handle a step that reports progress, whether or not a mark tells the daemon."""
        match step:
            case Mark(is_told=True):
                self._mark(now_ns)
            case Mark():
                self.steps += 1
            case Begin():
                self._begun_ns, self._in_request = now_ns, True
                self._ask(now_ns)
            case Answer():
                self._answer(step, now_ns)

    def _do(self, now_ns: int) -> bool:
        """Do the present step; returns whether it is done."""
        match self._step:
            case Sleep() | SleepUntil():
                if self._wakes_ns is not None and now_ns < self._wakes_ns:
                    return False
                self._wakes_ns = None
                return True
            case Compute():
                return self._submit(now_ns) and not self._in_flight
            case Allocate(size_bytes=size_bytes):
                return self._passes(self._memory_obstacle(), now_ns) and self._allocate(size_bytes)
            case _:
                return True

    def _submit(self, now_ns: int) -> bool:
        """Submit what is allowed; returns whether all of it is, or was, on the GPU."""
        while self._to_submit_ns:
            if not self._passes(self._obstacle(now_ns), now_ns):
                return False
            # Without a window nobody waits for anything between segments, so one piece is enough.
            most_ns = self._segment_ns if self.told.window_segments else self._to_submit_ns
            piece_ns = min(most_ns, self._to_submit_ns)
            self._to_submit_ns -= piece_ns
            self.submitted_ns += piece_ns
            if not self._in_flight:
                self._gaps.work_began(now_ns)
                self._ask(now_ns)
            self._in_flight += 1
            self._pieces += 1
            self._engine.submit(self.process_id, piece_ns)
        return True

    @property
    def _segment_ns(self) -> int:
        """Return the segment's length in whole kernels, because none is divided."""
        return -(-self.told.segment_ns // self._kernel_ns) * self._kernel_ns

    def _passes(self, obstacle: WaitReason, now_ns: int) -> bool:
        """Tell whether nothing is in the way; if something is, its wait begins or continues."""
        if obstacle is not self._wait:
            if self._wait is not WaitReason.NONE:
                self.waited_ns[self._wait] += now_ns - self._wait_since_ns
            else:
                self._waits += 1
            self._wait = obstacle
            self._wait_since_ns = 0 if obstacle is WaitReason.NONE else now_ns
        return obstacle is WaitReason.NONE

    def _obstacle(self, now_ns: int) -> WaitReason:
        told = self.told
        if not told.is_open or self._is_at_limit:
            return WaitReason.GATE
        if told.honours_presence and any(p.shows_busy(now_ns) for p in self._looked_at()):
            return WaitReason.PRESENCE
        if told.window_segments and self._in_flight >= told.window_segments:
            return WaitReason.WINDOW
        return WaitReason.NONE

    def _memory_obstacle(self) -> WaitReason:
        is_closed = self.told.lane_holds and not self.told.is_open
        return WaitReason.GATE if is_closed or self._is_at_limit else WaitReason.NONE

    @property
    def _is_at_limit(self) -> bool:
        """Tell whether it stopped at a mark, as its step limit demands."""
        return 0 < self.told.step_limit <= self._stopped

    def _looked_at(self) -> Iterator[Process]:
        peers = (self._peers.get(process_id) for process_id in self.told.looks_at)
        return (peer for peer in peers if peer is not None)

    def _peers_until_ns(self) -> int | None:
        """Return when the last presence that holds it back ends; None if one does not by itself."""
        latest_ns = 0
        for peer in self._looked_at():
            until_ns = peer.presence_until_ns
            if until_ns is None:
                return None
            latest_ns = max(latest_ns, until_ns)
        return latest_ns

    def _allocate(self, size_bytes: int) -> bool:
        """Allocate memory; returns whether the program goes on: one that gets none ends."""
        fits = self.held.bytes_now + size_bytes <= self.told.memory_limit_bytes
        if not fits or not self._memory.take(size_bytes):
            self._end("out of memory")
            return False
        self.held.change(size_bytes)
        return True

    def _change_memory(self, size_bytes: int) -> None:
        self.held.change(size_bytes)
        self._memory.give_back(-size_bytes)

    def _mark(self, now_ns: int) -> None:
        self.steps += 1
        self._marked += 1
        if 0 < self.told.step_limit <= self._marked:
            self._stopped = self._marked
        self.held.end_iteration()
        self.requests.kind = RequestKind.STEP
        self.requests.told_ns.append(now_ns - self._asked_ns)
        self._asked_ns = 0

    def _answer(self, answer: Answer, now_ns: int) -> None:
        self.requests.took_ns.append(now_ns - self._came_ns - answer.came_ns)
        self.requests.told_ns.append(now_ns - self._begun_ns)
        self._in_request = False
        self._rest(now_ns)

    def _ask(self, now_ns: int) -> None:
        """Begin or continue its presence."""
        if self._idle_since_ns is not None and now_ns > self._idle_since_ns:
            self._gaps.lingers.add(now_ns - self._idle_since_ns)
        self._idle_since_ns = None

    def _rest(self, now_ns: int) -> None:
        """Let its presence linger; only in the latency class, and between requests."""
        if self._in_request or self.told.job_class is not JobClass.LATENCY:
            return
        base_ns, limit_ns = self.told.linger_ns, self.told.linger_limit_ns
        self._idle_since_ns = now_ns
        self._linger_ns = self._gaps.lingers.linger_ns(base_ns, limit_ns)

    def _end(self, problem: str) -> None:
        self.has_ended, self.problem = True, problem
        self._memory.give_back(self.held.bytes_now)
        self._step = None
