"""Tries jobs side by side: keeps them so if they get more done than in turns, else undoes it.

As Gandiva packs jobs (Xiao et al., OSDI 2018, section 3.3): let them run together, compare the sum
of their progress with that of taking turns, undo it if there is no gain, and remember that for a
while. What the classes of two jobs promise is only a reason to try.

Progress is counted in iterations, each worth the time that it takes while its job holds the turn
alone. So a job alone makes one second of progress per second, and the progress of two together is
the gain: 2 if neither slows the other down, below 1 if they had better take turns. A job whose
iterations are not known is not judged.

A pair that is kept is judged again and again. Meanwhile the iteration times alone age, as does what
bounds the work. So every `ANEW_NS` the two take turns until both have been measured again.

Triples are tried in the same way, and must get more done than any two of them that were tried.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tandemd.core.model import Group, GroupKey

TRIAL_STEPS = 16  # a trial lasts for this many iterations of the slower one alone
ALONE_STEPS = 4  # with fewer, the length of an iteration is not known
_MOST_ALONE_STEPS = 64  # at this count, all earlier measurements are halved in weight
REMEMBER_NS = 60_000_000_000  # how long before a pair without gain is tried again
ANEW_NS = 60_000_000_000  # how long a pair is kept before its jobs are measured alone again
PATIENCE_NS = 5_000_000_000  # how long that may take


@dataclass(slots=True)
class _Alone:
    """What a group did while it held the turn alone."""

    time_ns: float = 0.0
    steps: float = 0.0

    def add(self, time_ns: int, steps: int) -> None:
        self.time_ns += time_ns
        self.steps += steps
        if self.steps >= _MOST_ALONE_STEPS:
            self.time_ns, self.steps = self.time_ns / 2, self.steps / 2

    @property
    def step_ns(self) -> float:
        """Time of an iteration; 0 = not known."""
        return self.time_ns / self.steps if self.steps >= ALONE_STEPS else 0.0


@dataclass(slots=True)
class _Together:
    """What two or three groups did while they held the turn together."""

    since_ns: int  # when all were last measured alone
    time_ns: int = 0
    steps: dict[GroupKey, int] = field(default_factory=dict)
    gain: float | None = None  # of the last complete trial
    undone_until_ns: int = 0
    parted_ns: int | None = None  # since when they take turns to be measured alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A trial's result for one group: the factor by which its iterations took longer."""

    key: GroupKey
    beside: tuple[GroupKey, ...]
    factor: float


class Trials:
    """The trials on one island. Belongs to its `Turns`."""

    def __init__(self) -> None:
        self.measured: list[Measured] = []  # until somebody takes them
        self._alone: dict[GroupKey, _Alone] = {}
        self._tried: dict[frozenset[GroupKey], _Together] = {}
        self._looked_ns = 0
        self._on_turn: tuple[Group, ...] = ()  # who has had the GPU since then
        self._steps: tuple[int, ...] = ()  # their step counts at that time

    def keep(self, members: Iterable[GroupKey]) -> None:
        """Forget groups that are gone."""
        known = set(members)
        self._alone = {key: alone for key, alone in self._alone.items() if key in known}
        self._tried = {keys: tried for keys, tried in self._tried.items() if keys <= known}
        self._on_turn = tuple(group for group in self._on_turn if group.key in known)
        self._steps = tuple(group.steps for group in self._on_turn)

    def look(self, on_turn: tuple[Group, ...], now_ns: int) -> None:
        """Count the work done since the last look; `on_turn` has the GPU from now on.

        That is one group alone, several together, or none while the work of others still drains.
        """
        elapsed_ns = now_ns - self._looked_ns
        before = zip(self._on_turn, self._steps, strict=True)
        done = {group.key: max(0, group.steps - steps) for group, steps in before}
        if len(done) == 1:
            (key,) = done
            self._alone.setdefault(key, _Alone()).add(elapsed_ns, done[key])
        elif done:
            self._count(frozenset(done), done, elapsed_ns, now_ns)
        self._rejoin(now_ns)
        self._looked_ns, self._on_turn = now_ns, on_turn
        self._steps = tuple(group.steps for group in on_turn)

    def is_apart(self, groups: Iterable[Group], now_ns: int) -> bool:
        """Tell whether they must take turns now: their trial failed, or they are measured anew."""
        tried = self._tried.get(frozenset(group.key for group in groups))
        return tried is not None and (tried.parted_ns is not None or now_ns < tried.undone_until_ns)

    def told(self, groups: Iterable[Group], now_ns: int) -> str:
        """The result of their trial in words; empty if there is none yet."""
        tried = self._tried.get(frozenset(group.key for group in groups))
        if tried is None or tried.gain is None:
            return ""
        text = f"tried together they got {tried.gain:.2f} times as much done as in turns"
        if now_ns < tried.undone_until_ns:
            left_s = (tried.undone_until_ns - now_ns) / 1e9
            return f"{text}, tried again in {left_s:.0f} s"
        return text if tried.parted_ns is None else f"{text}, now measured alone again"

    def _rejoin(self, now_ns: int) -> None:
        for keys, tried in self._tried.items():
            if tried.parted_ns is None:
                continue
            if all(map(self._step_ns, keys)) or now_ns - tried.parted_ns >= PATIENCE_NS:
                tried.parted_ns, tried.since_ns = None, now_ns

    def _step_ns(self, key: GroupKey) -> float:
        alone = self._alone.get(key)
        return alone.step_ns if alone else 0.0

    def _count(
        self, keys: frozenset[GroupKey], done: dict[GroupKey, int], elapsed_ns: int, now_ns: int
    ) -> None:
        tried = self._tried.setdefault(keys, _Together(since_ns=now_ns))
        tried.time_ns += elapsed_ns
        for key, steps in done.items():
            tried.steps[key] = tried.steps.get(key, 0) + steps
        step_ns = {key: self._step_ns(key) for key in keys}
        if not all(step_ns.values()) or tried.time_ns < TRIAL_STEPS * max(step_ns.values()):
            return
        tried.gain = sum(tried.steps[key] * step_ns[key] for key in keys) / tried.time_ns
        self._note_factors(tried, step_ns)
        tried.time_ns, tried.steps = 0, {}
        if tried.gain <= self._gain_without(keys):
            tried.undone_until_ns = now_ns + REMEMBER_NS
            self._tell(
                f"its trial of sharing turns failed: {tried.gain:.2f} times as much done as in "
                "turns",
                now_ns,
            )
        elif now_ns - tried.since_ns >= ANEW_NS:
            self._part(keys, now_ns)

    def _gain_without(self, keys: frozenset[GroupKey]) -> float:
        """The highest gain among fewer of them, as far as tried; at least 1."""
        fewer = (tried.gain for some, tried in self._tried.items() if some < keys)
        return max((1.0, *(gain for gain in fewer if gain is not None)))

    def _part(self, keys: frozenset[GroupKey], now_ns: int) -> None:
        """Have them take turns, and every subset of them that shares turns."""
        for some, tried in self._tried.items():
            if some <= keys:
                tried.parted_ns = now_ns
        for key in keys:
            self._alone.pop(key, None)

    def _note_factors(self, tried: _Together, step_ns: dict[GroupKey, float]) -> None:
        for key in step_ns:
            if tried.steps[key]:
                beside = tuple(sorted(step_ns.keys() - {key}))
                factor = tried.time_ns / (tried.steps[key] * step_ns[key])
                self.measured.append(Measured(key=key, beside=beside, factor=factor))

    def _tell(self, line: str, now_ns: int) -> None:
        for group in self._on_turn:
            group.tell(now_ns, line)
