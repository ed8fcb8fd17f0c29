"""Explains whose turn it is, how long it lasts, and what comes with the job's own turn."""

from __future__ import annotations

from tandemd.core.explain.memory import first_in_line, ordinal, swapped_bytes
from tandemd.core.model import Group, Job, Options
from tandemd.core.scheduler import Scheduler
from tandemd.core.turns.quantum import STALLS
from tandemd.core.turns.reprieve import Reason
from tandemd.core.turns.turns import Turns
from tandemd.core.words import size_of, span_of

_KEEPS = {
    Reason.CRITICAL: "and asked not to lose it now",
    Reason.ITERATION: "until its iteration ends",
}


def explain_held(
    scheduler: Scheduler, job: Job, group: Group, island: list[Group], turns: Turns, *, now_ns: int
) -> str:
    """Why a group with work is held, and for how long at most; one sentence."""
    held_ns = now_ns - (group.hold_since_ns if group.hold_since_ns is not None else now_ns)
    most_ns = _bound_ns(scheduler, group, island, turns, held_ns)
    most = f"at most {span_of(most_ns)} more"
    holder = _holder(group, island, turns)
    if holder is None:
        busy = ", ".join(g.title for g in island if g.busy and g is not group) or "others"
        why = f"it is next, once the work of {busy} has drained"
        return f"waiting {span_of(held_ns)}: {why}; {most}"
    has = "have" if len(holder.jobs) > 1 else "has"
    who = f"{holder.title} (class {holder.job_class.name.lower()}) {has} the gpu"
    if turns.reprieve.until_ns is not None:
        longer, reason = span_of(max(0, turns.reprieve.until_ns - now_ns)), turns.reprieve.reason
        who += f" {_KEEPS[reason]} ({reason.value}: for {longer} more at most)"
    elif order := scheduler.policy.why_waits(group, holder, now_ns):
        who += f" {order}"
    memory = _comes_with_turn(scheduler, job, group)
    if not memory:
        return f"waiting {span_of(held_ns)}: {who}; {most}"
    left_ns = turns.left_of_turn_ns(scheduler.policy, scheduler.options)
    return (
        f"waits {span_of(held_ns)} for its turn{_place(group, turns)}: {who} "
        f"{_until(left_ns, most_ns)}; {most}; with the turn comes {memory}"
    )


def waits_for_turn(scheduler: Scheduler, job: Job, group: Group) -> bool:
    """Tell whether it waits for memory that comes with its turn, which another has now."""
    found = scheduler.island_of(group)
    if found is None or group.open or not group.wants:
        return False
    return _holder(group, *found) is not None and bool(_comes_with_turn(scheduler, job, group))


def piece_lines(scheduler: Scheduler, group: Group) -> list[str]:
    """What its turns are, where they go by pieces of work."""
    if not scheduler.policy.by_pieces:
        return []
    piece = group.piece
    if piece.is_known:
        most = span_of(piece.most_ns)
        each = f"each {piece.kind.word} is a turn: usually {span_of(piece.usual_ns)} of gpu time"
        return [f"{each}, at most {most} lately"]
    turn = span_of(piece.usual_ns)
    return [
        f"how long its iterations or requests take is not known: its turns are {turn} of gpu time"
    ]


def turn_lines(scheduler: Scheduler, group: Group) -> list[str]:
    """What memory means for turns; nothing if everything fits."""
    lines = []
    options, found = scheduler.options, scheduler.island_of(group)
    if group.misfit_bytes:
        lines.append(f"{_misfit(scheduler, group)} until others give that much up")
    holder = _holder(group, *found) if found else None
    if group.stall_ns:
        lines.append(_rule("its turn", group, options))
    elif holder is not None and holder.stall_ns and group.wants:
        lines.append(_rule(f"the turn of {holder.title}", holder, options))
    return lines


def _misfit(scheduler: Scheduler, group: Group) -> str:
    """How much memory the GPU lacks for it now, and why."""
    crowds = scheduler.residency.crowds
    crowd = next((crowd for gpus, crowd in crowds.items() if group.gpus <= gpus), None)
    size, ends = size_of(group.misfit_bytes), "it gets no turn"
    if crowd is not None and crowd.waits_for_the_host(group):
        limit = size_of(scheduler.options.host_limit_bytes)
        return f"host_limit ({limit}) is {size} too small for what it would displace; {ends}"
    return f"its memory is {size} too large to fit beside what cannot be moved; {ends}"


def _rule(whose: str, group: Group, options: Options) -> str:
    """How long a turn lasts that is costly to pass on."""
    what = f"passing {whose} on takes {span_of(group.stall_ns)}: memory has to be exchanged"
    if group.fill_ns:
        longer = span_of(group.fill_ns)
        what += f", and this time at least {longer} more, to fill host memory"
    if group.turn_ns >= STALLS * group.stall_ns:
        return f"{what}; it lasts at least {STALLS} times that, {span_of(group.turn_ns)}"
    lost = group.stall_ns / (group.stall_ns + group.turn_ns)
    wanted, limit = span_of(STALLS * group.stall_ns), span_of(options.max_hold_ns)
    return (
        f"{what}; {STALLS} times that would be {wanted}, but max_hold of {limit} allows "
        f"only {span_of(group.turn_ns)}: {lost:.0%} of the time is lost"
    )


def _holder(group: Group, island: list[Group], turns: Turns) -> Group | None:
    """The other group that has the turn; None: nobody has it, or the group itself."""
    return next((g for g in island if g.key == turns.holder and g is not group), None)


def _comes_with_turn(scheduler: Scheduler, job: Job, group: Group) -> str:
    """Memory that the job has or asks for and gets only with its turn; "" if none."""
    if not any(group.gpus <= gpus for gpus in scheduler.residency.crowds):
        return ""
    parts = []
    if size_bytes := swapped_bytes(job):
        parts.append(f"{size_of(size_bytes)} of its memory from the host")
    waiter = first_in_line(scheduler, job)
    if waiter is not None and scheduler.memory.line.is_asleep(waiter):
        parts.append(f"the {size_of(waiter.wait.size_bytes)} that it asks for")
    return " and ".join(parts)


def _place(group: Group, turns: Turns) -> str:
    """The group before it in line, besides the holder."""
    queue = [other for other in turns.queue() if other.key != turns.holder]
    place = queue.index(group) if group in queue else 0
    return f", {ordinal(place + 1)} in line behind {queue[place - 1].title}" if place else ""


def _until(left_ns: int | None, most_ns: int) -> str:
    """Until when another has the GPU: GPU time never passes faster than real time."""
    if left_ns is None:
        return "as long as it has work"
    if not left_ns:
        return "until its current work has completed"
    return f"for {span_of(min(left_ns, most_ns))} more, if its work lasts that long"


def _bound_ns(
    scheduler: Scheduler, group: Group, island: list[Group], turns: Turns, held_ns: int
) -> int:
    """Longest further wait: `max_hold`, and under turns by weight also everyone's quanta."""
    options, policy = scheduler.options, scheduler.policy
    bound_ns = max(0, options.max_hold_ns - held_ns)
    quantum_ns, tier = policy.quantum_ns(options), policy.tier(group)
    if quantum_ns is None or not policy.by_weight or turns.overdue(tier):
        return bound_ns
    rounds, longer_ns = 0, 0
    for rival in (g for g in island if g.wants):  # once each: there may be a thousand
        if policy.always_open(rival):
            return bound_ns
        if rival is group:
            continue
        if policy.tier(rival) < tier:
            return bound_ns
        rounds += max(1, int(rival.weight / group.weight))
        quantum_ns = max(quantum_ns, rival.turn_ns)  # passing it on may cost a lot
        if rival.critical_until_ns:
            longer_ns = max(longer_ns, options.critical_ns)
        if not rival.preemptible:
            longer_ns = max(longer_ns, options.nonpreemptible_ns)
    # Groups that share a turn are each charged only part of its time, so it lasts longer.
    quantum_ns *= 1 + sum(key is not None for key in (turns.companion, turns.third))
    return min(bound_ns, rounds * (quantum_ns + longer_ns + options.drain_ns))
