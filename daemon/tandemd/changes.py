"""Validates a user's change to a job's spec and says why it cannot be made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tandem.errors import AccessError, CapacityError, StateError
from tandemd.config.limits import Limits
from tandemd.core.memory.minima import gpus_of, share_bytes
from tandemd.core.model import NO_LIMIT, Job, JobClass, JobSpec
from tandemd.core.scheduler import Scheduler
from tandemd.core.space.asked import unfit
from tandemd.core.substrate import SUBSTRATES
from tandemd.core.words import sizes_apart
from tandemd.rights import Rights
from tandemd.views import etag_of

PROMISES = {"memory_min_bytes", "persistent_bytes", "ephemeral_bytes"}
_LIMIT = {"memory_bytes", "memory_percent"}
_INSTEAD = {"memory_bytes": "memory_percent", "sm_percent": "sm_count", "sm_count": "sm_percent"}


class Changes:
    """Computes changed specs. Belongs to the loop's thread."""

    def __init__(self, core: Scheduler, rights: Rights) -> None:
        self._core = core
        self._rights = rights

    @property
    def _limits(self) -> Limits:
        return self._rights.limits

    def wanted(self, uid: int, job: Job, changes: Mapping[str, object], etag: str) -> JobSpec:
        """Return the job's spec after the changes, if they are allowed.

        `changes` maps fields of JobSpec to values. `etag` is that of the spec that the caller has
        read; empty matches any.

        Raises:
            AccessError: its user may not have so much.
            CapacityError: no job could be given that on those GPUs.
            StateError: the spec was changed since the caller read it, or cannot change now.
        """
        if etag and etag != etag_of(job.spec):
            raise StateError(
                f"{job.display_name} was changed by somebody else; read it again",
                reason="CHANGED_MEANWHILE",
            )
        spec = _changed(job.spec, changes)
        if "memory_percent" in changes:
            size_bytes = self._share_bytes(job, spec.memory_percent)
            spec = replace(spec, memory_bytes=size_bytes, memory_percent=0)
        self._check_ceiling(uid, job, spec.job_class)
        if _LIMIT & changes.keys():
            self._check_memory(uid, job, spec)
        if (PROMISES | _LIMIT) & changes.keys():
            self._check_minimum(job, spec)
        self._check_space(job, spec)
        if {"sm_percent", "sm_count"} & changes.keys():
            self._check_sm_is_live(job)
        return spec

    def _check_ceiling(self, uid: int, job: Job, asked: JobClass) -> None:
        ceiling = self._limits.ceiling(job.uid)
        if asked < job.spec.job_class and asked < ceiling and not self._limits.is_admin(uid):
            raise AccessError(
                f"uid {job.uid} may not exceed class '{ceiling.name.lower()}' "
                f"({self._limits.why_class(job.uid)}); ask an admin",
                reason="CLASS_CEILING",
            )

    def _check_memory(self, uid: int, job: Job, spec: JobSpec) -> None:
        """Reject a limit above the user's own, which would stop the job anyway."""
        ceilings = self._core.memory.line.ceilings
        clipped = ceilings.clip(job.uid, spec, gpus_of(job))
        is_less = spec.memory_bytes <= job.spec.memory_bytes < NO_LIMIT
        if clipped.memory_bytes < spec.memory_bytes and not is_less:
            asked, most = sizes_apart(spec.memory_bytes, clipped.memory_bytes)
            key = ceilings.of(job.uid).key
            is_admin = self._limits.is_admin(uid)
            remedy = "raise that first" if is_admin else "ask an admin to raise that"
            raise AccessError(
                f"{asked} is more than the {most} that all jobs of uid {job.uid} may have on a gpu "
                f"({key}); {remedy}",
                reason="QUOTA_EXCEEDED",
            )

    def _check_minimum(self, job: Job, spec: JobSpec) -> None:
        core = self._core
        objection = core.objection_for_user(spec, job.uid, job) or core.objection_to(spec, job)
        if objection is not None:
            raise CapacityError(f"{job.display_name}: {objection}")

    def _check_space(self, job: Job, spec: JobSpec) -> None:
        options, gpus = self._core.options, gpus_of(job)
        if (why := unfit(replace(spec, isolation=""), gpus, options)) is not None:
            raise CapacityError(f"{job.display_name}: {why}")
        meant = gpus or options.sm_counts.keys()
        if spec.sm_count and not all(options.sm_counts.get(gpu) for gpu in meant):
            raise StateError(
                f"the number of SMs of the gpu of {job.display_name} is not known; give a share "
                "such as 30%"
            )

    def _share_bytes(self, job: Job, percent: int) -> int:
        size_bytes = share_bytes(percent, job, self._core.memory.line.capacity_bytes)
        if size_bytes is None:
            raise StateError(
                f"{job.display_name} is on no gpu whose memory is known, so {percent}% of it is "
                "not known either; give a size such as 20GiB"
            )
        return size_bytes

    def _check_sm_is_live(self, job: Job) -> None:
        mode = self._core.options.mode_of(gpus_of(job))
        if not SUBSTRATES[mode].is_live:
            raise StateError(
                f"sm of {job.display_name} is fixed while it runs, because its gpu is in mode "
                f"{mode}; restart it with `tandem run --sm`"
            )


def _changed(spec: JobSpec, changes: Mapping[str, object]) -> JobSpec:
    """Apply the fields; a field that a changed one is an alternative to is reset."""
    spec = replace(spec, **changes)  # type: ignore[arg-type]
    for said, other in _INSTEAD.items():
        if said in changes:
            spec = replace(spec, **{other: 0})  # type: ignore[arg-type]
    return spec
