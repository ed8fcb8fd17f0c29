"""Two ranks of a job in lockstep, which share a lane with another job.

Neither rank ends an iteration that the other has not begun: it waits for the other on the host,
with its gate open. The daemon's view of them is stale: a look may leave out either rank.
"""

from collections.abc import Iterable
from itertools import chain, repeat

from tandemd.core.events import ProcessAttached, SetStepLimit, UsageSampled
from tandemd.core.model import JobSpec, Options, Usage, WaitReason
from tandemd.core.scheduler import Scheduler

MS = 1_000_000
DRAIN_MS = 5
RANKS = (1, 2)
OTHER = 3  # the other job's only process


class Ranks:
    def __init__(self, *, begun: int, lead: int):
        """Starts with so many iterations marked by each rank, and `lead` more by the first."""
        self.now_ns = MS
        self.core = Scheduler(Options(policy="lanes", drain_ns=DRAIN_MS * MS))
        self.core.memory.line.capacity_bytes = {0: 10}
        self.steps = dict.fromkeys(RANKS, begun + 1)
        self.steps[1] += lead
        self.limits = dict.fromkeys(RANKS, 0)
        self.stopped = dict.fromkeys(RANKS, 0)
        for rank in RANKS:
            self._attach(rank, job_id=1)
        self.look(*RANKS)

    def hand_on(self, choices: Iterable[tuple[int, int]]) -> bool:
        """Tell whether the other job gets its turn in the end.

        A choice names the rank that goes on next, if it can, and the one that a look leaves out.
        """
        self._attach(OTHER, job_id=2)
        waits = Usage(process_id=OTHER, waiting_threads=1, wait_reason=WaitReason.GATE)
        self._tell(UsageSampled(now_ns=self.now_ns, samples=(waits,)))
        other = self.core.group_of(self.core.jobs[2])
        assert other.barred
        patience = repeat((0, 2), 10 * DRAIN_MS)
        for number, (first, unseen) in enumerate(chain(choices, patience)):
            self.go_on(RANKS[(first + number) % 2])
            self.look(*(rank for rank in RANKS if rank != unseen + 1))
            if not other.barred:
                return True
        return False

    def go_on(self, rank: int) -> None:
        """Ends an iteration, unless the rank stands or the other has not come as far."""
        limit, other = self.limits[rank], 3 - rank
        lead = self.steps[rank] - self.steps[other]
        if self.stands(rank) or lead > 0 or (lead == 0 and self.stands(other)):
            return
        self.steps[rank] += 1
        if 0 < limit <= self.steps[rank]:
            self.stopped[rank] = self.steps[rank]

    def stands(self, rank: int) -> bool:
        return 0 < self.limits[rank] <= self.stopped[rank]

    def look(self, *ranks: int) -> None:
        self.now_ns += MS
        samples = [
            Usage(
                process_id=rank,
                busy=not self.stands(rank),
                device_bytes=1,
                steps=self.steps[rank],
                stopped=self.stopped[rank],
            )
            for rank in ranks
        ]
        self._tell(UsageSampled(now_ns=self.now_ns, samples=tuple(samples)))

    def _attach(self, process_id: int, *, job_id: int) -> None:
        spec = JobSpec(persistent_bytes=2, ephemeral_bytes=6)
        self._tell(
            ProcessAttached(
                now_ns=self.now_ns,
                process_id=process_id,
                job_id=job_id,
                uid=1,
                gpu=0,
                spec=spec,
            )
        )

    def _tell(self, event: ProcessAttached | UsageSampled) -> None:
        for action in self.core.handle(event):
            if isinstance(action, SetStepLimit) and action.process_id in RANKS:
                self.limits[action.process_id] = action.steps
