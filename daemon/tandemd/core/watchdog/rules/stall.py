"""A job that kept a steady pace, and of which nothing is submitted or completed any more."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tandemd.core.model import JobClass, WaitReason
from tandemd.core.watchdog.finding import Finding
from tandemd.core.watchdog.history import History
from tandemd.core.watchdog.look import Look
from tandemd.core.watchdog.words import span

WHY = "it holds its memory and its place, and does nothing with them"
GPU = Finding(
    rule="stall",
    since_ns=0,
    what="the gpu has had the same work of it, and has completed none of it",
    why=WHY,
    advice="a kernel that does not end, or a stream that waits for a value, an event or another "
    "rank: look at the other ranks, then attach cuda-gdb; `tandem pause` keeps it from the others",
)
HOST = replace(
    GPU,
    what="its host submits nothing, and the gpu has nothing of it",
    advice="look at what its threads do, as with `py-spy dump`: a data loader, a lock, another "
    "rank, a checkpoint being written; a job that only waits for its user is none of these",
)
OURS = replace(
    GPU,
    what="it has waited at its gate for longer than any job may be held",
    why="this is a fault of Tandem, not of the job",
    advice="please report it, with the output of `tandem explain`; "
    "until then, `tandem pause` and `tandem resume` reset its gate",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """No progress for `iterations_count` usual iterations, and for at least `floor_ns`."""

    floor_ns: int = 60_000_000_000
    iterations_count: float = 10.0
    held_slack_ns: int = 2_000_000_000  # beyond `scheduler.max_hold_s`

    @property
    def span_ns(self) -> int:
        """0, because the newest look and the time of the last progress suffice."""
        return 0

    def find(self, history: History, *, standing: bool) -> Finding | None:
        """Tell apart a standstill of the GPU, one of the host, and one that is our own fault."""
        del standing  # no hysteresis: any progress ends a stall
        look = history.last
        if look.paused:
            return None
        if (since_ns := self._held_too_long_since(look)) is not None:
            return replace(OURS, since_ns=since_ns)
        usual_ns = history.iteration_ns
        limit_ns = max(self.floor_ns, int(self.iterations_count * usual_ns))
        if look.waiting or not history.is_steady or history.standstill_ns < limit_ns:
            return None
        return self._standstill(history, usual_ns)

    def _held_too_long_since(self, look: Look) -> int | None:
        since_ns = look.held_since_ns
        if since_ns is None and look.waiting == {WaitReason.GATE} and look.gate_open:
            since_ns = look.waiting_since_ns or None
        bound_ns = look.max_hold_ns + self.held_slack_ns
        return since_ns if since_ns is not None and look.now_ns - since_ns > bound_ns else None

    def _standstill(self, history: History, usual_ns: int) -> Finding | None:
        look = history.last
        if not look.busy and look.job_class is JobClass.LATENCY:
            return None  # a server without requests
        kind = GPU if look.busy else HOST
        pace = f"; an iteration usually takes {span(usual_ns)}" if usual_ns else ""
        facts = (("usual_iteration_ns", usual_ns), ("open_segments", look.open_segments))
        return replace(kind, since_ns=history.progressed_ns, what=kind.what + pace, facts=facts)
