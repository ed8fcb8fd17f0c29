"""Explains how a job scales with SMs and how many it can use."""

from __future__ import annotations

from collections.abc import Iterator

from tandemd.core.memory.minima import gpus_of
from tandemd.core.model import Job
from tandemd.core.scheduler import Scheduler
from tandemd.core.space.partition import parts_of
from tandemd.core.space.probes import ITERATIONS, MOST_PATIENCE_NS, too_long_ns
from tandemd.core.space.scaling import Curve
from tandemd.core.space.sm_counts import why_no_curve
from tandemd.core.substrate import divides_space


def scaling_lines(scheduler: Scheduler, job: Job) -> list[str]:
    """Describe the scaling; that it is unknown is mentioned only where SMs are divided."""
    curve, gpus = job.scaling, gpus_of(job)
    if curve is not None:
        lines = [*_curve_lines(curve), *_size_lines(scheduler, job)]
        return [*lines, *_unprobed_lines(scheduler, job)]
    if gpus and divides_space(gpus, scheduler.options):
        return [f"how it scales with SMs is not known: {why_no_curve(job)}"]
    return []


def _curve_lines(curve: Curve) -> Iterator[str]:
    most, knee = curve.sm_counts[-1], curve.knee()
    fitted = f", with gamma {curve.gamma:.2f}" if curve.gamma else ""
    takes, takes_at_knee = _ms(curve.at(most)), _ms(curve.at(knee))
    bend = f" and {takes_at_knee} on {knee}, beyond which each SM gains less"
    if knee == most:
        bend = ", all of which it has use for"
    elif takes == takes_at_knee:
        bend = f", and as long on {knee}"
    yield (
        f"an iteration takes {takes} on {most} SMs{bend} "
        f"({curve.source} from one on {curve.recorded_sms} SMs that took "
        f"{_ms(curve.recorded_ns)}{fitted})"
    )


def _size_lines(scheduler: Scheduler, job: Job) -> Iterator[str]:
    for gpu in sorted(gpus_of(job)):
        for part in parts_of(scheduler, gpu):
            if part.job is job and not part.why_no_set:
                count = part.proposed_sms
                size = f"{count} SM{'' if count == 1 else 's'}" if count else "what others leave"
                name = scheduler.options.name_of(gpu)
                yield f"beside the others {size} of gpu {name} would fit it: {part.why}"


def _unprobed_lines(scheduler: Scheduler, job: Job) -> Iterator[str]:
    options = scheduler.options
    if not options.probe_sets or (job.scaling and job.scaling.source == "probed"):
        return
    for gpu in sorted(gpus_of(job) & options.splits.keys()):
        if longest_ns := too_long_ns(job, options.splits[gpu]):
            yield (
                f"it is not probed on fewer SMs of gpu {options.name_of(gpu)}, because its "
                f"iterations may take {longest_ns / 1e9:.3g} s there, and {ITERATIONS} of them "
                f"have to end within {MOST_PATIENCE_NS / 1e9:g} s; to record that, give it fewer "
                "for a while: tandem set JOB sm=30%, and later sm=none"
            )


def _ms(duration_ns: float) -> str:
    return f"{duration_ns / 1e6:.3g} ms"
