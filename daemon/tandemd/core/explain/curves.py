"""Explains a job's memory curve and how it shifts the job's iterations."""

from __future__ import annotations

from collections.abc import Iterator

from tandemd.core.curves.tenants import Tenant, objection
from tandemd.core.model import NO_LIMIT, Group, Process
from tandemd.core.scheduler import Scheduler
from tandemd.core.turns.companions import Pace
from tandemd.core.words import size_of


def explain_kept(group: Group, scheduler: Scheduler, now_ns: int) -> str:
    """Why an iteration does not begin; one sentence."""
    tenants = [scheduler.shifts.tenant(process_id) for process_id in group.processes]
    kept = next((t for t in tenants if t is not None and t.kept_since_ns is not None), None)
    if kept is None:
        return (
            "between two iterations: the next one begins when its memory fits beside that of others"
        )
    most_ns = max(0, scheduler.options.max_hold_ns - kept.kept_ns(now_ns))
    return (
        f"waits {kept.kept_ns(now_ns) / 1e6:.1f} ms for its next iteration: {kept.reason}; "
        f"at most {most_ns / 1e6:.0f} ms more"
    )


def curve_lines(group: Group, scheduler: Scheduler, now_ns: int) -> Iterator[str]:
    """Describe the group's memory curves; nothing under a policy that ignores them."""
    if scheduler.policy.pace is not Pace.CURVES:
        return
    why_not = objection(group, scheduler.options)
    if why_not is not None:
        yield f"its memory curve is not followed: {why_not}"
        return
    for process in group.processes.values():
        yield _curve(process, scheduler.shifts.tenant(process.process_id), now_ns)
        if process.lease_bytes < NO_LIMIT:
            yield (
                f"may hold {size_of(process.lease_bytes)} of device memory for now: the peaks of "
                "the jobs that share it do not fit together"
            )


def _curve(process: Process, tenant: Tenant | None, now_ns: int) -> str:
    curve = process.curve
    if curve is not None:
        least, most = min(curve.held_bytes), curve.peak_bytes
        return (
            f"memory curve: {size_of(least)} to {size_of(most)} in an iteration of "
            f"{curve.length_ns / 1e6:.1f} ms of gpu work, {size_of(curve.rest_bytes)} at its end; "
            f"recorded {(now_ns - process.curve_ns) / 1e9:.1f} s ago"
        )
    if not process.usage.steps and not process.usage.iterations:
        return (
            "no memory curve: no iteration was found, and it marks none "
            "(tandem.step, tandem.torch.attach)"
        )
    size_bytes = 0 if tenant is None else tenant.peak_bytes
    return f"no memory curve yet: it counts as {size_of(size_bytes)} all the time"
