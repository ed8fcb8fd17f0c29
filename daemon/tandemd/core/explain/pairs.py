"""Explains whom a job shares its turns with, or why it shares them with nobody."""

from __future__ import annotations

from collections.abc import Iterator

from tandemd.core.model import Bound, Group, Mix, Options
from tandemd.core.scheduler import Scheduler
from tandemd.core.turns.companions import Companions, Pace
from tandemd.core.turns.turns import Turns


def partners_of(group: Group, island: list[Group], turns: Turns) -> list[Group]:
    """The groups that share the turn with it now."""
    if not turns.is_shared_by(group):
        return []
    on_turn = (turns.holder, turns.companion, turns.third)
    return [other for other in island if other is not group and other.key in on_turn]


def pair_lines(
    scheduler: Scheduler, group: Group, island: list[Group], turns: Turns, now_ns: int
) -> Iterator[str]:
    """Describe turn sharing; nothing under policies without it, or if the group takes no turns."""
    options, companions = scheduler.options, scheduler.policy.companions
    if companions is None or scheduler.policy.always_open(group):
        return
    if companions.wants_bound(group, options):
        yield from (_mix(process.mix) for process in group.processes.values())
    partners = partners_of(group, island, turns)
    for partner in partners:
        why = companions.judge(group, partner, options).why
        tried = _tried(turns.trials.told((group, partner), now_ns))
        yield f"shares its turn with {partner.title}: {why}{tried}"
        yield from _foretold(group, partner, turns)
    yield from _throttled(companions, group, turns, options, now_ns)
    if len(partners) > 1:
        yield from _foretold_of_three(group, partners, turns, now_ns)
    for other in island:
        if other is group or other in partners or scheduler.policy.always_open(other):
            continue
        judgement = companions.judge(group, other, options)
        apart = judgement.fits and turns.trials.is_apart((group, other), now_ns)
        verb = "may share" if judgement.fits and not apart else "takes"
        told = turns.trials.told((group, other), now_ns) if judgement.fits else ""
        endangered = turns.foresight.endangered(group, other) if judgement.fits else None
        if endangered is not None:
            verb, told = "takes", f"beside the other, {endangered.title} would miss its objective"
        yield f"{verb} turns with {other.title}: {judgement.why}{_tried(told)}"
        yield from _foretold(group, other, turns)


def _throttled(
    companions: Companions, group: Group, turns: Turns, options: Options, now_ns: int
) -> Iterator[str]:
    if companions.pace is Pace.RATED and (told := turns.throttle.told(group, options, now_ns)):
        yield told


def _foretold(group: Group, other: Group, turns: Turns) -> Iterator[str]:
    """Yield the predicted slowdown; nothing before anything was measured on the GPU."""
    slowdown, model = turns.foresight.slowdown(group, other), turns.foresight.model
    if slowdown is not None and model.error is not None:
        earlier = f" ({model.recalled} from before the daemon started)" if model.recalled else ""
        yield (
            f"its iterations should take {slowdown:.2f} times as long beside {other.title}: "
            f"predicted from {model.count} measurements on such a gpu{earlier}, "
            f"with an error of {model.error:.0%} each"
        )


def _foretold_of_three(
    group: Group, partners: list[Group], turns: Turns, now_ns: int
) -> Iterator[str]:
    foresight = turns.foresight
    slowdown, done = foresight.slowdown(group, *partners), foresight.done(group, *partners)
    if slowdown is not None and done is not None:
        yield (
            f"beside both at once its iterations should take {slowdown:.2f} times as long; the "
            f"three should get {done:.2f} times as much done as in turns"
            + _tried(turns.trials.told((group, *partners), now_ns))
        )


def _tried(told: str) -> str:
    return f"; {told}" if told else ""


def _mix(mix: Mix | None) -> str:
    if mix is None:
        return "what bounds its work is not known: no iteration that it ran alone was recorded yet"
    shares = sorted(((mix.shares[b], b) for b in Bound if mix.shares[b] > 0), reverse=True)
    told = ", ".join(f"{bound.name.lower()} {share:.0%}" for share, bound in shares)
    untimed = f", {mix.untimed} of them not timed" if mix.untimed else ""
    return (
        f"what bounds its work: {mix.bound.name.lower()} ({told or 'nothing timed'} of its gpu "
        f"time, of {mix.operations} operations recorded{untimed}; judged by the arguments of its "
        "kernels, not by what they compute)"
    )
