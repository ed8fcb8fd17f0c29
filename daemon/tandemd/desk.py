"""What people and schedulers may ask of the daemon: identity in, plain views out.

Every method may be called from any thread; the answer is computed on the loop's thread, so a view
is consistent. rights.py defines who may see and do what.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

import structlog

from tandem import _native
from tandem.errors import AccessError, NotFoundError, StateError, UsageError
from tandemd.changes import PROMISES, Changes
from tandemd.config.limits import Limits
from tandemd.config.schema import Privacy
from tandemd.core.effects import without_effect
from tandemd.core.errors import UnknownPolicyError
from tandemd.core.events import JobCancelled, JobPaused, JobResumed, JobUpdated, PolicyChanged
from tandemd.core.explain.explain import explain
from tandemd.core.explain.scaling import scaling_lines
from tandemd.core.explain.space import space_lines
from tandemd.core.memory.minima import gpus_of
from tandemd.core.model import Group, Job, Options
from tandemd.core.past import PastJob
from tandemd.core.planner.divisions import InForce
from tandemd.core.planner.planning import UNSEEN, Outlook, outlook
from tandemd.core.policy import POLICIES
from tandemd.core.space.claims import part_sms_of
from tandemd.core.space.layouts import Cut, Layout, parse_layout
from tandemd.core.space.partition import parts_of
from tandemd.core.spec_words import changes_of
from tandemd.edges.gpus import Gpu, Inventory
from tandemd.edges.helper import WANTED, Helper
from tandemd.edges.journal import PastQuery
from tandemd.edges.mig import MigLayouts
from tandemd.edges.signals import why_not
from tandemd.job_views import JobViews
from tandemd.loop import Change, Loop
from tandemd.observers.losses import Losses
from tandemd.observers.taps import Taps
from tandemd.observers.trace_events import Author, TraceEvent, of_records, of_turn
from tandemd.observers.turn_log import TurnLog
from tandemd.observers.windows import record
from tandemd.places import Places
from tandemd.rights import Rights, Whom
from tandemd.sessions import Sessions
from tandemd.views import (
    AllowanceView,
    CurveView,
    CutView,
    Event,
    ExplanationView,
    GpuView,
    HistoryView,
    JobView,
    MetricsView,
    PartitionView,
    PlansView,
    StatusView,
    WindowView,
)

Answer = TypeVar("Answer")

MAX_WATCHERS, MAX_WATCHERS_PER_UID = 32, 8
MAX_WINDOWS, MAX_WINDOWS_PER_UID = 16, 4  # recordings at once
MAX_TRACES, MAX_TRACES_PER_UID = 8, 2  # recordings at once; each costs the daemon a part of a core
MOST_EVENTS = 10_000  # in an answer: a few megabytes
MOST_HISTORY = 200_000  # points of all curves in an answer: 4 MB
WATCH_BACKLOG = 1024  # events a watcher may lag behind; a page of text each

log = structlog.get_logger("tandemd")


class Desk:
    """Answers questions about the core and passes users' requests on to it."""

    def __init__(
        self,
        *,
        loop: Loop,
        sessions: Sessions,
        inventory: Inventory,
        limits: Limits,
        privacy: Privacy,
        runtime_dir: Path,
    ) -> None:
        self.rights = Rights(loop.scheduler, limits, privacy)
        self.runtime_dir = runtime_dir
        self._loop = loop
        self._sessions = sessions
        self._inventory = inventory
        self._views = JobViews(loop, sessions, self.rights)
        self._changes = Changes(loop.scheduler, self.rights)
        self._watchers = Places(MAX_WATCHERS, MAX_WATCHERS_PER_UID, "watch")
        self._windows = Places(MAX_WINDOWS, MAX_WINDOWS_PER_UID, "record")
        self._traces = Places(MAX_TRACES, MAX_TRACES_PER_UID, "record a trace")
        self._taps = Taps(lambda kinds: loop.poller.drain_records(kinds=kinds))
        self.is_reload_good = True  # whether the last reload is in force; loop's thread only
        # GPUs are cut one at a time; no other lock is held meanwhile.
        self._cutting = threading.Lock()
        self.mode_wanted: Callable[[Gpu], str] = lambda _: "auto"  # as configured
        self.renew_gpus: Callable[[], None] = inventory.refresh  # called when GPUs may have changed
        self.helper: Helper | None = None  # None: it is not needed
        self.idle_mps: Callable[[], frozenset[int]] = frozenset  # pids of our MPS's idle servers
        self.end_mps: Callable[[frozenset[int]], None] = lambda _: None  # ends these servers

    def jobs(self, uid: int, *, finished: bool) -> list[JobView]:
        """Return all jobs that the caller may see, oldest first."""

        def answer() -> list[JobView]:
            core = self._loop.scheduler
            jobs = [*core.finished.values()] if finished else []
            jobs += core.jobs.values()
            jobs.sort(key=lambda job: job.arrival)
            return [self._views.of(uid, job) for job in jobs if self.rights.may_see(uid, job)]

        return self._ask(uid, answer)

    def events(self, uid: int) -> list[Event]:
        """Return what happened to the jobs the caller may see, oldest first, each kind once."""

        def answer() -> list[Event]:
            core, wall_ns = self._loop.scheduler, self._loop.calendar.wall_ns
            known = [*core.finished.values(), *core.jobs.values()]
            views = [
                (job, self._views.of(uid, job)) for job in known if self.rights.may_see(uid, job)
            ]
            return [
                Event(wall_ns=wall_ns(at_ns), kind=kind, rule=rule, job=view, times=times)
                for job, view in views
                for at_ns, line, times in job.events.counted()
                for kind, _, rule in [line.partition(" ")]
            ]

        return sorted(self._ask(uid, answer), key=attrgetter("wall_ns"))[-MOST_EVENTS:]

    def past(self, uid: int, query: PastQuery) -> list[tuple[int, PastJob]]:
        """Return jobs that have ended, with their numbers, newest first; reads the disk.

        Raises:
            StateError: the daemon keeps no history.
        """
        is_admin = self.rights.is_admin(uid)
        if self.rights.privacy == "own-only" and not is_admin:
            query = replace(query, uid=uid)
        shows_all = self.rights.privacy == "open" or is_admin
        return [
            (number, job if shows_all or job.uid == uid else replace(job, command=""))
            for number, job in self._loop.remembered.past(query)
        ]

    def job(self, uid: int, name: str) -> JobView:
        """Return one job.

        Raises:
            NotFoundError: no such job, or the name fits several.
        """
        return self._ask(uid, lambda: self._views.of(uid, self.rights.find(uid, name)))

    def explanation(self, uid: int, name: str) -> ExplanationView:
        """Explain why a job runs or waits.

        Raises:
            NotFoundError: no such job, or the name fits several.
        """
        # Outside the loop's thread, because listing the GPUs may ask the driver.
        draining = [gpu for gpu in self._inventory.gpus() if self._loop.remembered.is_draining(gpu)]

        def answer() -> tuple[ExplanationView, tuple[int, ...], int]:
            job = self.rights.find(uid, name)
            core, clock = self._loop.scheduler, self._loop.clock
            now_ns = clock.now_ns()
            found = explain(core, job, now_ns)
            share = self._loop.recent.share(("job", job.job_id))
            lines = (
                *found.lines,
                *self._stranger_lines(job),
                *space_lines(core, job, share),
                *scaling_lines(core, job),
                *_drain_lines(job, draining),
            )
            story = tuple(f"{(at - now_ns) / 1e9:+.3f} s  {line}" for at, line in job.story)
            say = self.rights.discretion(uid)
            view = ExplanationView(
                name=job.display_name,
                summary=say(found.summary),
                lines=tuple(map(say, lines)),
                policy=core.options.policy,
                mode=core.options.mode_of(gpus_of(job) or job.meant_gpus),
                wait_ns=job.waited_ns(now_ns),
                story=tuple(map(say, story)),
                findings=self._views.findings(job),
            )
            return view, tuple(job.processes), now_ns

        view, processes, now_ns = self._ask(uid, answer)
        # Takes a while, so not on the loop's thread.
        structure = self._loop.structures.lines(processes, now_ns)
        return replace(view, lines=(*view.lines, *structure))

    def _stranger_lines(self, job: Job) -> Iterator[str]:
        """Report GPUs of the job on which processes compute without the daemon's knowledge."""
        for gpu in sorted(gpus_of(job)):
            if count := self._loop.strangers.on(gpu):
                name = self._loop.scheduler.options.name_of(gpu)
                who = "1 process" if count == 1 else f"{count} processes"
                yield (
                    f"gpu {name} is also used without Tandem, by {who} that no turns and no limits "
                    "apply to; `tandem doctor` names them"
                )

    def windows(
        self,
        uid: int,
        name: str,
        *,
        patience_s: float,
        is_wanted: Callable[[], bool],
        signatures: Mapping[str, _native.Signature],
    ) -> Iterator[WindowView]:
        """Record what each process of a job does during an iteration; blocks.

        Raises:
            UsageError: a signature does not fit its kernel.
            NotFoundError: no such job.
            AccessError: the job belongs to somebody else.
            StateError: the job has ended, or has no process on a GPU.
            CapacityError: too many recordings are running, in all or for this uid.
        """

        def answer() -> dict[int, tuple[int, tuple[int, ...]]]:
            job, info = self.rights.own(uid, name), self._sessions.info
            found = {
                p.process_id: (info[p.process_id].pid, tuple(sorted(p.gpus)))
                for p in job.processes.values()
                if p.process_id in info
            }
            if not found:
                raise StateError(f"{job.display_name} has no process that uses the gpu")
            return found

        with self._windows.take(uid):
            processes = self._ask(uid, answer)
            poller, ids = self._loop.poller, tuple(processes)
            found = record(
                poller, ids, patience_s=patience_s, is_wanted=is_wanted, signatures=signatures
            )
            for recorded in found:
                pid, gpus = processes[recorded.process_id]
                yield WindowView(
                    pid=pid,
                    gpus=gpus,
                    window=recorded.window,
                    kernels=recorded.kernels,
                    launches=recorded.launches,
                )

    def group(self, uid: int, group: str) -> list[JobView]:
        """Return a group's living jobs, or else those that have ended; oldest first.

        Raises:
            NotFoundError: no such group, or several users have one.
        """
        return self._ask(
            uid, lambda: [self._views.of(uid, j) for j in self.rights.members(uid, group)]
        )

    def set_paused(self, uid: int, whom: Whom, *, paused: bool, grace_ns: int = 0) -> list[JobView]:
        """Pause or resume a job, or all jobs of a group.

        Programs that listen get the grace period before a pause.

        Raises:
            NotFoundError: no such job.
            AccessError: the job belongs to somebody else.
            StateError: the job has ended.
        """

        def answer() -> list[JobView]:
            jobs = self.rights.chosen(uid, whom)
            now_ns = self._loop.clock.now_ns()
            for job in jobs:
                log.info("paused" if paused else "resumed", job=job.display_name, uid=uid)
                if paused:
                    event = JobPaused(now_ns=now_ns, job_id=job.job_id, grace_ns=grace_ns)
                    self._loop.handle(event)
                else:
                    self._loop.handle(JobResumed(now_ns=now_ns, job_id=job.job_id))
            return [self._views.of(uid, job) for job in jobs]

        return self._ask(uid, answer)

    def cancel(self, uid: int, whom: Whom, *, signal: str, grace_ns: int) -> list[JobView]:
        """End jobs: by `signal`, one of `cancels.SIGNALS`, now, and by SIGKILL after the grace.

        The warnings of a returned view name the processes that cannot be signalled.

        Raises:
            NotFoundError: no such job.
            AccessError: the job belongs to somebody else, or the daemon can signal none of its
                processes.
            StateError: the job has ended.
        """

        def answer() -> list[JobView]:
            jobs = self.rights.chosen(uid, whom)
            problems = [self._not_signalled(job) for job in jobs]
            now_ns = self._loop.clock.now_ns()
            for job in jobs:
                log.info("cancelled", job=job.display_name, uid=uid)
                self._loop.handle(
                    JobCancelled(now_ns=now_ns, job_id=job.job_id, signal=signal, grace_ns=grace_ns)
                )
            return [
                replace(self._views.of(uid, job), warnings=found)
                for job, found in zip(jobs, problems, strict=True)
            ]

        return self._ask(uid, answer)

    def update(
        self, uid: int, whom: Whom, changes: Mapping[str, object], *, etag: str
    ) -> list[JobView]:
        """Change fields of the spec of a job, or of all jobs of a group, by their names in JobSpec.

        Raises:
            NotFoundError: no such job.
            AccessError: the job belongs to somebody else, or the class is above the owner's
                ceiling.
            CapacityError: its minimum of memory cannot be promised.
            StateError: the job has ended, or changed since the caller read it; or it is to get a
                share of a GPU and it is not known which GPU that is.
        """

        def answer() -> list[JobView]:
            jobs = self.rights.chosen(uid, whom)
            wanted = [(job, self._changes.wanted(uid, job, changes, etag)) for job in jobs]
            now_ns = self._loop.clock.now_ns()
            for job, spec in wanted:
                changed = changes_of(job.spec, spec)
                log.info("changed", job=job.display_name, uid=uid, what=changed)
                self._loop.handle(JobUpdated(now_ns=now_ns, job_id=job.job_id, spec=spec))
            core = self._loop.scheduler
            return [
                replace(
                    self._views.of(uid, job), warnings=tuple(without_effect(core, job, changes))
                )
                for job, _ in wanted
            ]

        if whom.is_group and PROMISES & changes.keys():
            raise UsageError(
                "memory_min, persistent and ephemeral cannot be set for a group, because what is "
                "promised to one job is not left for the next; set them job by job"
            )
        # The owner's ceiling applies; look the owner up again, because the last lookup may be long
        # ago.
        if "job_class" in changes:
            self.rights.limits.meet(self._ask(uid, lambda: self.rights.chosen(uid, whom)[0].uid))
        return self._ask(uid, answer)

    def policy(self) -> str:
        """Return the name of the policy in force."""
        return self._loop.ask(lambda: self._loop.scheduler.options.policy)

    def set_policy(self, uid: int, name: str) -> str:
        """Switch to another policy.

        Raises:
            AccessError: the caller is no admin.
            NotFoundError: there is no such policy.
        """
        if not self.rights.is_admin(uid):
            raise AccessError(
                f"uid {uid} may not change the policy; ask an admin", reason="ADMINS_ONLY"
            )

        def answer() -> str:
            now_ns, before = self._loop.clock.now_ns(), self._loop.scheduler.options.policy
            try:
                self._loop.handle(PolicyChanged(now_ns=now_ns, policy=name))
            except UnknownPolicyError as error:
                raise NotFoundError(str(error)) from error
            log.info("policy set", uid=uid, policy=name, before=before)
            return self._loop.scheduler.options.policy

        return self._loop.ask(answer)

    def cut(self, uid: int, layout: str, *, is_real: bool) -> CutView:
        """Cut a GPU by MIG, or say what that would do.

        Raises:
            AccessError: the caller is no admin, or the driver lets only root do it and there is no
                helper.
            UnavailableError, DeadlineError: the helper does not answer.
            CapacityError: the layout does not fit.
            StateError: the GPU is in use, has no MIG, or the driver does not do it.
            UsageError: the layout is malformed, or names no GPU or profile that exists.
        """
        if not self.rights.is_admin(uid):
            raise AccessError(f"uid {uid} may not cut a gpu; ask an admin", reason="ADMINS_ONLY")
        try:
            wanted = parse_layout(layout)
        except ValueError as error:
            raise UsageError(str(error)) from error
        with self._cutting:
            layouts = MigLayouts()
            # Report an impossible layout before reporting what is in the way.
            planned = layouts.plan(wanted)
            idle = self.idle_mps()  # they keep the GPU in use, but nothing needs them
            in_the_way = [pid for pid in layouts.users(wanted) if pid not in idle]
            if is_real and not in_the_way:
                self.end_mps(idle)
                # A process may have come, or a server stayed.
                in_the_way = list(layouts.users(wanted))
            users = tuple(self._users(in_the_way))
            if not is_real:
                return CutView(cut=planned, users=users)
            if users:
                raise StateError(
                    f"gpu {wanted.gpu} is used by {', '.join(users)}; end them first",
                    reason="GPU_IN_USE",
                )
            log.info("gpu is cut", layout=layout, uid=uid)
            try:
                return CutView(cut=self._apply(layouts, wanted), users=())
            finally:
                self.renew_gpus()

    def _apply(self, layouts: MigLayouts, wanted: Layout) -> Cut:
        if self.helper is None:
            return layouts.apply(wanted)
        if self.helper.is_there:
            return self.helper.cut(replace(wanted, gpu=layouts.uuid(wanted)))
        try:
            return layouts.apply(wanted)
        except AccessError as error:
            raise AccessError(f"{error}; {WANTED}") from error

    def _users(self, pids: Sequence[int]) -> Iterator[str]:
        """Describe processes by pid and, where known, by job."""

        def answer() -> dict[int, str]:
            core, info = self._loop.scheduler, self._sessions.info
            return {
                info[process_id].pid: job.display_name
                for job in core.jobs.values()
                for process_id in job.processes
                if process_id in info
            }

        jobs = self._loop.ask(answer)
        for pid in pids:
            yield f"pid {pid}" + (f" (job {jobs[pid]})" if pid in jobs else "")

    def policies(self) -> dict[str, str]:
        """Map the name of every policy to its description."""
        return {name: policy.description for name, policy in POLICIES.items()}

    def gpus(self) -> list[GpuView]:
        """Return the GPUs of this machine."""
        gpus: Sequence[Gpu] = self._inventory.gpus()

        return self._loop.ask(lambda: [self._gpu_view(gpu) for gpu in gpus])

    def drain(self, uid: int, name: str, *, is_on: bool) -> GpuView:
        """Stop starting jobs on a GPU, or undo that.

        Raises:
            AccessError: the caller is no admin.
            NotFoundError: no GPU has that name.
        """
        if not self.rights.is_admin(uid):
            raise AccessError(f"uid {uid} may not drain a gpu; ask an admin", reason="ADMINS_ONLY")
        gpus = self._inventory.gpus()
        gpu = next((one for one in gpus if name in (one.name, one.uuid_text)), None)
        if gpu is None:
            there = ", ".join(f"'{one.name}'" for one in gpus)
            raise NotFoundError(f"no gpu is called '{name}'; there are {there or 'none'}")

        def answer() -> GpuView:
            self._loop.remembered.drain(gpu, is_on=is_on)
            log.info("draining" if is_on else "no longer draining", gpu=gpu.name, uid=uid)
            return self._gpu_view(gpu)

        return self._loop.ask(answer)

    def _gpu_view(self, gpu: Gpu) -> GpuView:
        options, recent = self._loop.scheduler.options, self._loop.recent
        reserve = self._loop.scheduler.memory.line.reserves.of(gpu.index)
        return GpuView(
            gpu=gpu,
            mode=options.mode_of([gpu.index]),
            busy=recent.share(("gpu", gpu.index)),
            split=options.splits.get(gpu.index),
            is_being_proved=gpu.index in options.proving,
            unproved=options.unproved.get(gpu.index, ""),
            not_had=self._not_had(gpu, options),
            strangers=self._loop.strangers.on(gpu.index),
            is_draining=self._loop.remembered.is_draining(gpu),
            energy=self._loop.scheduler.energy.of_gpu(gpu.index),
            reserved_bytes=reserve.size_bytes if reserve else 0,
        )

    def jobs_on(self) -> dict[str, list[str]]:
        """Map every GPU's name to the names of the jobs with a process on it, oldest first."""
        names = {gpu.index: gpu.name for gpu in self._inventory.gpus()}

        def answer() -> dict[str, list[str]]:
            found: dict[str, list[str]] = {name: [] for name in names.values()}
            for job in sorted(self._loop.scheduler.jobs.values(), key=lambda job: job.arrival):
                for gpu in sorted(gpus_of(job) & names.keys()):
                    found[names[gpu]].append(job.display_name)
            return found

        return self._loop.ask(answer)

    def _not_had(self, gpu: Gpu, options: Options) -> str:
        mode, wanted = options.mode_of([gpu.index]), self.mode_wanted(gpu)
        if wanted in ("auto", mode) or gpu.instance or gpu.index in options.proving:
            return ""
        why = options.hindrance(gpu.index, wanted) or (
            "mps does not run; tandemd starts it only at its own start: see its log"
        )
        yet = " yet" if wanted == "mps+green" and gpu.index in options.retried else ""
        return f"no mode {wanted}{yet}: {why}"

    def history(self, uid: int) -> HistoryView:
        """Return the memory curves of the jobs that the caller may see, oldest jobs first."""

        def answer() -> tuple[CurveView, ...]:
            core = self._loop.scheduler
            known = {**core.jobs, **core.finished}
            found = [
                (known[job_id], gpu, curve)
                for (job_id, gpu), curve in self._loop.histories.curves.items()
                if job_id in known and self.rights.may_see(uid, known[job_id])
            ]
            found.sort(key=lambda one: (one[0].arrival, one[1]))
            most = MOST_HISTORY // max(1, len(found))
            return tuple(
                CurveView(
                    name=job.display_name,
                    display_name=job.spec.name,
                    gpu=gpu,
                    points=tuple(curve.points())[-most:],
                )
                for job, gpu, curve in found
            )

        wall_ns = self._loop.calendar.wall_ns
        return HistoryView(
            curves=self._ask(uid, answer),
            gpus=tuple(self.gpus()),
            since_wall_ns=wall_ns(0),
            end_wall_ns=wall_ns(self._loop.clock.now_ns()),
        )

    def partitions(self, uid: int) -> list[PartitionView]:
        """Return how each GPU is divided among the jobs that the caller may see."""
        core = self._loop.scheduler

        def answer(view: GpuView) -> PartitionView:
            gpu = view.gpu.index
            return PartitionView(
                gpu=view,
                part_sms=part_sms_of(gpu, core.options),
                parts=tuple(p for p in parts_of(core, gpu) if self.rights.may_see(uid, p.job)),
            )

        views = self.gpus()
        return self._ask(uid, lambda: [answer(view) for view in views])

    def plans(self, uid: int) -> list[PlansView]:
        """Return how the jobs on each GPU that the caller may see might share it."""
        core = self._loop.scheduler

        def answer() -> tuple[dict[int, Outlook], dict[int, InForce]]:
            now_ns = self._loop.clock.now_ns()

            def of(gpus: frozenset[int], members: Sequence[Group]) -> Outlook | None:
                seen = [
                    g for g in members if all(self.rights.may_see(uid, j) for j in g.jobs.values())
                ]
                model = core.tuning.model_of(gpus)
                found = outlook(seen, gpus, core.options, model, now_ns)
                if found is None or len(seen) == len(members):
                    return found
                return replace(found, doubts=(UNSEEN, *found.doubts))

            found = {gpus: of(gpus, members) for gpus, members in core.islands.items()}
            told = {
                gpu: core.divisions.in_force(gpus, members, core.options, now_ns)
                for gpus, members in core.islands.items()
                for gpu in gpus
            }
            return {gpu: seen for gpus, seen in found.items() if seen for gpu in gpus}, told

        views, (outlooks, told) = self.gpus(), self._ask(uid, answer)
        return [
            PlansView.of(view, outlooks.get(gpu), told.get(gpu, InForce()))
            for view in views
            for gpu in [view.gpu.index]
        ]

    def metrics(self, uid: int) -> MetricsView:
        """Return all counters of the living jobs that the caller may see, and of the GPUs."""
        jobs, gpus = tuple(self.jobs(uid, finished=False)), tuple(self.gpus())
        return self._loop.ask(
            lambda: MetricsView(
                policy=self._loop.scheduler.options.policy,
                jobs=jobs,
                gpus=gpus,
                decisions=self._loop.decisions.counted(),
                is_reload_good=self.is_reload_good,
                is_state_kept=self._loop.remembered.is_kept,
            )
        )

    def status(self, uid: int) -> StatusView:
        """Return the state of the daemon itself, and what it allows the caller."""
        self.rights.limits.meet(uid)
        allowance = AllowanceView(
            max_class=self.rights.limits.ceiling(uid),
            class_key=self.rights.limits.why_class(uid),
            memory=self.rights.limits.memory_ceiling(uid),
        )

        def answer() -> StatusView:
            core, clock = self._loop.scheduler, self._loop.clock
            return StatusView(
                uptime_ns=clock.now_ns() - self._loop.started_ns,
                policy=core.options.policy,
                jobs=len(core.jobs),
                processes=len(core.processes),
                clock="softgpu-virtual" if clock.is_virtual else "monotonic",
                allowance=allowance,
                state_problem=self._loop.remembered.problem,
            )

        return self._loop.ask(answer)

    @contextmanager
    def watch(self, uid: int) -> Iterator[queue.Queue[Event | None]]:
        """Queue changes of the jobs the caller may see, from now on; None: the caller was too slow.

        Raises:
            CapacityError: too many clients watch already, in all or of this uid.
        """
        events: queue.Queue[Event | None] = queue.Queue(maxsize=WATCH_BACKLOG + 1)

        def tell(change: Change) -> None:
            core = self._loop.scheduler
            job = core.jobs.get(change.job_id) or core.finished.get(change.job_id)
            if job is None or not self.rights.may_see(uid, job):
                return
            if events.qsize() >= WATCH_BACKLOG:
                self._loop.watchers.discard(tell)
                events.put_nowait(None)  # there is room, because only this function puts
                return
            at_ns = self._loop.calendar.wall_ns(change.at_ns)
            view, kind, rule = self._views.of(uid, job), change.kind, change.rule
            events.put_nowait(Event(wall_ns=at_ns, kind=kind, rule=rule, job=view))

        with self._watchers.take(uid):
            self._ask(uid, lambda: self._loop.watchers.add(tell))
            try:
                yield events
            finally:
                self._loop.post(lambda: self._loop.watchers.discard(tell))

    @contextmanager
    def trace(self, uid: int) -> Iterator[Callable[[], list[TraceEvent]]]:
        """Record what happens to the jobs that the caller may see; each call takes what is new.

        Raises:
            CapacityError: too many clients record already, in all or of this uid.
        """
        turns, authors = TurnLog(), dict[int, Author]()

        def dropped() -> tuple[dict[int, int], int]:
            jobs = self._loop.scheduler.jobs.values()
            each = (process for job in jobs for process in job.processes.values())
            counts = {one.process_id: one.usage.dropped_records for one in each}
            return counts, self._loop.clock.now_ns()

        def begin() -> Losses:
            self._loop.turn_logs.add(turns)
            return Losses(*dropped())

        def take() -> list[TraceEvent]:
            core = self._loop.scheduler
            for job in core.jobs.values():
                if self.rights.may_see(uid, job):
                    authors.update(_authors(job, self._sessions))
            name = partial(self._name_for, uid)
            return [of_turn(turn, name) for turn in turns.take()]

        def take_new() -> list[TraceEvent]:
            # Before the records, which may be of processes that end meanwhile.
            found = self._ask(uid, take)
            taken = drain()
            late, (counts, now_ns) = self._ask(uid, lambda: (take(), dropped()))
            records = of_records(taken.records, authors, until_ns=now_ns)
            lost = losses.look(counts, taken, authors, now_ns=now_ns)
            return [*found, *late, *records, *lost]

        with self._traces.take(uid), self._taps.open() as drain:
            losses = self._ask(uid, begin)
            try:
                yield take_new
            finally:
                self._loop.post(lambda: self._loop.turn_logs.discard(turns))

    def wall_ns(self, at_ns: int) -> int:
        """Convert a time of the daemon's clock to Unix time."""
        return self._loop.calendar.wall_ns(at_ns)

    def _name_for(self, uid: int, job_id: int) -> str:
        """Name a job for a trace; empty if the caller may not see it."""
        core = self._loop.scheduler
        job = core.jobs.get(job_id) or core.finished.get(job_id)
        return f"j-{job_id:x}" if job is not None and self.rights.may_see(uid, job) else ""

    def _ask(self, uid: int, question: Callable[[], Answer]) -> Answer:
        """Ask the loop, after looking up the caller's uid: the loop itself cannot wait for that."""
        self.rights.limits.meet(uid)
        return self._loop.ask(question)

    def _not_signalled(self, job: Job) -> tuple[str, ...]:
        """Return why some of the job's processes cannot be signalled.

        Raises:
            AccessError: none can be.
        """
        found = [why_not(target, uid=job.uid) for target in self._sessions.targets(job)]
        problems = tuple(filter(None, found))
        if len(problems) == len(found):
            raise AccessError(f"{job.display_name} cannot be signalled: {'; '.join(problems)}")
        return problems


def _drain_lines(job: Job, draining: Sequence[Gpu]) -> Iterator[str]:
    used = gpus_of(job)
    for gpu in draining:
        if gpu.index in used:
            yield f"gpu {gpu.name} is draining: this job continues there, but no other is started"


def _authors(job: Job, sessions: Sessions) -> Iterator[tuple[int, Author]]:
    for process in job.processes.values():
        if (info := sessions.info.get(process.process_id)) is not None:
            yield (
                process.process_id,
                Author(job=f"j-{job.job_id:x}", pid=info.pid, gpus=tuple(sorted(process.gpus))),
            )
