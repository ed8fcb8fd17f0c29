"""Explains which phase a job is in and which it waits for."""

from __future__ import annotations

from collections.abc import Iterator

from tandemd.core.model import Group
from tandemd.core.scheduler import Scheduler
from tandemd.core.turns.companions import Pace
from tandemd.core.turns.phase_gate import Passer, objection
from tandemd.core.words import phase_name


def explain_standing(passer: Passer, scheduler: Scheduler, now_ns: int) -> str:
    """Why a phase does not begin; one sentence."""
    stood_ns = passer.stood_ns(now_ns)
    most_ns = max(0, scheduler.options.max_hold_ns - stood_ns)
    holder = scheduler.phases.holder_beside(passer)
    why = f"{holder.title} is in it" if holder else "its own work has to drain first"
    return (
        f"waits {stood_ns / 1e6:.1f} ms for {phase_name(passer.phase)}: {why}; "
        f"at most {most_ns / 1e6:.0f} ms more"
    )


def phase_lines(group: Group, scheduler: Scheduler) -> Iterator[str]:
    """Describe the group's phases; nothing under a policy that does not keep phases apart."""
    if scheduler.policy.pace is not Pace.PHASES:
        return
    why_not = objection(group, scheduler.options)
    if why_not is not None:
        yield f"its phases are not kept apart from those of others: {why_not}"
        return
    for process_id in group.processes:
        passer = scheduler.phases.passer(process_id)
        if passer is None:
            yield "its phases begin without waiting: no other best-effort job is on its gpu"
        elif not passer.process.usage.begun_phases:
            yield "it marks no phases (tandem.phase): it waits for none, and none waits for it"
        elif passer.held:
            yield f"is in {phase_name(passer.held)}: others wait to begin theirs of that name"
