"""How much lower work may run beside a job that is to lose little by it: tried, and followed.

Slow start and then small steps, as in TGS (Wu et al., NSDI 2023, section 4; AntMan, OSDI 2020,
before it): while the rate of the protected job is what it was alone, more goes beside it; as soon
as it is not, less. TGS counts the thread blocks that two containers launch and bounds the rate of
the lower one. Here the rate of the job is that of its iterations, and what is bounded is the part
of the time in which somebody may be beside it, by a token bucket of one quantum.

Time is measured on a clock of the protected job. It stands while others have the turn before it,
so that equals, and what its class owes to lower ones (shares.py), count for nothing. It goes on in
gaps of the job's own, whoever fills these: with and without others beside it.

Rules
1. Nobody is beside a job until it is known how long its iterations take without. A job whose
   iterations are not known has nobody beside it.
2. What is found is judged once in `WINDOW_NS` and `LEAST_STEPS` iterations, from the end of one to
   the end of another. The share grows only where what was allowed was used.
3. Up to `loss` longer is harmless. The share grows by half each time up to where something was lost
   before, then by `STEP`. It shrinks by `BACK`; to a tenth where iterations take three times `loss`
   longer, and then comes back fast to half of what it was (as TCP does; Jacobson, SIGCOMM 1988).
4. Every `ANEW_NS` the job is measured without others again: what it took alone grows old. So it is
   sooner where its equals are others, the least share still does harm, or it got much faster.
   Measuring takes no more than one part in `RARELY` of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tandemd.core.model import Group, GroupKey, JobClass, Options
from tandemd.core.words import span_of

FIRST = 0.05  # of the time somebody may be beside it, to begin with
LEAST = 0.01  # or what pays for `min_share`: that the lower class else takes whole (shares.py)
EVENLY = 2.2  # time beside others counts half; a little more, so that no debt is left
FASTER = 1.5  # by so much the share grows as long as nothing was lost yet
STEP = 0.01  # and later
BACK = 0.92
HARM = 3  # times the harmless loss: then nearly all is taken back
CUT = 0.1
WINDOW_NS = 500_000_000
LEAST_STEPS = 4
CYCLES = 2  # of the bucket, in a window
USED = 0.5  # of what was allowed: with less it is not known what the rest would have done
ANEW_NS = 60_000_000_000
RARELY = 20
PATIENCE_NS = 10_000_000_000  # for that; and so long before it is done out of turn
STUBBORN = 5  # windows in a row in which the least share did harm
GAP_NS = 1_000_000_000  # without work for longer the clock stands
NEVER_NS = 2**63


@dataclass(slots=True, frozen=True)
class _Start:
    """Of a window."""

    steps: int
    clock_ns: int
    beside_ns: int


@dataclass(slots=True)
class Ward:
    """What is known of a protected job."""

    group: Group
    clock_ns: int = 0
    beside_ns: int = 0  # of that somebody was beside it
    credit_ns: float = 0.0
    is_on: bool = False  # from a full bucket to an empty one
    share: float = FIRST
    knee: float = 1.0  # up to this share it grows fast
    alone_ns: float = 0.0  # an iteration of it, with nobody beside; 0 = not known
    alone_at_ns: int = 0  # when that was measured
    due_ns: int = 0  # when it is to be measured again
    longer: float | None = None  # than that, in the newest window with others, as a part
    _start: _Start | None = None
    _seen_steps: int = 0
    _stubborn: int = 0
    _anew_since_ns: int | None = None

    def is_due(self, now_ns: int) -> bool:
        """It has to be measured alone."""
        return now_ns >= self.due_ns

    def measure_anew(self) -> None:
        """What is known of it alone may not be so any more."""
        self.due_ns = 0

    def passes(self, elapsed_ns: int, *, has_turn: bool, is_beside: bool, full_ns: int) -> None:
        """So much of its time has passed."""
        self.clock_ns += elapsed_ns
        if is_beside:
            self.beside_ns += elapsed_ns
        if has_turn:
            self.credit_ns += elapsed_ns * (self.share - is_beside)
            self.credit_ns = min(max(self.credit_ns, 0.0), full_ns)
        if self.credit_ns >= full_ns:
            self.is_on = True
        elif self.credit_ns <= 0:
            self.is_on = False

    def look(self, options: Options, now_ns: int) -> None:
        """Judge the window if an iteration ended that ends it."""
        self._watch_age(now_ns)
        steps, before = self.group.steps, self._seen_steps
        if steps == before:
            return
        self._seen_steps = steps
        start, here = self._start, _Start(steps, self.clock_ns, self.beside_ns)
        if start is None or steps < before:
            self._start = here
            return
        count, took_ns = steps - start.steps, self.clock_ns - start.clock_ns
        beside_ns = self.beside_ns - start.beside_ns
        cycle_ns = options.quantum_ns / self.share if beside_ns else 0.0
        if count < LEAST_STEPS or took_ns < max(WINDOW_NS, CYCLES * cycle_ns):
            return
        self._start = here
        if not beside_ns:
            self._note_alone(took_ns / count, options, now_ns)
        elif self.alone_ns:
            is_used = beside_ns >= USED * self.share * took_ns
            self._note_beside(took_ns / count, options, now_ns, may_grow=is_used)

    def _watch_age(self, now_ns: int) -> None:
        if not self.is_due(now_ns):
            self._anew_since_ns = None
        elif self._anew_since_ns is None:
            self._anew_since_ns, self._start = now_ns, None  # others were beside it until now
        elif self.alone_ns and now_ns - self._anew_since_ns >= self._patience_ns:
            self._know(self.alone_ns, now_ns)  # it ends none: what is known has to do

    @property
    def _patience_ns(self) -> float:
        return max(PATIENCE_NS, 2 * LEAST_STEPS * self.alone_ns)

    def _know(self, alone_ns: float, now_ns: int) -> None:
        self.alone_ns, self.alone_at_ns, self._stubborn = alone_ns, now_ns, 0
        self.due_ns = now_ns + max(ANEW_NS, int(RARELY * LEAST_STEPS * alone_ns))

    def _note_alone(self, step_ns: float, options: Options, now_ns: int) -> None:
        is_news = not self.alone_ns or abs(step_ns / self.alone_ns - 1) > options.throttle_loss
        if is_news or self.is_due(now_ns):
            self.knee = 1.0  # what was lost was lost by something else, or long ago
        self._know(step_ns if is_news else (self.alone_ns + step_ns) / 2, now_ns)

    def _note_beside(
        self, step_ns: float, options: Options, now_ns: int, *, may_grow: bool
    ) -> None:
        loss, least = options.throttle_loss, _least(options)
        self.longer = step_ns / self.alone_ns - 1
        share = self._judged(self.longer, loss, may_grow=may_grow)
        does_harm = share < self.share <= least
        self.share = min(1.0, max(least, share))
        self._stubborn = self._stubborn + 1 if does_harm else 0
        is_old = now_ns - self.alone_at_ns >= PATIENCE_NS
        if self.longer < -HARM * loss or (self._stubborn >= STUBBORN and is_old):
            self.measure_anew()

    def _judged(self, longer: float, loss: float, *, may_grow: bool) -> float:
        """The share that follows."""
        if longer > HARM * loss:
            self.knee = self.share / 2
            return self.share * CUT
        if longer > loss:
            self.knee = self.share / FASTER if self.share <= self.knee else self.share * BACK
            return self.knee
        if not may_grow:
            return self.share
        return max(self.share + STEP, min(self.share * FASTER, self.knee))


def _least(options: Options) -> float:
    """The share that is never gone below."""
    return max(LEAST, EVENLY * options.min_share)


class Throttle:
    """Of one ring. Belongs to its `Turns`, which settles it before each decision and notes after.

    What is asked between is as of the newest `settle`.
    """

    def __init__(self) -> None:
        self._wards: dict[GroupKey, Ward] = {}
        self._equals: set[GroupKey] = set()  # all of no lower class
        self._ward: Ward | None = None  # whose time passes, or passed last
        self._has_turn = False
        self._runs_until_ns = 0  # the clock of that one
        self._beside: Group | None = None
        self._since_ns = 0  # when that one joined
        self._looked_ns = 0

    def keep(self, members: Mapping[GroupKey, Group]) -> None:
        """Forget who is no longer there; with other equals jobs have gaps to themselves or not."""
        self._wards = {key: ward for key, ward in self._wards.items() if key in members}
        equals = {key for key, group in members.items() if group.job_class is not JobClass.BATCH}
        if equals != self._equals:
            self._equals = equals
            for ward in self._wards.values():
                ward.measure_anew()
        if self._ward is not None and self._ward.group.key not in self._wards:
            self._ward = self._beside = None

    def ward(self, group: Group) -> Ward | None:
        """What is known of a group; None: it never had a turn to protect."""
        return self._wards.get(group.key)

    def settle(self, options: Options, now_ns: int) -> None:
        """Take in the time since the last decision, and what the protected job did in it."""
        since_ns, self._looked_ns = self._looked_ns, now_ns
        ward = self._ward
        if ward is None:
            return
        ward.passes(
            max(0, min(now_ns, self._runs_until_ns) - since_ns),
            has_turn=self._has_turn,
            is_beside=self._beside is not None,
            full_ns=options.quantum_ns,
        )
        ward.look(options, now_ns)

    def lets_join(self, holder: Group | None, now_ns: int) -> bool:
        """Somebody may be beside the holder now."""
        ward = None if holder is None else self._wards.get(holder.key)
        return ward is not None and ward.is_on and not ward.is_due(now_ns)

    def is_over(self, options: Options, now_ns: int) -> bool:
        """Whoever is beside the holder has had its quantum; others of its class may come."""
        return now_ns - self._since_ns >= options.quantum_ns

    def note(self, holder: Group | None, beside: Group | None, now_ns: int) -> None:
        """Who has the turn from now on, and who is beside it, with their gates as they are."""
        self._has_turn = False
        if holder is not None and holder.job_class is not JobClass.BATCH:
            ward = self._wards.setdefault(holder.key, Ward(group=holder))
            self._ward, ward.group = ward, holder
            self._has_turn = holder.open  # it is not while what ran before drains
        if beside is not None and not beside.open:
            beside = None
        if self._has_turn:
            self._runs_until_ns = NEVER_NS
        elif self._ward is not None and not self._ward.group.wants:
            self._runs_until_ns = self._ward.group.last_wanted_ns + GAP_NS
        else:
            self._runs_until_ns = 0  # it waits for its turn
        if beside is not self._beside:
            self._beside, self._since_ns = beside, now_ns

    def wake_ns(self, options: Options, now_ns: int) -> int | None:
        """When to look again who is beside the holder; None: when something happens."""
        ward = self._ward
        if ward is None or not self._has_turn or ward.is_due(now_ns):
            return None
        if self._beside is None:
            if ward.is_on:
                return None
            return now_ns + int((options.quantum_ns - ward.credit_ns) / ward.share) + 1
        spends = 1 - ward.share
        over_ns = max(now_ns, self._since_ns + options.quantum_ns)
        return min(over_ns, now_ns + int(ward.credit_ns / spends) + 1) if spends else over_ns

    def told(self, group: Group, options: Options, now_ns: int) -> str:
        """What is allowed beside a group, or it beside another, in words; may be empty."""
        if not options.overlaps(group.gpus):
            return ""
        if group.job_class is JobClass.BATCH:
            return self._told_of_low()
        ward = self._wards.get(group.key)
        if ward is None:
            return ""
        if not ward.alone_ns:
            return (
                "nobody runs beside it: how long its iterations take without others is not "
                "known yet"
            )
        alone = span_of(int(ward.alone_ns))
        if ward.is_due(now_ns):
            return (
                "nobody runs beside it: how long its iterations take without others is measured "
                f"again; it was {alone}"
            )
        found = "" if ward.longer is None else f", {1 + ward.longer:.2f} times that with others"
        is_least = ward.longer is not None and ward.share <= EVENLY * options.min_share
        why = ", which min_share asks for" if is_least else ""
        return (
            f"lower classes may run beside it {ward.share:.0%} of its time{why}: its iterations "
            f"take {alone} without{found}; up to {1 + options.throttle_loss:.2f} times is allowed"
        )

    def _told_of_low(self) -> str:
        """Of whom it may run beside, and how much."""
        ward = self._ward
        if ward is None or not ward.alone_ns:
            return ""
        return (
            f"batch jobs of its user may run beside {ward.group.title} {ward.share:.0%} of the "
            "time, and while that has nothing on the gpu"
        )
