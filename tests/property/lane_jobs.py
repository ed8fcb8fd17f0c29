"""Jobs that take device memory unit by unit, under two rules: lanes, and "it fits now".

A job takes its persistent units and then runs iterations, in each of which it takes its ephemeral
units and gives them back. At the end it gives everything back.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tandemd.core.lanes.lanes import Lanes, Need


@dataclass(frozen=True)
class Plan:
    persistent: int
    ephemeral: int
    iterations: int = 2
    is_known: bool = True  # whether its need is known before its first iteration ends

    @property
    def need(self):
        return Need(persistent_bytes=self.persistent, ephemeral_bytes=self.ephemeral)

    def acts(self) -> Iterator[str]:
        yield "come"
        if self.is_known:
            yield from ("take",) * self.persistent
        for number in range(self.iterations):
            yield "begin"
            if number == 0 and not self.is_known:
                yield from ("take",) * self.persistent  # it takes nothing before its turn
            yield from ("take",) * self.ephemeral
            yield "end"
        yield "leave"


@dataclass
class World:
    """Jobs under the rule `may(job, act)`; what it refuses is tried again later."""

    capacity: int
    plans: list[Plan]
    held: dict[int, int] = field(default_factory=dict)

    def __post_init__(self):
        self._acts = {job: list(plan.acts()) for job, plan in enumerate(self.plans)}
        self.held = dict.fromkeys(self._acts, 0)

    @property
    def free(self):
        return self.capacity - sum(self.held.values())

    def finishes(self, choices: Iterable[int]) -> bool:
        """Tell whether all jobs finish, acting as `choices` say, and then each the first that can.

        False: some jobs are left, and none of them can ever go on.
        """
        choices = iter(choices)
        refused: set[int] = set()
        while self._acts:
            able = [job for job in self._acts if job not in refused]
            if not able:
                return False
            job = able[next(choices, 0) % len(able)]
            act = self._acts[job][0]
            if not self.may(job, act):
                if job in self._acts:
                    refused.add(job)
                else:
                    refused.clear()  # it gave up and returned all that it held
                continue
            refused.clear()
            self._do(job, act)
        return True

    def may(self, job, act):
        raise NotImplementedError

    def _do(self, job, act):
        match act:
            case "take":
                self.held[job] += 1
                assert self.free >= 0
            case "end":
                self.held[job] -= self.plans[job].ephemeral
            case "leave":
                self.held[job] = 0
        self._acts[job].pop(0)
        if not self._acts[job]:
            del self._acts[job]


class ItFitsNow(World):
    """Progressive: whoever finds room takes it, and whoever does not waits for it."""

    def may(self, job, act):
        return act != "take" or self.free > 0


class InLanes(World):
    def __init__(self, capacity, plans, order):
        super().__init__(capacity, plans)
        self.lanes = Lanes(capacity_bytes=capacity, order=order)
        self._asked, self._on, self._running = set(), set(), set()
        self._learnt = set()

    def may(self, job, act):
        return getattr(self, f"_may_{act}")(job, (0, str(job)))

    def _may_come(self, job, key):
        if job not in self._asked:
            self._asked.add(job)
            plan = self.plans[job]
            self._learn(self.lanes.request(key, plan.need if plan.is_known else None))
        return key in self._on

    def _may_begin(self, job, key):
        if key not in self._running:
            self._learn(self.lanes.want(key))
        return key in self._running

    def _may_take(self, job, key):
        if self.held[job] >= self.lanes.limit_bytes(key):
            assert not self.plans[job].is_known, "what was promised is never refused"
            self._give_up(job)
            return False
        assert self.free > 0, "whoever is on the gpu must never wait for memory"
        return True

    def _may_end(self, job, key):
        self._running.discard(key)
        if not self.plans[job].is_known and key not in self._learnt:
            self._learnt.add(key)
            self._learn(self.lanes.learn(key, self.plans[job].need))
        self.lanes.charge(key, 1)
        self._learn(self.lanes.end(key))
        return True

    def _may_leave(self, job, key):
        self._learn(self.lanes.leave(key))
        return True

    def _give_up(self, job):
        """The job needs more than the others do not hold for good, so its allocation fails."""
        self._learn(self.lanes.leave((0, str(job))))
        self.held[job] = 0
        del self._acts[job]

    def _learn(self, outcome):
        self._on.update(outcome.admitted)
        self._running.update(outcome.begun)
