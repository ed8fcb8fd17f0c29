"""Short probes of how jobs scale, where their SMs can change while they run (mode mps+green).

A curve derived from one number of SMs does not tell how little SMs matter to a job's kernels. So a
job is given fewer for as long as it takes to record an iteration there, and then gets back what it
had. The record tells the rest (window_scaling.py), as it does when somebody else changes the
number. Like a trial of sharing turns (trials.py), a probe is remembered and not repeated soon.

Rules
1. A GPU has one probe at a time, and jobs whose number a person has fixed are not probed. A job
   that shares its SMs with others cannot be recorded at all: it is first given some of its own.
2. A job that might miss its limit is not probed: even if its kernels need all the SMs they can get,
   an iteration on fewer SMs must stay within half of its limit.
3. A probe ends with the record, or when somebody else gives the job another number of SMs. It is
   given up after `PATIENCE_NS`, or after the time of `ITERATIONS` there if that is longer; a job
   that might need more than `MOST_PATIENCE_NS` for these is not probed. After a probe that told
   nothing the pause is at least twice as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tandemd.core.model import Job, Options, Split
from tandemd.core.space.asked import said
from tandemd.core.space.claims import jobs_on
from tandemd.core.space.scaling import SHARED
from tandemd.core.space.sm_counts import is_out_of_sets, stays_out

PATIENCE_NS = 10_000_000_000  # twice as long as a window waits for measurements
MOST_PATIENCE_NS = 60_000_000_000
ITERATIONS = 5  # two while its SMs change, one to measure kernels, one to record, and one to spare
RETRY_NS = 5_000_000_000
REMEMBER_NS = 600_000_000_000
MOST_OF_LIMIT = 0.5
PART = 3  # a probe runs on one part in this many


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probe:
    """A probe under way."""

    gpu: int
    groups: int  # that the job has meanwhile
    before: int  # that it asked for
    sms: int
    is_second: bool  # a curve existed, so this is a second number of SMs
    patience_ns: int
    until_ns: int


class Probes:
    """Runs the probes. Belongs to the scheduler."""

    def __init__(self) -> None:
        self.wake_at_ns: int | None = None  # when a probe is given up
        self._running: dict[int, _Probe] = {}  # job -> its probe
        self._not_before_ns: dict[int, int] = {}  # job -> when it may be probed again
        self._failures: dict[int, int] = {}  # job -> probes in a row that told nothing

    @property
    def gpus(self) -> frozenset[int]:
        """GPUs where a probe is under way."""
        return frozenset(probe.gpu for probe in self._running.values())

    def decide(self, jobs: Mapping[int, Job], options: Options, now_ns: int) -> None:
        """End probes and begin others, by setting what jobs ask for."""
        for kept in (self._not_before_ns, self._failures):
            for job_id in kept.keys() - jobs.keys():
                del kept[job_id]
        for job_id, probe in list(self._running.items()):
            has_sets = probe.gpu in options.splits
            self._end(jobs.get(job_id), job_id, probe, now_ns, has_sets=has_sets)
        for gpu, split in sorted(options.splits.items()) if options.probe_sets else ():
            if gpu not in self.gpus:
                self._begin(gpu, split, jobs, now_ns)
        self.wake_at_ns = min((probe.until_ns for probe in self._running.values()), default=None)

    def _end(
        self, job: Job | None, job_id: int, probe: _Probe, now_ns: int, *, has_sets: bool
    ) -> None:
        is_other = job is None or job.groups_wanted != probe.groups
        is_over = is_other or not has_sets or now_ns >= probe.until_ns
        curve = job.scaling if job else None
        is_told = curve is not None and curve.recorded_sms == probe.sms
        if not (is_over or is_told):
            return
        del self._running[job_id]
        if job is None:
            return
        is_known = is_told and probe.is_second
        self._pause(job, probe, is_told=is_told, is_known=is_known, now_ns=now_ns)
        if job.groups_wanted != probe.groups:
            return
        job.groups_wanted = probe.before
        if curve is not None and is_told:
            foretold_ns = max(p.foretold_ns for p in job.processes.values())
            told = f", where {foretold_ns / 1e6:.3g} ms were predicted" if foretold_ns else ""
            took = f"an iteration took {curve.recorded_ns / 1e6:.3g} ms{told}"
            job.tell(now_ns, f"its probe on {probe.sms} SMs is over: {took}")
        else:
            job.tell(now_ns, f"its probe on {probe.sms} SMs was abandoned: nothing was recorded")

    def _pause(
        self, job: Job, probe: _Probe, *, is_told: bool, is_known: bool, now_ns: int
    ) -> None:
        """Set when the job may be probed again: ever later while probes tell nothing.

        `is_known`: the probe told all that one can tell, be it only that SMs do not matter.
        """
        failures = 0 if is_told else self._failures.get(job.job_id, 0) + 1
        self._failures[job.job_id] = failures
        first_ns = RETRY_NS if is_told else max(RETRY_NS, probe.patience_ns)
        pause_ns = REMEMBER_NS if is_known else min(REMEMBER_NS, first_ns << failures)
        self._not_before_ns[job.job_id] = now_ns + pause_ns

    def _begin(self, gpu: int, split: Split, jobs: Mapping[int, Job], now_ns: int) -> None:
        here = jobs_on(gpu, jobs.values())
        parts = [job.part for job in here if job.part]
        for job in here:
            is_in_none = stays_out(job, gpu) or is_out_of_sets(job, gpu)
            if parts.count(job.part) > 1 or is_in_none:
                continue  # it shares its part with others, or is not in its set
            if job.part and job.set and job.set.count != job.groups_wanted:
                continue  # it is being resized: a third of what it loses may exceed its new size
            groups = _fewer(job, split)
            if not groups or now_ns < self._not_before_ns.get(job.job_id, 0):
                continue
            sms = groups * split.group_sms
            longest_ns = round(_period_ns(job, sms, split))
            patience_ns = max(PATIENCE_NS, ITERATIONS * longest_ns)
            self._running[job.job_id] = _Probe(
                gpu=gpu,
                groups=groups,
                before=job.groups_wanted,
                sms=sms,
                is_second=job.scaling is not None,
                patience_ns=patience_ns,
                until_ns=now_ns + patience_ns,
            )
            job.groups_wanted = groups
            job.tell(now_ns, f"it has {sms} SMs for one iteration, to see how it scales")
            return


def too_long_ns(job: Job, split: Split) -> int:
    """Return how long an iteration of the probe may take if that is too long; 0 = it is not."""
    groups = _groups(job)
    longest_ns = round(_period_ns(job, groups * split.group_sms, split)) if groups else 0
    return longest_ns if ITERATIONS * longest_ns > MOST_PATIENCE_NS else 0


def _groups(job: Job) -> int:
    """Return on how many groups it would be probed."""
    return job.set.count // PART if job.set and not said(job.spec) else 0


def _fewer(job: Job, split: Split) -> int:
    """Return on how many groups it may be probed; 0 = it may not be."""
    curve, groups = job.scaling, _groups(job)
    if not groups or too_long_ns(job, split):
        return 0
    if curve is None:
        return groups if job.scaling_doubt == SHARED else 0
    if curve.source != "predicted" or curve.recorded_sms == groups * split.group_sms:
        return 0
    limit_ns = job.spec.slo_p99_ns
    if limit_ns and _longest_ns(job, groups * split.group_sms, split) > MOST_OF_LIMIT * limit_ns:
        return 0
    return groups


def _longest_ns(job: Job, sms: int, split: Split) -> float:
    """Return an iteration's time there if its kernels need all the SMs they get; 0 = not known."""
    curve = job.scaling
    if curve is not None:
        return max(curve.at(sms), curve.recorded_ns * max(1.0, curve.recorded_sms / sms))
    assert job.set is not None
    return job.iteration_ns * job.set.count * split.group_sms / sms


def _period_ns(job: Job, sms: int, split: Split) -> float:
    """Return the time between the ends of two iterations; a server's curve excludes its pauses."""
    curve = job.scaling
    pause_ns = max(0, job.iteration_ns - curve.recorded_ns) if curve is not None else 0
    return _longest_ns(job, sms, split) + pause_ns
