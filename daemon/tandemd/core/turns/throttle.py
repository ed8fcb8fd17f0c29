"""How much lower work may run beside a job that must lose little by it, found by trial.

Slow start, then small steps, as in TGS (Wu et al., NSDI 2023, section 4; AntMan, OSDI 2020, before
it): as long as the protected job is as fast as alone, more runs beside it; as soon as it is not,
less. TGS counts the thread blocks that two containers launch and bounds the rate of the lower one.
Here the rate of the job is that of its iterations, and the bound applies to the part of the time in
which others may run beside it, through a token bucket of one quantum.

Time is measured on a clock of the protected job. It stops while others have the turn before it, so
that its peers, and time that its class owes to lower ones (shares.py), do not count. It runs on in
the job's own gaps, whoever fills them, with and without others beside it.

Rules
1. Nobody runs beside a job until the length of its iterations alone is known. A job whose
   iterations are not known never has anybody beside it.
2. The result is judged once per `WINDOW_NS` and `LEAST_STEPS` iterations, from the end of one
   iteration to the end of another. The share grows only if the allowed share was used.
3. A slowdown of up to `loss` is harmless. The share then grows by half each time until it reaches
   the level at which something was lost before, and by `STEP` from there. On a loss it shrinks by
   `BACK`, or by the last fast step if that caused it. If iterations take more than three times
   `loss` longer, it drops to a tenth and recovers fast to half of what it was (as in TCP; Jacobson,
   SIGCOMM 1988).
4. Every `ANEW_NS` the job is measured alone again, because that figure ages. This happens sooner if
   its peers change, if even the least share does harm, or if it got much faster. Measuring takes at
   most one part in `RARELY` of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tandemd.core.model import Group, GroupKey, JobClass, Options
from tandemd.core.words import span_of

FIRST = 0.05  # initial share of the time that others may be beside it
# The least share, or what pays for `min_share`, which the lower class would otherwise take whole
# (shares.py).
LEAST = 0.01
EVENLY = 2.2  # time beside others counts half; slightly more, so that no debt is left
FASTER = 1.5  # growth of the share as long as nothing was lost yet
STEP = 0.01  # growth afterwards
BACK = 0.92
HARM = 3  # times the harmless loss: beyond it, nearly all is taken back
CUT = 0.1
WINDOW_NS = 500_000_000
LEAST_STEPS = 4
CYCLES = 2  # of the bucket, within a window
USED = 0.5  # of what was allowed; with less, the effect of the rest is unknown
ANEW_NS = 60_000_000_000
RARELY = 20
# How long a measurement may take, and how old a result must be before it is repeated early.
PATIENCE_NS = 10_000_000_000
STUBBORN = 5  # windows in a row in which the least share did harm
GAP_NS = 1_000_000_000  # the clock stops after this long without work
NEVER_NS = 2**63


@dataclass(slots=True, frozen=True)
class _Start:
    """State at the start of a window."""

    steps: int
    clock_ns: int
    beside_ns: int


@dataclass(slots=True)
class Ward:
    """What is known of a protected job."""

    group: Group
    clock_ns: int = 0
    beside_ns: int = 0  # part of `clock_ns` with somebody beside it
    credit_ns: float = 0.0
    is_on: bool = False  # others may join: from when its bucket is full until it is empty
    share: float = FIRST
    knee: float = 1.0  # up to this share it grows fast
    alone_ns: float = 0.0  # length of an iteration with nobody beside it; 0 = not known
    alone_at_ns: int = 0  # when that was measured
    due_ns: int = 0  # when to measure it again
    longer: float | None = None  # relative slowdown in the newest window with others
    _start: _Start | None = None
    _seen_steps: int = 0
    _stubborn: int = 0
    _anew_since_ns: int | None = None

    def is_due(self, now_ns: int) -> bool:
        """Tell whether it must be measured alone."""
        return now_ns >= self.due_ns

    def measure_anew(self) -> None:
        """Have it measured again: what is known of it alone may be outdated."""
        self.due_ns = 0

    def passes(self, elapsed_ns: int, *, has_turn: bool, is_beside: bool, full_ns: int) -> None:
        """Advance its clock and its bucket by the elapsed time."""
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
        """Judge the window if an iteration ended that completes it."""
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
            self._know(self.alone_ns, now_ns)  # it ends no iteration: keep the old figure

    @property
    def _patience_ns(self) -> float:
        return max(PATIENCE_NS, 2 * LEAST_STEPS * self.alone_ns)

    def _know(self, alone_ns: float, now_ns: int) -> None:
        self.alone_ns, self.alone_at_ns, self._stubborn = alone_ns, now_ns, 0
        self.due_ns = now_ns + max(ANEW_NS, int(RARELY * LEAST_STEPS * alone_ns))

    def _note_alone(self, step_ns: float, options: Options, now_ns: int) -> None:
        is_news = not self.alone_ns or abs(step_ns / self.alone_ns - 1) > options.throttle_loss
        if is_news or self.is_due(now_ns):
            self.knee = 1.0  # earlier losses had another cause, or are long ago
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
        """The next share."""
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
    """The lower bound of the share."""
    return max(LEAST, EVENLY * options.min_share)


class Throttle:
    """The throttle of one ring. Its `Turns` calls `settle` before a decision and `note` after it.

    Answers in between are as of the newest `settle`.
    """

    def __init__(self) -> None:
        self._wards: dict[GroupKey, Ward] = {}
        self._equals: set[GroupKey] = set()  # all groups above the lowest class
        self._ward: Ward | None = None  # the job whose clock runs, or ran last
        self._has_turn = False
        self._runs_until_ns = 0  # until when its clock runs
        self._beside: Group | None = None
        self._since_ns = 0  # when `_beside` joined
        self._looked_ns = 0

    def keep(self, members: Mapping[GroupKey, Group]) -> None:
        """Forget groups that left; with other peers, jobs must be measured anew."""
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
        """Account the time since the last decision, and what the protected job did in it."""
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
        """Tell whether another group may be beside the holder now."""
        ward = None if holder is None else self._wards.get(holder.key)
        return ward is not None and ward.is_on and not ward.is_due(now_ns)

    def is_over(self, options: Options, now_ns: int) -> bool:
        """Tell whether the group beside the holder has had its quantum; its peers may follow."""
        return now_ns - self._since_ns >= options.quantum_ns

    def note(self, holder: Group | None, beside: Group | None, now_ns: int) -> None:
        """Note who has the turn from now on and who is beside it, given their gates."""
        self._has_turn = False
        if holder is not None and holder.job_class is not JobClass.BATCH:
            ward = self._wards.setdefault(holder.key, Ward(group=holder))
            self._ward, ward.group = ward, holder
            self._has_turn = holder.open  # it has not while earlier work drains
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
        """When to review who is beside the holder; None: only when something happens."""
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
        """What may run beside a group, or beside what it may run, in words; may be empty."""
        if not options.overlaps(group.gpus):
            return ""
        if group.job_class is JobClass.BATCH:
            return self._told_of_low(now_ns)
        ward = self._wards.get(group.key)
        if ward is None:
            return ""
        if not ward.alone_ns:
            return (
                "no job runs beside it: how long its iterations take without others is not "
                "known yet"
            )
        alone = span_of(int(ward.alone_ns))
        if ward.is_due(now_ns):
            return (
                "no job runs beside it: how long its iterations take without others is measured "
                f"again; it was {alone}"
            )
        found = "" if ward.longer is None else f", {1 + ward.longer:.2f} times that with others"
        is_least = ward.longer is not None and ward.share <= EVENLY * options.min_share
        why = ", as required by min_share" if is_least else ""
        return (
            f"lower classes may run beside it {ward.share:.0%} of its time{why}: its iterations "
            f"take {alone} alone{found}; up to {1 + options.throttle_loss:.2f} times is allowed"
        )

    def _told_of_low(self, now_ns: int) -> str:
        """Beside which job a batch job may run, and how much."""
        ward = self._ward
        if ward is None or not ward.alone_ns:
            return ""
        if ward.is_due(now_ns):
            return (
                f"no batch job runs beside {ward.group.title}, whose iterations are measured again"
            )
        return (
            f"batch jobs of its user may run beside {ward.group.title} {ward.share:.0%} of the "
            "time, and whenever that job has nothing on the gpu"
        )
