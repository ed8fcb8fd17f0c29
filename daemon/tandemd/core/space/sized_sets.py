"""Gives jobs in mode mps+green as many groups of SMs as they have use for (sizing.py).

Rules
1. Sizes are decided anew when a job comes or goes, or when what matters about one changes: its
   class, its limit, where its curve bends. In between, others may change a size.
2. What a person asked for by `--sm` stays. A job that is alone on its GPU has all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tandemd.core.model import Job, Options, Split
from tandemd.core.space.claims import claim_of, jobs_on
from tandemd.core.space.sizing import Claim, sizes
from tandemd.core.space.sm_counts import has_use_of_set, is_out_of_sets


class SizedSets:
    """Decides the sizes of sets. Belongs to the scheduler."""

    def __init__(self) -> None:
        self._keys: dict[int, object] = {}  # GPU -> input of the last decision
        self._seen: dict[int, object] = {}  # GPU -> facts that this input was derived from

    def decide(
        self,
        jobs: Mapping[int, Job],
        options: Options,
        now_ns: int,
        *,
        probed: Collection[int] = (),
        planned: Collection[int] = (),
    ) -> None:
        """Set the size that each job asks for.

        GPUs on which a job is being `probed` (probes.py), or that a plan divides (`planned`,
        divisions.py), are left alone.
        """
        self._keys = {gpu: self._keys.get(gpu) for gpu in options.splits}
        self._seen = {gpu: self._seen.get(gpu) for gpu in options.splits}
        if not options.size_sets:
            return
        for gpu, split in sorted(options.splits.items()):
            if gpu in planned:
                self._seen[gpu] = self._keys[gpu] = None
                continue
            here = [job for job in jobs_on(gpu, jobs.values()) if not is_out_of_sets(job, gpu)]
            seen = [
                (split, job.job_id, job.spec, job.scaling, job.rhythm, has_use_of_set(job, gpu))
                for job in here
            ]
            if gpu in probed or seen == self._seen.get(gpu):
                continue  # nothing is new in most rounds
            self._seen[gpu] = seen
            claims = [claim_of(job, gpu, options) for job in here]
            key = (split, [(job.job_id, _told(c)) for job, c in zip(here, claims, strict=True)])
            if key != self._keys[gpu]:
                self._keys[gpu] = key
                _share_out(here, claims, split, now_ns)


def _told(claim: Claim) -> tuple[object, ...]:
    """Return all that a size depends on, except what others leave."""
    curve = claim.curve
    bends = (curve.knee(), curve.smallest_for(claim.slo_ns)) if curve else None
    return (claim.job_class, claim.asked_sms, bool(claim.slo_ns), bends)


def _share_out(jobs: Iterable[Job], claims: list[Claim], split: Split, now_ns: int) -> None:
    found = sizes(claims, split.groups, split.group_sms)
    for job, claim, size in zip(jobs, claims, found, strict=True):
        if claim.asked_sms:
            continue
        groups = size.parts if len(claims) > 1 else 0
        if groups == job.groups_wanted:
            continue
        job.groups_wanted = groups
        what = f"{groups} of {split.groups} groups of SMs" if groups else "the SMs that are left"
        job.tell(now_ns, f"it gets {what}: {size.why if len(claims) > 1 else 'it is alone'}")
