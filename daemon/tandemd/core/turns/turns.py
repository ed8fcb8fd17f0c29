"""Turns on one island: whose gate is open now, and when to look again.

Rules
1. While any group that takes turns has work, at most one of them holds the island, alone or with
   companions (rules 8 and 9). When none has work, all gates are open. Paused groups are closed;
   exempt ones (policy, undrainable) are open.
2. A hand-over is quiescent: the old holder's gate closes, and the new holder's opens only when no
   other group has work left on the GPU.
3. A closed group is reopened if none of its work ends for `drain_ns`, or for twice the time that
   the last piece took if that is longer. It stays open until a step, a quiet moment or a second has
   passed; then it is closed again. After `drain_tries` failures it is undrainable and takes no more
   turns. A shrinking backlog of earlier submissions is no failure, for `max_hold_ns` in all
   (backlog.py).
4. A group with work is held for at most `max_hold_ns` at a stretch: then it gets a quantum, under
   any policy.
5. A group that only waits at an open gate for `UNUSED_NS` has no claim until it has work on the
   GPU: what a process says about its waiting threads is a hint and must not cost others their
   turns.
6. If memory must move for a hand-over, a quantum lasts many times as long as that takes
   (residency.py). A quantum may be a little shorter or longer so that a turn ends with an iteration
   (quantum.py).
7. A tier that is owed its minimal share goes before everyone else (shares.py).
8. Groups that the policy allows as companions (companions.py) share the turn with the holder while
   both have work. The companion is the first in its line, chosen when the turn begins or when there
   is none. The turn is counted in the holder's GPU time; holder and companion may swap roles
   without a gate moving. Two that get no more done together are separated again for a while
   (trials.py). These measurements also tell which group of a line goes first, and which had better
   not join (foresight.py).
9. A third group joins the two if it may share a turn with each of them and the measurements predict
   that the three get more done than the two. Without measurements there is no third.
10. A holder that asks to keep the GPU now, or whose iterations must not be cut, keeps the turn a
   little longer than its peers would let it, but not against a more urgent tier or one that is owed
   its share (reprieve.py).
11. Where lower work may run beside a holder for part of the time, throttle.py says how much of it.
12. Where turns go by pieces of work (`Policy.by_pieces`), a turn ends with the holder's iteration
   or request and not with a quantum (quantum.py); it ends at once if no next piece follows. A group
   that moves ahead of others merely by waiting is looked at when it has waited long enough.

A decision looks only at the groups that changed, the holder, and the first in each line
(roster.py), so it costs the same with a hundred jobs as with three. Only the first job to begin on
a quiet GPU, and the last to end, move everybody's gate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from tandemd.core.model import Group, GroupKey, Options, Preemption
from tandemd.core.policies.policy import Policy
from tandemd.core.roster import Roster
from tandemd.core.turns.companions import Pace
from tandemd.core.turns.foresight import Foresight
from tandemd.core.turns.quantum import is_over, is_piece_over, left_ns, left_of_piece_ns
from tandemd.core.turns.reprieve import Reprieve
from tandemd.core.turns.shares import Debt
from tandemd.core.turns.throttle import Throttle
from tandemd.core.turns.trials import Trials

REOPEN_NS = 1_000_000_000  # a failed drain is tried again after this at the latest
UNUSED_NS = 1_000_000_000  # a group that waits this long at an open gate waits for something else
LOOK_AGAIN_NS = 1_000_000  # the shortest useful wait: one round of the poller


@dataclass(slots=True)
class Verdict:
    """The result of `Turns.decide`."""

    opened: list[Group] = field(default_factory=list)
    closed: list[Group] = field(default_factory=list)
    held: list[Group] = field(default_factory=list)  # have work and began to wait at the gate
    released: list[Group] = field(default_factory=list)  # had work and waited at the gate
    exempted: list[Group] = field(default_factory=list)  # became undrainable
    drained: list[Group] = field(default_factory=list)  # their work ended behind the gate
    passed: list[Group] = field(default_factory=list)  # had or have the turn, if it moved
    wake_at_ns: int | None = None

    @property
    def moved(self) -> Iterator[Group]:
        """Groups with news that others may act on."""
        return chain(self.opened, self.closed, self.exempted, self.drained, self.passed)

    def wake(self, at_ns: int) -> None:
        """Ask for another look no later than this."""
        self.wake_at_ns = at_ns if self.wake_at_ns is None else min(self.wake_at_ns, at_ns)


class Turns:
    """The turn on one island, and what each of its tiers is owed."""

    def __init__(self) -> None:
        self.holder: GroupKey | None = None
        self._holder: Group | None = None
        self.companion: GroupKey | None = None
        self._companion: Group | None = None
        self.third: GroupKey | None = None
        self._third: Group | None = None
        self.reorders = 0  # times that the turn, or the order of claims, changed
        self.trials = Trials()
        self.foresight = Foresight()
        self.throttle = Throttle()
        self._turn_served_ns = 0  # the holder's served time when its turn began
        self._reached_ns = 0.0  # virtual time of the newest holder
        self._breath = False  # the turn was given by rule 4: whole, whatever the policy says
        self._breath_until_ns = 0
        self.reprieve = Reprieve()  # of the holder
        self._debts: dict[int, Debt] = {}
        self._looked_ns: int | None = None
        self._roster = Roster()
        self._changed: dict[GroupKey, Group] = {}

    def seat(self, members: Iterable[Group], policy: Policy) -> None:
        """Take the island's groups as they are now, after one came or left or its job changed."""
        self._roster.seat(members, policy)
        self._changed = dict(self._roster.members)
        self.trials.keep(self._roster.members)
        self.throttle.keep(self._roster.members)
        self.foresight.forget()
        self._holder = self._roster.members.get(self.holder) if self.holder else None
        self._companion = self._roster.members.get(self.companion) if self.companion else None
        self._third = self._roster.members.get(self.third) if self.third else None

    def note(self, group: Group) -> None:
        """A fact of the group changed; `decide` will look at it."""
        self._changed[group.key] = group

    @property
    def overdue_tiers(self) -> set[int]:
        """Tiers that go first and yield to nobody until they get what they are owed."""
        return {tier for tier, debt in self._debts.items() if debt.overdue}

    def overdue(self, tier: int) -> bool:
        """Tell whether the tier is overdue."""
        debt = self._debts.get(tier)
        return debt is not None and debt.overdue

    def members_of(self, tier: int) -> list[Group]:
        """The groups of a tier that may claim the turn."""
        return self._roster.of_tier(tier)

    def is_shared_by(self, group: Group) -> bool:
        """Tell whether the group shares the turn with another."""
        return self._companion is not None and self._has_turn(group)

    def is_alone(self, group: Group) -> bool:
        """Tell whether it has the turn and nobody else has work on the GPU."""
        return group is self._holder and all(other is group for other in self._roster.busy)

    def left_of_turn_ns(self, policy: Policy, options: Options) -> int | None:
        """GPU time until the holder may lose the turn with work left; None: it never does.

        Also None without a holder. Preemption, and a hold of `max_hold_ns`, do not wait that long.
        """
        holder = self._holder
        quantum_ns = None if holder is None else _quantum_ns(holder, policy, options)
        if holder is None or quantum_ns is None:
            return None
        return max(0, self._left_ns(holder, policy, quantum_ns))

    def queue(self) -> list[Group]:
        """Groups that have work and may claim the turn, in the order in which they get it."""
        lines = self._roster.lines.items()
        tiers = sorted(lines, key=lambda each: (not self.overdue(each[0]), each[0]))
        return [group for _, line in tiers for group in line.in_order()]

    def virtual_now_ns(self, *, but: Group) -> float:
        """The island's virtual time: weighted service of whoever is next, or was served last.

        Start-time fair queueing (Goyal et al., SIGCOMM 1996): work that arrives after a pause
        starts from here, not from where its group stopped.
        """
        waiting = [group.virtual_ns for group in self._roster.wanting if group is not but]
        return min(waiting, default=self._reached_ns)

    def decide(self, *, policy: Policy, options: Options, now_ns: int) -> Verdict:
        """Set `open` of every group; return what changed."""
        verdict, roster = Verdict(), self._roster
        if self._holder is not None:
            self._reached_ns = max(self._reached_ns, self._holder.virtual_ns)
        changed, self._changed = self._changed, {}
        is_reordered = self._rank(changed, policy, now_ns)
        is_reordered |= self._account(changed.values(), options, now_ns)
        for group in self._check_drains(options, now_ns, verdict):
            changed[group.key] = group
        holder, before = self._holder, self._on_turn
        had_turn = (self.holder, self.companion, self.third)
        chosen, why = self._choose(policy, options, now_ns)
        self._give(chosen, options, now_ns)
        is_new = self._holder is not holder
        self._share(changed.values(), policy, options, now_ns, is_new=is_new)
        if (holder is None) != (self._holder is None):
            self._flip_quiet(now_ns, verdict)
        on_turn = self._on_turn
        if had_turn != (self.holder, self.companion, self.third):
            verdict.passed += (*before, *on_turn)
            self._count_preempted(before, why)
        self.reorders += bool(is_reordered or verdict.passed or verdict.exempted)
        for member in (*before, *on_turn):
            if member.key in roster.members:
                changed[member.key] = member
        self._set_gates(changed.values(), policy, options, now_ns, verdict)
        self._note_companions(policy, now_ns)
        self._plan_wake(on_turn, policy, options, now_ns, verdict)
        return verdict

    def _count_preempted(self, before: Iterable[Group], why: Preemption | None) -> None:
        """Count preemptions of former holders, except dozing, paused and exempt ones."""
        for group in before:
            has_work = group.wants or (group.misfit_bytes and group.calls)
            if has_work and self._roster.takes_turns(group) and not self._has_turn(group):
                group.preempt(Preemption.PARTNER if why is None else why)

    def _rank(self, changed: dict[GroupKey, Group], policy: Policy, now_ns: int) -> bool:
        """Rank the changed groups; return whether the order of claims changed."""
        is_reordered = False
        if policy.by_pieces:
            self._account_waits(changed, now_ns)
        for group in (*changed.values(), *self._roster.unused):
            _watch_use(group, now_ns)
            is_reordered |= self._roster.rank(group, policy) and not self._has_turn(group)
            changed[group.key] = group
        return is_reordered

    def _account_waits(self, changed: dict[GroupKey, Group], now_ns: int) -> None:
        """Account the waits of changed groups and of those whose rank rises with time alone."""
        for group in self._roster.risen(now_ns):
            changed[group.key] = group
        for group in changed.values():
            group.account_wait(now_ns)

    def _account(self, changed: Iterable[Group], options: Options, now_ns: int) -> bool:
        """Count what tiers are owed; return whether the order of claims changed by that."""
        is_reordered = False
        elapsed_ns = 0 if self._looked_ns is None else max(0, now_ns - self._looked_ns)
        self._looked_ns = now_ns
        served_ns = self._roster.take_served(changed)
        if self._debts.keys() != self._roster.tiers:
            self._debts = {tier: self._debts.get(tier) or Debt() for tier in self._roster.tiers}
        for tier, debt in self._debts.items():
            was_overdue = debt.overdue
            debt.account(
                waited_ns=elapsed_ns,
                served_ns=served_ns.get(tier, 0),
                wants=self._roster.wants(tier),
                options=options,
            )
            is_reordered |= debt.overdue is not was_overdue
        return is_reordered

    def _check_drains(self, options: Options, now_ns: int, verdict: Verdict) -> list[Group]:
        roster = self._roster
        if not (roster.draining or roster.reopened):
            return []
        # A group that was paused while reopened is in both.
        watched = list({g.key: g for g in (*roster.draining, *roster.reopened)}.values())
        for group in watched:
            if roster.may_claim(group):
                _check_drain(group, options, now_ns, verdict)
            elif not group.busy:
                group.drained = True
        for group in verdict.exempted:
            roster.exempt(group)
        verdict.drained += [group for group in roster.draining if group.drained]
        return watched

    def _choose(
        self, policy: Policy, options: Options, now_ns: int
    ) -> tuple[Group | None, Preemption | None]:
        """Choose the next holder, and why the present one loses the turn with work (or None)."""
        holder, why = self._holder, None
        self.reprieve.until_ns = None
        if holder is not None and (holder.misfit_bytes or not self._roster.takes_turns(holder)):
            why = Preemption.MEMORY if holder.misfit_bytes else None
            holder = None
        challenger = self._first(but=holder)
        if challenger is None:
            self.reprieve.forget()  # it keeps nobody waiting
        if holder is None or self._is_idle(holder, options, now_ns):
            return challenger, why
        if self._breath and not self._breathed(holder, options, now_ns):
            return holder, None
        starved = self._roster.held.first(but=holder)
        if starved is not None and _held_ns(starved, now_ns) >= options.max_hold_ns:
            return starved, Preemption.MAX_HOLD
        if challenger is not None:
            why = self._passes_on(holder, challenger, policy, options, now_ns)
        return (holder, None) if why is None else (challenger, why)

    def _first(self, *, but: Group | None) -> Group | None:
        """The first of the most urgent tier in which someone waits; overdue tiers before others."""
        best: tuple[bool, int, Group] | None = None
        for tier, line in self._roster.lines.items():
            group = line.first(but=but)
            if group is None:
                continue
            rank = (not self.overdue(tier), tier, group)
            if best is None or rank[:2] < best[:2]:
                best = rank
        return None if best is None else best[2]

    def _passes_on(
        self, holder: Group, challenger: Group, policy: Policy, options: Options, now_ns: int
    ) -> Preemption | None:
        """Why the turn goes to the challenger; None: it does not."""
        theirs = self.overdue(self._roster.tier(challenger))
        ours = self.overdue(self._roster.tier(holder))
        if theirs != ours:
            return Preemption.MIN_SHARE if theirs else None
        if policy.preempts(challenger, holder):
            if policy.tier(challenger) < policy.tier(holder):
                return Preemption.CLASS
            why = Preemption.ORDER if policy.by_pieces else Preemption.ARRIVAL
        elif self._may_go_on(holder, challenger, policy, options):
            return None
        else:
            why = Preemption.QUANTUM
        return None if self.reprieve.is_given(holder, options, now_ns) else why

    def _may_go_on(
        self, holder: Group, challenger: Group, policy: Policy, options: Options
    ) -> bool:
        """Tell whether the holder goes on before a challenger that does not preempt it."""
        is_over = self._is_over(holder, policy, options)
        if is_over and policy.by_pieces and not holder.wants:
            return False
        if not is_over or policy.preempts(holder, challenger):
            return True
        if policy.tier(holder) < policy.tier(challenger):
            return True
        return policy.order(challenger) > policy.order(holder)

    def _is_over(self, holder: Group, policy: Policy, options: Options) -> bool:
        quantum_ns = _quantum_ns(holder, policy, options)
        if quantum_ns is None:
            return False
        is_turn_over = is_piece_over if policy.by_pieces else is_over
        served_ns = holder.served_ns - self._turn_served_ns
        return is_turn_over(holder, served_ns=served_ns, quantum_ns=quantum_ns)

    def _left_ns(self, holder: Group, policy: Policy, quantum_ns: int) -> int:
        """GPU time until `_is_over` may change its answer."""
        left = left_of_piece_ns if policy.by_pieces else left_ns
        served_ns = holder.served_ns - self._turn_served_ns
        return left(holder, served_ns=served_ns, quantum_ns=quantum_ns)

    def _breathed(self, holder: Group, options: Options, now_ns: int) -> bool:
        served_ns = holder.served_ns - self._turn_served_ns
        whole_ns = max(options.quantum_ns, holder.turn_ns)
        return served_ns >= whole_ns or now_ns >= self._breath_until_ns + holder.turn_ns

    def _is_idle(self, holder: Group, options: Options, now_ns: int) -> bool:
        return not holder.wants and now_ns - holder.last_wanted_ns >= _grace_ns(holder, options)

    def _give(self, holder: Group | None, options: Options, now_ns: int) -> None:
        key = None if holder is None else holder.key
        self._holder = holder
        if key == self.holder:
            return
        self.holder = key
        self.reprieve.forget()
        self._breath = False
        if holder is None:
            return
        self._turn_served_ns = holder.served_ns
        self._breath = _held_ns(holder, now_ns) >= options.max_hold_ns
        self._breath_until_ns = now_ns + REOPEN_NS

    def _share(
        self,
        changed: Iterable[Group],
        policy: Policy,
        options: Options,
        now_ns: int,
        *,
        is_new: bool,
    ) -> None:
        """Let others share the turn with the holder; `is_new`: the turn has just begun."""
        if policy.companions is None:
            return
        companion = self._companion
        self._accompany(policy, options, now_ns, is_new=is_new)
        is_new |= self._companion is not companion
        found = self._roster.wanting if is_new else changed
        self._add_third(found, policy, options, now_ns, is_new=is_new)

    def _accompany(self, policy: Policy, options: Options, now_ns: int, *, is_new: bool) -> None:
        """Choose the companion of the holder, or none."""
        is_rated = policy.pace is Pace.RATED
        if is_rated:
            self.throttle.settle(options, now_ns)
            is_new |= self.throttle.is_over(options, now_ns)
        may_be_beside = not is_rated or self.throttle.lets_join(self._holder, now_ns)
        found = None if is_new or not may_be_beside else self._companion
        if found is not None and not self._may_stay(found, policy, options, now_ns):
            found = None
        if found is None and may_be_beside:
            found = self._first_beside(policy, options, now_ns)
        self._companion = found
        self.companion = None if found is None else found.key

    def _may_stay(self, group: Group, policy: Policy, options: Options, now_ns: int) -> bool:
        return (
            self._holder is not None
            and group is not self._holder
            and policy.companions is not None
            and self._roster.takes_turns(group)
            and not self._is_idle(group, options, now_ns)
            and policy.companions.may_join(group, self._holder, options)
            and not self.trials.is_apart((group, self._holder), now_ns)
        )

    def _first_beside(self, policy: Policy, options: Options, now_ns: int) -> Group | None:
        holder, companions = self._holder, policy.companions
        if holder is None or companions is None or not options.overlaps(holder.gpus):
            return None
        waiting = (
            group
            for group in self._roster.wanting
            if group is not holder
            and not group.dozing
            and companions.may_join(group, holder, options)
            and not self.trials.is_apart((group, holder), now_ns)
        )
        if not self.foresight.is_taught:
            return min(waiting, key=lambda g: (policy.order(g), g.arrival), default=None)
        return self._best_beside(holder, waiting, policy)

    def _best_beside(self, holder: Group, waiting: Iterable[Group], policy: Policy) -> Group | None:
        foresight = self.foresight
        safe = (group for group in waiting if foresight.endangered(group, holder) is None)

        def rank(group: Group) -> tuple[float, float, int]:
            return (foresight.cost(group, holder), policy.order(group), group.arrival)

        return min(safe, key=rank, default=None)

    def _add_third(
        self,
        found: Iterable[Group],
        policy: Policy,
        options: Options,
        now_ns: int,
        *,
        is_new: bool,
    ) -> None:
        """Choose a third from `found`, unless the present one may stay."""
        if self._companion is None:
            self._third = self.third = None
            return
        third = None if is_new else self._third
        if third is not None and self._may_be_third(third, policy, options, now_ns):
            return
        fitting = [
            group
            for group in found
            if group.wants and self._may_be_third(group, policy, options, now_ns)
        ]
        self._third = min(fitting, key=lambda g: (policy.order(g), g.arrival), default=None)
        self.third = None if self._third is None else self._third.key

    def _may_be_third(self, group: Group, policy: Policy, options: Options, now_ns: int) -> bool:
        holder, companion, companions = self._holder, self._companion, policy.companions
        if holder is None or companion is None or group is holder or group is companion:
            return False
        if companions is None or companions.pace is not Pace.FREE or not self.foresight.is_taught:
            return False
        three = (group, holder, companion)
        return (
            self._roster.takes_turns(group)
            and not self._is_idle(group, options, now_ns)
            and all(companions.may_join(group, other, options) for other in three[1:])
            and not any(self.trials.is_apart((group, other), now_ns) for other in three[1:])
            and not self.trials.is_apart(three, now_ns)
            and self.foresight.adds(*three)
            and self.foresight.endangered(*three) is None
        )

    def _note_companions(self, policy: Policy, now_ns: int) -> None:
        """Note who is on the GPU together from now on."""
        if policy.pace is Pace.FREE:
            self._look_at_trials(now_ns)
        elif policy.pace is Pace.RATED:
            self.throttle.note(self._holder, self._companion, now_ns)

    def _look_at_trials(self, now_ns: int) -> None:
        """Run the trials, and teach the foresight what they measured."""
        self.trials.look(self._alone_or_together(), now_ns)
        measured, self.trials.measured = self.trials.measured, []
        if measured:
            self.foresight.learn(measured, self._roster.members.values())

    def _flip_quiet(self, now_ns: int, verdict: Verdict) -> None:
        """Open or close all groups without work at once: nothing of theirs drains or waits.

        Others are not affected: while nobody has the turn, no group that takes turns has work.
        """
        should_open = self._holder is None
        moved = [
            group
            for group in self._roster.quiet
            if group.open is not should_open and not (should_open and group.misfit_bytes)
        ]
        for group in moved:
            group.open = should_open
            group.closed_at_ns = now_ns
        (verdict.opened if should_open else verdict.closed).extend(moved)

    def _set_gates(
        self,
        groups: Iterable[Group],
        policy: Policy,
        options: Options,
        now_ns: int,
        verdict: Verdict,
    ) -> None:
        roster = self._roster
        # Their work keeps a new holder waiting.
        rivals = [g for g in roster.busy if roster.takes_turns(g) or _may_drain(g, options, now_ns)]
        for group in groups:
            should_open = self._should_open(group, rivals)
            if should_open != group.open:
                (verdict.opened if should_open else verdict.closed).append(group)
                group.open = should_open
                group.drained = should_open or not group.busy
                open_ns, group.closed_at_ns = now_ns - group.closed_at_ns, now_ns
                group.unused_since_ns = None
                if not group.drained:
                    group.backlog.begin(now_ns, group.stands, open_ns=open_ns)
            _watch_hold(group, now_ns, verdict)
            roster.place(group)
            if policy.by_pieces:
                again_ns, wakes = policy.look_again_ns(group), policy.may_cut(group)
                roster.look_again(group, again_ns, wakes=wakes)
        for group in roster.draining:
            if group.is_closed and not _may_drain(group, options, now_ns):
                continue  # nobody waits for it any longer
            verdict.wake(max(_drain_due_ns(group, options), now_ns + LOOK_AGAIN_NS))

    def _should_open(self, group: Group, rivals: list[Group]) -> bool:
        if group.misfit_bytes and self._roster.may_claim(group):
            return False  # it would only wait for memory that others need
        if not self._roster.takes_turns(group):
            return not group.is_closed
        if self._holder is None:
            return True
        if not self._has_turn(group):
            return group.reopened_steps is not None
        return group.open or all(self._has_turn(rival) for rival in rivals)

    def _alone_or_together(self) -> tuple[Group, ...]:
        """Groups that have the turn, if their gates are open and no other group is busy."""
        on_turn = self._on_turn
        is_clear = all(self._has_turn(other) for other in self._roster.busy)
        return on_turn if is_clear and all(g.open and g.wants for g in on_turn) else ()

    @property
    def _on_turn(self) -> tuple[Group, ...]:
        if self._holder is not None and self._companion is None:
            return (self._holder,)  # nearly always
        members = (self._holder, self._companion, self._third)
        return tuple(member for member in members if member is not None)

    def _has_turn(self, group: Group) -> bool:
        return group is self._holder or group is self._companion or group is self._third

    def _plan_wake(
        self,
        on_turn: Iterable[Group],
        policy: Policy,
        options: Options,
        now_ns: int,
        verdict: Verdict,
    ) -> None:
        roster, holder = self._roster, self._holder
        for member in on_turn:
            if not member.wants:
                verdict.wake(member.last_wanted_ns + _grace_ns(member, options))
        if holder is not None and roster.someone_wants(but=holder):
            unused = [m.unused_since_ns for m in on_turn if m.unused_since_ns is not None]
            for since_ns in unused:
                verdict.wake(max(since_ns + UNUSED_NS, now_ns + LOOK_AGAIN_NS))
            self._plan_to_pass_on(holder, policy, options, now_ns, verdict)
        for group in roster.reopened:
            verdict.wake(max(group.reopened_until_ns, now_ns + LOOK_AGAIN_NS))
        for tier, debt in self._debts.items():
            if roster.wants(tier) and (due_ns := debt.due_in_ns(options)):
                verdict.wake(now_ns + max(due_ns, LOOK_AGAIN_NS))

    def _plan_to_pass_on(
        self, holder: Group, policy: Policy, options: Options, now_ns: int, verdict: Verdict
    ) -> None:
        quantum_ns = _quantum_ns(holder, policy, options) or options.max_hold_ns
        rest_ns = self._left_ns(holder, policy, quantum_ns)
        verdict.wake(now_ns + max(rest_ns, LOOK_AGAIN_NS))
        if (at_ns := self._roster.next_rise_ns(but=holder)) is not None:
            verdict.wake(max(at_ns, now_ns + LOOK_AGAIN_NS))
        at_ns = self.throttle.wake_ns(options, now_ns) if policy.pace is Pace.RATED else None
        if at_ns is not None:
            verdict.wake(max(at_ns, now_ns + LOOK_AGAIN_NS))
        if self.reprieve.until_ns is not None:
            verdict.wake(max(self.reprieve.until_ns, now_ns + LOOK_AGAIN_NS))
        starved = self._roster.held.first(but=holder)
        held_ns = 0 if starved is None else _held_ns(starved, now_ns)
        verdict.wake(now_ns + max(options.max_hold_ns - held_ns, LOOK_AGAIN_NS))


def _watch_hold(group: Group, now_ns: int, verdict: Verdict) -> None:
    if group.open or not group.wants or group.is_closed:
        if group.hold_since_ns is not None:
            group.end_hold(now_ns)
            if group.open:
                group.turns += 1
                verdict.released.append(group)
    elif group.hold_since_ns is None:
        group.hold_since_ns = now_ns
        verdict.held.append(group)


def _quantum_ns(holder: Group, policy: Policy, options: Options) -> int | None:
    quantum_ns = policy.quantum_ns(options)
    return None if quantum_ns is None else max(quantum_ns, holder.turn_ns)


def _grace_ns(group: Group, options: Options) -> int:
    """How long a holder without work keeps its turn.

    As long as passing it on takes, and so at most twice the cost with perfect foresight (ski
    rental; Karlin et al., Algorithmica 3, 1988). But it never keeps the turn longer without work
    than with work.
    """
    return max(options.idle_grace_ns, min(group.stall_ns, group.turn_ns))


def _watch_use(group: Group, now_ns: int) -> None:
    if group.busy or not group.wants or group.needs_memory:
        group.unused_since_ns = None
        group.dozing = False
    elif not group.open:
        group.unused_since_ns = None
    elif group.unused_since_ns is None:
        group.unused_since_ns = now_ns
    elif now_ns - group.unused_since_ns >= UNUSED_NS:
        group.dozing = True


def _may_drain(paused: Group, options: Options, now_ns: int) -> bool:
    return paused.is_closed and (paused.open or now_ns < paused.closed_at_ns + options.drain_ns)


def _drain_due_ns(group: Group, options: Options) -> int:
    if group.is_closed:
        return group.closed_at_ns + options.drain_ns
    return group.backlog.due_ns(options.drain_ns, at_most_ns=options.max_hold_ns)


def _held_ns(group: Group, now_ns: int) -> int:
    return 0 if group.hold_since_ns is None else now_ns - group.hold_since_ns


def _check_drain(group: Group, options: Options, now_ns: int, verdict: Verdict) -> None:
    is_held = group.reopened_steps is None
    if group.backlog.goes_on(now_ns, group.stands, held=is_held, at_most_ns=options.max_hold_ns):
        group.drain_failures = 0
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


def _fail_drain(group: Group, options: Options, now_ns: int, verdict: Verdict) -> None:
    group.drain_failures += 1
    if group.drain_failures >= options.drain_tries:
        group.undrainable, group.undrainable_on = True, group.set_size
        verdict.exempted.append(group)
        return
    group.reopened_steps = group.steps
    group.reopened_until_ns = now_ns + REOPEN_NS
