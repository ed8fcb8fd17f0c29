"""Whether two jobs that share a turn get more done than one after the other: tried, kept or undone.

As Gandiva packs jobs (Xiao et al., OSDI 2018, section 3.3): let them run together, compare the sum
of their progress with that of taking turns, undo it where there is no gain, and remember that for a
while. What the classes of two jobs promise is only a reason to try.

Progress is counted in iterations, and one is worth the time that it takes its job while that holds
the turn alone. So whoever holds it alone makes a second of progress a second, and two together make
the gain: 2 where neither slows the other down, below 1 where they had better take turns. A job
whose iterations are not known is not judged.

A pair that is kept is judged again and again. What an iteration takes alone grows old meanwhile, as
does what bounds it: so every `ANEW_NS` the two take turns until both have been measured again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tandemd.core.model import Group, GroupKey

TRIAL_STEPS = 16  # a trial lasts for as many iterations as either of the two makes alone
ALONE_STEPS = 4  # with fewer it is not known what one takes
_MOST_ALONE_STEPS = 64  # then all that is known counts half as much
REMEMBER_NS = 60_000_000_000  # so long a pair that gained nothing is not tried again
ANEW_NS = 60_000_000_000  # so long a pair is kept before its jobs are measured alone again
PATIENCE_NS = 5_000_000_000  # for that


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
class _Pair:
    """What two groups did while they held the turn together."""

    since_ns: int  # when both were measured alone
    time_ns: int = 0
    steps: dict[GroupKey, int] = field(default_factory=dict)
    gain: float | None = None  # of the last whole trial
    undone_until_ns: int = 0
    parted_ns: int | None = None  # since when they take turns to be measured alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A trial's result for one of the two: how many times as long its iterations took."""

    key: GroupKey
    beside: GroupKey
    factor: float


class Trials:
    """The trials on one island. Belongs to its `Turns`."""

    def __init__(self) -> None:
        self.measured: list[Measured] = []  # until somebody takes them
        self._alone: dict[GroupKey, _Alone] = {}
        self._pairs: dict[frozenset[GroupKey], _Pair] = {}
        self._looked_ns = 0
        self._on_turn: tuple[Group, ...] = ()  # since then
        self._steps: tuple[int, ...] = ()  # theirs, then

    def keep(self, members: Iterable[GroupKey]) -> None:
        """Forget who is no longer there."""
        known = set(members)
        self._alone = {key: alone for key, alone in self._alone.items() if key in known}
        self._pairs = {keys: pair for keys, pair in self._pairs.items() if keys <= known}
        self._on_turn = tuple(group for group in self._on_turn if group.key in known)
        self._steps = tuple(group.steps for group in self._on_turn)

    def look(self, on_turn: tuple[Group, ...], now_ns: int) -> None:
        """Count what was done since the last look; `on_turn`: who has the GPU from now on.

        One group alone, two together, or none where others' work is still draining.
        """
        elapsed_ns = now_ns - self._looked_ns
        before = zip(self._on_turn, self._steps, strict=True)
        done = {group.key: max(0, group.steps - steps) for group, steps in before}
        if len(done) == 1:
            (key,) = done
            self._alone.setdefault(key, _Alone()).add(elapsed_ns, done[key])
        elif len(done) == 2:
            self._count(frozenset(done), done, elapsed_ns, now_ns)
        self._rejoin(now_ns)
        self._looked_ns, self._on_turn = now_ns, on_turn
        self._steps = tuple(group.steps for group in on_turn)

    def is_apart(self, one: Group, other: Group, now_ns: int) -> bool:
        """They take turns for now: together they got no more done, or are measured anew."""
        pair = self._pairs.get(frozenset((one.key, other.key)))
        return pair is not None and (pair.parted_ns is not None or now_ns < pair.undone_until_ns)

    def told(self, one: Group, other: Group, now_ns: int) -> str:
        """What came of it, in words; nothing where it was not judged yet."""
        pair = self._pairs.get(frozenset((one.key, other.key)))
        if pair is None or pair.gain is None:
            return ""
        text = f"tried together they got {pair.gain:.2f} times as much done as in turns"
        if now_ns < pair.undone_until_ns:
            left_s = (pair.undone_until_ns - now_ns) / 1e9
            return f"{text}, tried again in {left_s:.0f} s"
        return text if pair.parted_ns is None else f"{text}, now measured alone again"

    def _rejoin(self, now_ns: int) -> None:
        for keys, pair in self._pairs.items():
            if pair.parted_ns is None:
                continue
            if all(map(self._step_ns, keys)) or now_ns - pair.parted_ns >= PATIENCE_NS:
                pair.parted_ns, pair.since_ns = None, now_ns

    def _step_ns(self, key: GroupKey) -> float:
        alone = self._alone.get(key)
        return alone.step_ns if alone else 0.0

    def _count(
        self, keys: frozenset[GroupKey], done: dict[GroupKey, int], elapsed_ns: int, now_ns: int
    ) -> None:
        pair = self._pairs.setdefault(keys, _Pair(since_ns=now_ns))
        pair.time_ns += elapsed_ns
        for key, steps in done.items():
            pair.steps[key] = pair.steps.get(key, 0) + steps
        step_ns = {key: self._step_ns(key) for key in keys}
        if not all(step_ns.values()) or pair.time_ns < TRIAL_STEPS * max(step_ns.values()):
            return
        pair.gain = sum(pair.steps[key] * step_ns[key] for key in keys) / pair.time_ns
        self._note_factors(pair, step_ns)
        pair.time_ns, pair.steps = 0, {}
        if pair.gain <= 1:
            pair.undone_until_ns = now_ns + REMEMBER_NS
            self._tell(
                f"its trial of sharing turns is undone: {pair.gain:.2f} times as much", now_ns
            )
        elif now_ns - pair.since_ns >= ANEW_NS:
            pair.parted_ns = now_ns
            for key in keys:
                self._alone.pop(key, None)

    def _note_factors(self, pair: _Pair, step_ns: dict[GroupKey, float]) -> None:
        one, other = step_ns
        for key, beside in ((one, other), (other, one)):
            if pair.steps[key]:
                factor = pair.time_ns / (pair.steps[key] * step_ns[key])
                self.measured.append(Measured(key=key, beside=beside, factor=factor))

    def _tell(self, line: str, now_ns: int) -> None:
        for group in self._on_turn:
            group.tell(now_ns, line)
