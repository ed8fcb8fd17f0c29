"""Whether jobs that share a turn get more done than one after the other: tried, kept or undone.

As Gandiva packs jobs (Xiao et al., OSDI 2018, section 3.3): let them run together, compare the sum
of their progress with that of taking turns, undo it where there is no gain, and remember that for a
while. What the classes of two jobs promise is only a reason to try.

Progress is counted in iterations, and one is worth the time that it takes its job while that holds
the turn alone. So whoever holds it alone makes a second of progress a second, and two together make
the gain: 2 where neither slows the other down, below 1 where they had better take turns. A job
whose iterations are not known is not judged.

A pair that is kept is judged again and again. What an iteration takes alone grows old meanwhile, as
does what bounds it: so every `ANEW_NS` the two take turns until both have been measured again.

Three are tried in the same way, and have to get more done than any two of them that were tried.
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
class _Together:
    """What two or three groups did while they held the turn together."""

    since_ns: int  # when all were measured alone
    time_ns: int = 0
    steps: dict[GroupKey, int] = field(default_factory=dict)
    gain: float | None = None  # of the last whole trial
    undone_until_ns: int = 0
    parted_ns: int | None = None  # since when they take turns to be measured alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A trial's result for one of them: how many times as long its iterations took."""

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
        self._on_turn: tuple[Group, ...] = ()  # since then
        self._steps: tuple[int, ...] = ()  # theirs, then

    def keep(self, members: Iterable[GroupKey]) -> None:
        """Forget who is no longer there."""
        known = set(members)
        self._alone = {key: alone for key, alone in self._alone.items() if key in known}
        self._tried = {keys: tried for keys, tried in self._tried.items() if keys <= known}
        self._on_turn = tuple(group for group in self._on_turn if group.key in known)
        self._steps = tuple(group.steps for group in self._on_turn)

    def look(self, on_turn: tuple[Group, ...], now_ns: int) -> None:
        """Count what was done since the last look; `on_turn`: who has the GPU from now on.

        One group alone, several together, or none where others' work is still draining.
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
        """They take turns for now: together they got no more done, or are measured anew."""
        tried = self._tried.get(frozenset(group.key for group in groups))
        return tried is not None and (tried.parted_ns is not None or now_ns < tried.undone_until_ns)

    def told(self, groups: Iterable[Group], now_ns: int) -> str:
        """What came of it, in words; nothing where it was not judged yet."""
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
                f"its trial of sharing turns is undone: {tried.gain:.2f} times as much", now_ns
            )
        elif now_ns - tried.since_ns >= ANEW_NS:
            self._part(keys, now_ns)

    def _gain_without(self, keys: frozenset[GroupKey]) -> float:
        """The most that fewer of them got done, as far as that was tried."""
        fewer = (tried.gain for some, tried in self._tried.items() if some < keys)
        return max((1.0, *(gain for gain in fewer if gain is not None)))

    def _part(self, keys: frozenset[GroupKey], now_ns: int) -> None:
        """Let them take turns, also those of them who would share one without the others."""
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
