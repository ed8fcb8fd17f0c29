"""Builds the view of a job that clients see."""

from __future__ import annotations

from tandemd.core.explain.explain import summarise
from tandemd.core.explain.lanes import place_in_line
from tandemd.core.explain.memory import first_in_line
from tandemd.core.explain.requests import newest_requests
from tandemd.core.histogram import Counted
from tandemd.core.memory.minima import gpus_of
from tandemd.core.model import Group, Job, Options
from tandemd.core.notices import pause_in_ns
from tandemd.core.scheduler import Scheduler
from tandemd.core.space.asked import go_first, owed_share
from tandemd.core.space.mps_clients import beside_mps
from tandemd.core.space.sm_counts import given_sms
from tandemd.core.tuner.pauses import has_requests
from tandemd.loop import Loop
from tandemd.rights import Rights
from tandemd.sessions import Sessions
from tandemd.views import FindingView, JobView, ProcessView


class JobViews:
    """Builds views from the core's facts. Belongs to the loop's thread."""

    def __init__(self, loop: Loop, sessions: Sessions, rights: Rights) -> None:
        self._loop = loop
        self._sessions = sessions
        self._rights = rights

    def of(self, uid: int, job: Job) -> JobView:
        """Return the view of a job that this caller may have."""
        clock, core, calendar = self._loop.clock, self._loop.scheduler, self._loop.calendar
        open_to_all = self._rights.privacy == "open"
        command = self._sessions.commands.get(job.job_id, "")
        info = self._sessions.info
        gpus = tuple(sorted({gpu for p in job.processes.values() for gpu in p.gpus}))
        wait_bytes, wait_place = _place_in_line(core, job)
        group = core.group_of(job)
        newest = newest_requests(job, clock.now_ns())
        return JobView(
            job_id=job.job_id,
            uid=job.uid,
            user=self._rights.limits.user_of(job.uid),
            command=command if open_to_all or self._rights.may_control(uid, job) else "",
            spec=job.spec,
            state=job.state,
            reason=self._rights.discretion(uid)(summarise(core, job, clock.now_ns())),
            created_wall_ns=calendar.wall_ns(job.created_ns),
            processes=tuple(
                ProcessView(
                    pid=info[p.process_id].pid,
                    attached_wall_ns=calendar.wall_ns(info[p.process_id].attached_ns),
                    device_bytes=p.usage.device_bytes,
                    swapped_bytes=p.usage.swapped_bytes,
                    filed_bytes=p.usage.filed_bytes,
                    ungated=p.usage.ungated,
                    dropped_records=p.usage.dropped_records,
                    shim_version=info[p.process_id].shim_version,
                )
                for p in job.processes.values()
                if p.process_id in info
            ),
            gpus=gpus,
            gpu_names=tuple(map(core.options.name_of, gpus)),
            mode="time" if beside_mps(job) else core.options.mode_of(gpus or job.meant_gpus),
            gpu_ns=job.gpu_ns,
            shared_ns=job.shared_ns,
            energy_mj=core.energy.of_job(job.job_id),
            waits_ns=job.waited_ns(clock.now_ns()),
            pause_in_ns=pause_in_ns(job, clock.now_ns()),
            unready=job.unready,
            launches=job.launches,
            moved_bytes=job.moved_bytes,
            moved_ns=job.moved_ns,
            steps=job.steps,
            set_sms=_set_sms(job, core.options),
            set_groups=tuple(range(job.set.first, job.set.end)) if job.set else (),
            sms=given_sms(job, gpus[0], core.options) if gpus else 0,
            iterations=job.iterations,
            audited_bytes=sum(process.audited_bytes for process in job.processes.values()),
            refused_by=job.refused_by,
            memory_wait_bytes=wait_bytes,
            memory_wait_place=wait_place,
            share=self._loop.recent.share(("job", job.job_id)),
            requests=newest.count,
            p99_ns=newest.p99_ns,
            marked_p99_ns=job.served.marked_p99_ns(clock.now_ns()),
            served=_served(job),
            missed=job.served.missed,
            gate_waits=job.gate_waits.counted(),
            preemptions=tuple(job.preemptions),
            owed=self._owed(job, group) if group else 0.0,
            findings=self.findings(job),
        )

    def _owed(self, job: Job, group: Group) -> float:
        """Return the share of GPU time that `--sm` owes it, of what jobs before it left lately."""
        core, recent = self._loop.scheduler, self._loop.recent
        owed, island = owed_share(job, group, core.options), core.island_of(group)
        if not owed or island is None:
            return 0.0
        first = go_first(group, island[0], core.policy)
        taken = sum(recent.share(("job", other.job_id)) for other in first)
        return owed * max(core.options.min_share, 1 - taken)  # `min_share` is always left

    def findings(self, job: Job) -> tuple[FindingView, ...]:
        """Return the watchdog's findings that hold now."""
        wall_ns = self._loop.calendar.wall_ns
        return tuple(
            FindingView(since_wall_ns=wall_ns(found.since_ns), finding=found)
            for found in self._loop.watchdog.findings(job.job_id)
        )


def _place_in_line(core: Scheduler, job: Job) -> tuple[int, int]:
    """Return the bytes it waits for, or needs to be let in, and its place in line; zeros: none."""
    if waiter := first_in_line(core, job):
        return waiter.wait.size_bytes, len(waiter.ahead) + 1
    group = core.group_of(job)
    standing = core.lanes.of(group) if group else None
    return place_in_line(standing) if standing else (0, 0)


def _served(job: Job) -> Counted | None:
    """Return its request counts, also once it has stopped having any: a series must not restart."""
    counted = job.served.counted.counted()
    return counted if counted.count or has_requests(job) else None


def _set_sms(job: Job, options: Options) -> int:
    """Return the number of SMs in its set; 0 = it has none."""
    splits = [options.splits[gpu] for gpu in sorted(gpus_of(job) & options.splits.keys())]
    return job.set.count * splits[0].group_sms if job.set is not None and splits else 0
