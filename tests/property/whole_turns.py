"""The rules of turns.py implemented the plain way: every decision looks at every group.

This is the model for the incremental decisions: slow, and short enough to be believed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tandemd.core.model import Group, GroupKey, Options
from tandemd.core.policies.policy import Policy
from tandemd.core.turns.foresight import Foresight
from tandemd.core.turns.quantum import is_over, is_piece_over, left_ns, left_of_piece_ns
from tandemd.core.turns.shares import Debt

REOPEN_NS = 1_000_000_000  # a failed drain is tried again after this at the latest
UNUSED_NS = 1_000_000_000  # a group that waits this long at an open gate waits for something else
LOOK_AGAIN_NS = 1_000_000  # the shortest useful wait: one round of the poller


@dataclass(slots=True)
class Verdict:
    """What `Turns.decide` found."""

    opened: list[Group] = field(default_factory=list)
    closed: list[Group] = field(default_factory=list)
    exempted: list[Group] = field(default_factory=list)
    held: list[Group] = field(default_factory=list)
    released: list[Group] = field(default_factory=list)
    wake_at_ns: int | None = None

    def wake(self, at_ns: int) -> None:
        """Ask to look again no later than this."""
        self.wake_at_ns = at_ns if self.wake_at_ns is None else min(self.wake_at_ns, at_ns)


@dataclass(slots=True)
class WholeTurns:
    """Stands in for `Turns`."""

    foresight: Foresight = field(default_factory=Foresight)  # nothing is measured here
    members: list[Group] = field(default_factory=list)
    policy: Policy | None = None
    reached_ns: float = 0.0
    holder: GroupKey | None = None
    companion: GroupKey | None = None
    third: GroupKey | None = None  # there is none without measurements
    turn_served_ns: int = 0  # the holder's served time when its turn began
    breath: bool = False  # a turn given by rule 4: whole, whatever the policy says
    breath_until_ns: int = 0
    kept_since_ns: int | None = None  # by rule 10, although the turn was due to its equals
    kept_until_ns: int | None = None
    debts: dict[int, Debt] = field(default_factory=dict)
    looked_ns: int | None = None
    served_before_ns: dict[GroupKey, int] = field(default_factory=dict)

    def seat(self, members: Iterable[Group], policy: Policy) -> None:
        self.members, self.policy = list(members), policy

    def note(self, group: Group) -> None:
        """Does nothing: every decision looks at every group anyway."""

    @property
    def overdue_tiers(self) -> set[int]:
        return {tier for tier in self.debts if self.overdue(tier)}

    def members_of(self, tier: int) -> list[Group]:
        claimants = [g for g in self.members if _may_claim(g, self.policy)]
        return [g for g in claimants if self.policy.tier(g) == tier]

    def virtual_now_ns(self, *, but: Group) -> float:
        waiting = [g for g in self.members if g is not but and g.wants]
        waiting = [g for g in waiting if _may_claim(g, self.policy)]
        return min((g.virtual_ns for g in waiting), default=self.reached_ns)

    def decide(self, *, policy: Policy, options: Options, now_ns: int) -> Verdict:
        groups = self.members
        for group in groups:
            if group.key == self.holder:
                self.reached_ns = max(self.reached_ns, group.virtual_ns)
        verdict = Verdict()
        for group in groups:
            group.account_wait(now_ns)
            _watch_use(group, now_ns)
        claimants = {g.key: g for g in groups if _may_claim(g, policy)}
        self._account(claimants, policy, options, now_ns)
        _check_drains(claimants.values(), options, now_ns, verdict)
        for exempt in verdict.exempted:
            claimants.pop(exempt.key, None)
        takers = {key: g for key, g in claimants.items() if not g.dozing}
        holder = self._choose(takers, policy, options, now_ns)
        before = self.holder
        self._give(holder, options, now_ns)
        companion = self._beside(holder, takers, policy, options, now_ns, before=before)
        self.companion = companion.key if companion is not None else None
        # Groups whose work keeps a new holder waiting.
        rivals = [g for g in groups if g.key in takers or _may_drain(g, options, now_ns)]
        for group in groups:
            should_open = self._should_open(group, rivals, takes_turns=group.key in takers)
            _set_gate(group, should_open=should_open, verdict=verdict, now_ns=now_ns)
            if group.is_closed and not group.busy:
                group.drained = True
            if not group.drained and (not group.is_closed or _may_drain(group, options, now_ns)):
                verdict.wake(max(_drain_due_ns(group, options), now_ns + LOOK_AGAIN_NS))
        self._plan_wake(claimants, policy, options, now_ns, verdict)
        return verdict

    def overdue(self, tier: int) -> bool:
        """Tell whether the tier goes first and yields to nobody, until it got what it is owed."""
        debt = self.debts.get(tier)
        return debt is not None and debt.overdue

    def _account(
        self, claimants: dict[GroupKey, Group], policy: Policy, options: Options, now_ns: int
    ) -> None:
        elapsed_ns = 0 if self.looked_ns is None else max(0, now_ns - self.looked_ns)
        self.looked_ns = now_ns
        tiers: dict[int, list[Group]] = {}
        for group in claimants.values():
            tiers.setdefault(policy.tier(group), []).append(group)
        for tier in self.debts.keys() - tiers.keys():
            del self.debts[tier]
        for tier, members in tiers.items():
            served_ns = sum(
                g.served_ns - self.served_before_ns.get(g.key, g.served_ns) for g in members
            )
            self.debts.setdefault(tier, Debt()).account(
                waited_ns=elapsed_ns,
                served_ns=served_ns,
                wants=any(g.wants for g in members),
                options=options,
            )
        self.served_before_ns = {key: group.served_ns for key, group in claimants.items()}

    def _choose(
        self, takers: dict[GroupKey, Group], policy: Policy, options: Options, now_ns: int
    ) -> Group | None:
        holder = takers.get(self.holder) if self.holder is not None else None
        wanting = [g for g in takers.values() if g.wants and g is not holder]
        self.kept_until_ns = None
        if not wanting:
            self.kept_since_ns = None
        if holder is not None and not self._is_idle(holder, options, now_ns):
            if self.breath and not self._breathed(holder, options, now_ns):
                return holder
            starved = max(wanting, key=lambda g: _held_ns(g, now_ns), default=None)
            if starved is not None and _held_ns(starved, now_ns) >= options.max_hold_ns:
                return starved
            challenger = self._first(wanting, policy)
            if challenger is None:
                return holder
            if not self._passes_on(holder, challenger, policy, options):
                return holder
            if self.is_as_urgent(holder, challenger, policy) and self._keeps(
                holder, options, now_ns
            ):
                return holder
            return challenger
        return self._first(wanting, policy)

    def _beside(
        self,
        holder: Group | None,
        takers: dict[GroupKey, Group],
        policy: Policy,
        options: Options,
        now_ns: int,
        *,
        before: GroupKey | None,
    ) -> Group | None:
        if holder is None or policy.companions is None:
            return None
        others = [g for g in takers.values() if g is not holder]
        fitting = [g for g in others if policy.companions.may_join(g, holder, options)]
        old = next((g for g in fitting if g.key == self.companion), None)
        stays = old is not None and before == holder.key
        if stays and not self._is_idle(old, options, now_ns):
            return old
        wanting = [g for g in fitting if g.wants]
        return min(wanting, key=lambda g: (policy.order(g), g.arrival), default=None)

    def _passes_on(
        self, holder: Group, challenger: Group, policy: Policy, options: Options
    ) -> bool:
        theirs, ours = (self.overdue(policy.tier(g)) for g in (challenger, holder))
        if theirs != ours:
            return theirs
        if policy.preempts(challenger, holder):
            return True
        served_ns = holder.served_ns - self.turn_served_ns
        quantum_ns = policy.quantum_ns(options)
        if quantum_ns is None:
            return False
        ends = is_piece_over if policy.by_pieces else is_over
        if not ends(holder, served_ns=served_ns, quantum_ns=quantum_ns):
            return False
        if policy.by_pieces and not holder.wants:
            return True
        if policy.preempts(holder, challenger):
            return False
        if policy.tier(holder) < policy.tier(challenger):
            return False
        return policy.order(challenger) <= policy.order(holder)

    def is_as_urgent(self, holder: Group, challenger: Group, policy: Policy) -> bool:
        ranks = [(not self.overdue(policy.tier(g)), policy.tier(g)) for g in (holder, challenger)]
        return ranks[0] <= ranks[1]

    def _keeps(self, holder: Group, options: Options, now_ns: int) -> bool:
        since_ns = now_ns if self.kept_since_ns is None else self.kept_since_ns
        until_ns = min(holder.critical_until_ns, since_ns + options.critical_ns)
        if not holder.preemptible and holder.served_ns > holder.step_served_ns:
            until_ns = max(until_ns, since_ns + options.nonpreemptible_ns)
        if until_ns <= now_ns:
            return False
        self.kept_since_ns, self.kept_until_ns = since_ns, until_ns
        return True

    def _breathed(self, holder: Group, options: Options, now_ns: int) -> bool:
        served_ns = holder.served_ns - self.turn_served_ns
        return served_ns >= options.quantum_ns or now_ns >= self.breath_until_ns

    def _first(self, groups: list[Group], policy: Policy) -> Group | None:
        def rank(group: Group) -> tuple[bool, int, float, int]:
            tier = policy.tier(group)
            return (not self.overdue(tier), tier, policy.order(group), group.arrival)

        return min(groups, key=rank, default=None)

    def _is_idle(self, holder: Group, options: Options, now_ns: int) -> bool:
        return not holder.wants and now_ns - holder.last_wanted_ns >= options.idle_grace_ns

    def _give(self, holder: Group | None, options: Options, now_ns: int) -> None:
        key = None if holder is None else holder.key
        if key == self.holder:
            return
        self.holder = key
        self.kept_since_ns = self.kept_until_ns = None
        self.breath = False
        if holder is None:
            return
        self.turn_served_ns = holder.served_ns
        self.breath = _held_ns(holder, now_ns) >= options.max_hold_ns
        self.breath_until_ns = now_ns + REOPEN_NS

    def _should_open(self, group: Group, rivals: list[Group], *, takes_turns: bool) -> bool:
        if group.is_closed:
            return False
        if not takes_turns or self.holder is None:
            return True
        on_turn = {self.holder, self.companion}
        if group.key not in on_turn:
            return group.reopened_steps is not None
        return group.open or not any(r.busy for r in rivals if r.key not in on_turn)

    def _plan_wake(
        self,
        claimants: dict[GroupKey, Group],
        policy: Policy,
        options: Options,
        now_ns: int,
        verdict: Verdict,
    ) -> None:
        holder = claimants.get(self.holder) if self.holder is not None else None
        pair = [g for g in claimants.values() if g.key in (self.holder, self.companion)]
        for member in (g for g in pair if not g.wants):
            verdict.wake(member.last_wanted_ns + options.idle_grace_ns)
        waiting = [g for g in claimants.values() if g.wants and g is not holder]
        if self.kept_until_ns is not None:
            verdict.wake(max(self.kept_until_ns, now_ns + LOOK_AGAIN_NS))
        if holder is not None and waiting:
            for since_ns in (g.unused_since_ns for g in pair if g.unused_since_ns is not None):
                verdict.wake(max(since_ns + UNUSED_NS, now_ns + LOOK_AGAIN_NS))
            quantum_ns = policy.quantum_ns(options) or options.max_hold_ns
            served_ns = holder.served_ns - self.turn_served_ns
            left = left_of_piece_ns if policy.by_pieces else left_ns
            rest_ns = left(holder, served_ns=served_ns, quantum_ns=quantum_ns)
            verdict.wake(now_ns + max(rest_ns, LOOK_AGAIN_NS))
            _plan_to_rise(waiting, policy, now_ns, verdict)
            rest_ns = options.max_hold_ns - max(_held_ns(g, now_ns) for g in waiting)
            verdict.wake(now_ns + max(rest_ns, LOOK_AGAIN_NS))
        for group in claimants.values():
            if group.reopened_steps is not None:
                verdict.wake(max(group.reopened_until_ns, now_ns + LOOK_AGAIN_NS))
            if group.wants and (due_ns := self.debts[policy.tier(group)].due_in_ns(options)):
                verdict.wake(now_ns + max(due_ns, LOOK_AGAIN_NS))


def _plan_to_rise(waiting: Iterable[Group], policy: Policy, now_ns: int, verdict: Verdict) -> None:
    held = [g for g in waiting if g.hold_since_ns is not None and policy.may_cut(g)]
    for at_ns in (policy.look_again_ns(g) for g in held):
        if at_ns is not None:
            verdict.wake(max(at_ns, now_ns + LOOK_AGAIN_NS))


def _set_gate(group: Group, *, should_open: bool, verdict: Verdict, now_ns: int) -> None:
    if should_open != group.open:
        (verdict.opened if should_open else verdict.closed).append(group)
        group.open = should_open
        group.drained = should_open or not group.busy
        open_ns, group.closed_at_ns = now_ns - group.closed_at_ns, now_ns
        if not group.drained:
            group.backlog.begin(now_ns, group.stands, open_ns=open_ns)
    if group.open or group.is_closed or not group.wants:
        group.end_hold(now_ns)
    elif group.hold_since_ns is None:
        group.hold_since_ns = now_ns


def _watch_use(group: Group, now_ns: int) -> None:
    if group.busy or not group.wants:
        group.unused_since_ns = None
        group.dozing = False
    elif not group.open:
        group.unused_since_ns = None
    elif group.unused_since_ns is None:
        group.unused_since_ns = now_ns
    elif now_ns - group.unused_since_ns >= UNUSED_NS:
        group.dozing = True


def _may_claim(group: Group, policy: Policy) -> bool:
    return not group.is_closed and not group.undrainable and not policy.always_open(group)


def _may_drain(paused: Group, options: Options, now_ns: int) -> bool:
    return paused.is_closed and (paused.open or now_ns < paused.closed_at_ns + options.drain_ns)


def _drain_due_ns(group: Group, options: Options) -> int:
    if group.is_closed:
        return group.closed_at_ns + options.drain_ns
    return group.backlog.due_ns(options.drain_ns, at_most_ns=options.max_hold_ns)


def _held_ns(group: Group, now_ns: int) -> int:
    return 0 if group.hold_since_ns is None else now_ns - group.hold_since_ns


def _check_drains(takers: Iterable[Group], options: Options, now_ns: int, verdict: Verdict) -> None:
    for group in takers:
        _watch_backlog(group, options, now_ns)
        if group.reopened_steps is not None:
            passed = group.steps > group.reopened_steps or now_ns >= group.reopened_until_ns
            if passed or not group.busy:
                group.reopened_steps = None
        elif not group.open and not group.drained:
            if not group.busy:
                group.drained = True
                group.drain_failures = 0
            elif now_ns >= _drain_due_ns(group, options):
                _fail_drain(group, options, now_ns, verdict)


def _watch_backlog(group: Group, options: Options, now_ns: int) -> None:
    is_held = group.reopened_steps is None
    if is_held and group.drained:
        return
    if group.backlog.goes_on(now_ns, group.stands, held=is_held, at_most_ns=options.max_hold_ns):
        group.drain_failures = 0


def _fail_drain(group: Group, options: Options, now_ns: int, verdict: Verdict) -> None:
    group.drain_failures += 1
    if group.drain_failures >= options.drain_tries:
        group.undrainable, group.undrainable_on = True, group.set_size
        verdict.exempted.append(group)
        return
    group.reopened_steps = group.steps
    group.reopened_until_ns = now_ns + REOPEN_NS
