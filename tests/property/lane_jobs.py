"""Jobs that take device memory unit by unit, and two rules for who may: lanes, and "it fits now".

A job takes its persistent units, then runs iterations: it takes its ephemeral units and gives them
back. At the end it gives everything back.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tandemd.core.lanes import Lanes, Need


@dataclass(frozen=True)
class Plan:
    persistent: int
    ephemeral: int
    iterations: int = 2

    @property
    def need(self):
        return Need(persistent_bytes=self.persistent, ephemeral_bytes=self.ephemeral)

    def acts(self) -> Iterator[str]:
        yield "come"
        yield from ("take",) * self.persistent
        for _ in range(self.iterations):
            yield "begin"
            yield from ("take",) * self.ephemeral
            yield "end"
        yield "leave"


@dataclass
class World:
    """`may(job, act)` is the rule; what it refuses is tried again later."""

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
        """Whether all do, where those choices say who acts, and then the first that can.

        False: some are left, and none of them can ever go on.
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
                refused.add(job)
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
    """Progressive: whoever finds room takes it, whoever does not waits for it."""

    def may(self, job, act):
        return act != "take" or self.free > 0


class InLanes(World):
    def __init__(self, capacity, plans, order):
        super().__init__(capacity, plans)
        self.lanes = Lanes(capacity_bytes=capacity, order=order)
        self._asked, self._on, self._running = set(), set(), set()

    def may(self, job, act):
        key = (0, str(job))
        match act:
            case "come":
                if job not in self._asked:
                    self._asked.add(job)
                    self._learn(self.lanes.request(key, self.plans[job].need))
                return key in self._on
            case "begin":
                if key not in self._running:
                    self._learn(self.lanes.want(key))
                return key in self._running
            case "take":
                assert self.free > 0, "whoever is on the gpu must never wait for memory"
            case "end":
                self._running.discard(key)
                self._learn(self.lanes.end(key, spent_ns=1))
            case "leave":
                self._learn(self.lanes.leave(key))
        return True

    def _learn(self, outcome):
        self._on.update(outcome.admitted)
        self._running.update(outcome.begun)
