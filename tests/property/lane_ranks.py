"""Two ranks of a job that share a lane with another job, in step with each other.

Neither ends an iteration that the other has not begun: it waits for it on its host, with its gate
open. What is seen of them is old: a look may leave out either.
"""

from collections.abc import Iterable
from itertools import chain, repeat

from tandemd.core.events import ProcessAttached, SetStepLimit, UsageSampled
from tandemd.core.model import JobSpec, Options, Usage, WaitReason
from tandemd.core.scheduler import Scheduler

MS = 1_000_000
DRAIN_MS = 5
RANKS = (1, 2)
OTHER = 3  # the only process of the other job


class Ranks:
    def __init__(self, *, begun: int, lead: int):
        """Each has marked so many iterations, and the first so many more than the second."""
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
        """Whether the other job has its turn at last.

        A choice is which rank goes on next, if it can, and whom a look leaves out.
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
        """End an iteration, unless it stands, or the other one has not come as far."""
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
