"""Access control: who may see and do what, and which job a name means for a caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from tandem.errors import AccessError, NotFoundError, StateError, UsageError
from tandemd.config.limits import Limits
from tandemd.config.schema import Privacy
from tandemd.core.explain.discretion import discreet
from tandemd.core.model import Job, JobState
from tandemd.core.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Whom:
    """The target of a change: a job, or with `is_group` all jobs of a group."""

    name: str
    is_group: bool = False


class Rights:
    """Decides on access, for uids already looked up. Loop's thread only, except `is_admin`."""

    def __init__(self, core: Scheduler, limits: Limits, privacy: Privacy) -> None:
        self.limits = limits  # both are replaced when the configuration is reloaded
        self.privacy = privacy
        self._core = core

    def is_admin(self, uid: int) -> bool:
        """Tell whether the uid is an admin's. Any thread but the loop's, because it may block."""
        self.limits.meet(uid)
        return self.limits.is_admin(uid)

    def may_see(self, uid: int, job: Job) -> bool:
        """Tell whether the caller may know that the job exists, and its public facts."""
        return self.privacy != "own-only" or self.may_control(uid, job)

    def discretion(self, uid: int) -> Callable[[str], str]:
        """Return a filter for texts that removes what the caller may not know."""
        if self.privacy != "own-only" or self.limits.is_admin(uid):
            return str
        core = self._core

        def may_know(job_id: int) -> bool | None:
            job = core.jobs.get(job_id) or core.finished.get(job_id)
            return None if job is None else self.may_see(uid, job)

        return partial(discreet, may_know=may_know)

    def may_control(self, uid: int, job: Job) -> bool:
        """Tell whether the caller is the job's owner or an admin."""
        return uid == job.uid or self.limits.is_admin(uid)

    def find(self, uid: int, name: str) -> Job:
        """Return the job with that number or name.

        Raises:
            NotFoundError: no such job, or the name fits several.
            UsageError: the name is empty.
        """
        if not name:
            raise UsageError("the name of the job is empty; give one such as 'j-7f3a'")
        named = self._meant(uid, lambda job: job.display_name == name)
        named = named or self._meant(uid, lambda job: job.spec.name == name)
        if len(named) > 1:
            ids = ", ".join(job.display_name for job in named)
            groups = {(job.uid, job.spec.group) for job in named}
            [(_, group), *others] = groups
            all_of_it = f", or all of them with -G '{group}'" if group and not others else ""
            raise NotFoundError(
                f"several jobs are named '{name}': {ids}; name one of those{all_of_it}",
                reason="AMBIGUOUS_NAME",
            )
        if not named:
            raise NotFoundError(f"no job is named '{name}'; `tandem ps` lists them")
        return named[0]

    def _meant(self, uid: int, is_named: Callable[[Job], bool]) -> list[Job]:
        """Of the jobs so named, prefer the caller's own, because users may pick the same name.

        Living jobs come before those that have ended.
        """
        core = self._core
        known = [*core.jobs.values(), *core.finished.values()]
        named = [job for job in known if is_named(job) and self.may_see(uid, job)]
        named = [job for job in named if job.uid == uid] or named
        return [job for job in named if job.state is not JobState.EXITED] or named

    def own(self, uid: int, name: str) -> Job:
        """Find a living job that the caller may control.

        Raises:
            AccessError: the job belongs to somebody else.
            NotFoundError: as `find`.
            StateError: the job has ended.
        """
        job = self.find(uid, name)
        if not self.may_control(uid, job):
            raise AccessError(
                f"{job.display_name} belongs to uid {job.uid}, not to uid {uid}",
                reason="NOT_OWNER",
            )
        if job.state is JobState.EXITED:
            raise StateError(f"{job.display_name} has ended", reason="JOB_ENDED")
        return job

    def chosen(self, uid: int, whom: Whom) -> list[Job]:
        """Return the living jobs that a change targets, all of which the caller may control.

        Raises:
            AccessError: they belong to somebody else.
            NotFoundError: as `find`, or as `members`.
            StateError: all of them have ended.
        """
        if not whom.is_group:
            return [self.own(uid, whom.name)]
        members = self.members(uid, whom.name)
        if not self.may_control(uid, members[0]):
            raise AccessError(
                f"group '{whom.name}' belongs to uid {members[0].uid}, not to uid {uid}",
                reason="NOT_OWNER",
            )
        if members[0].state is JobState.EXITED:
            raise StateError(f"all jobs of group '{whom.name}' have ended", reason="JOB_ENDED")
        return members

    def members(self, uid: int, name: str) -> list[Job]:
        """Return a group's living jobs, or else its ended ones. A group is always of one user.

        Raises:
            NotFoundError: no such group, or several users have one.
            UsageError: the name is empty.
        """
        if not name:
            raise UsageError(
                "the name of the group is empty; give one such as 'torchrun:29500:none'"
            )
        named = self._meant(uid, lambda job: job.spec.group == name)
        owners = sorted({job.uid for job in named})
        if len(owners) > 1:
            raise NotFoundError(
                f"uids {' and '.join(map(str, owners))} each have a group '{name}'; name the jobs, "
                "`tandem ps -u USER` lists them",
                reason="AMBIGUOUS_NAME",
            )
        if not named:
            raise NotFoundError(f"no group is named '{name}'; GROUP in `tandem ps` says which are")
        return sorted(named, key=attrgetter("arrival"))
