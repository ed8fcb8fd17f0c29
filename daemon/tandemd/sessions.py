"""Turns packets on the attach socket into events of the core, and sends the answers.

Belongs to the loop's thread. A claimed job id is honoured if it is free or owned by the same uid,
as the kernel reports the peer. A job from before a restart keeps its owner and gets the spec that
it had then. A process with any other claim becomes a job of its own, because a variable inherited
through `sudo` should not leave it unscheduled.
"""

from __future__ import annotations

import secrets
import signal
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Protocol, assert_never

import structlog

from tandem import _native
from tandem.units import exact_bytes
from tandemd.config.limits import Limits
from tandemd.core.effects import without_effect_from_the_start
from tandemd.core.events import (
    CeilingSet,
    Event,
    GpuAdded,
    HandleShared,
    JobExited,
    JobRegistered,
    JobTurnedAway,
    ProcessAttached,
    ProcessExited,
    ProcessMapped,
    SignalJob,
    UsageSampled,
)
from tandemd.core.memory import minima
from tandemd.core.model import NEVER_IDLE_NS, NO_LIMIT, Job, JobClass, JobSpec
from tandemd.core.notices import paused_again
from tandemd.core.scheduler import Scheduler
from tandemd.core.space.asked import MODES, never_fits, not_yet, unfit, variables
from tandemd.core.spec_ranges import MOST_NS
from tandemd.core.spec_words import changes_of
from tandemd.core.words import sizes_apart
from tandemd.edges.attach import (
    REFUSED_MALFORMED,
    REFUSED_NO_ROOM,
    REFUSED_NOT_YET,
    REFUSED_PROTOCOL,
    REFUSED_UNFIT,
    AttachServer,
    Connection,
    Gone,
    Message,
    Readable,
)
from tandemd.edges.channel import Channels
from tandemd.edges.gpus import INSTANCE_MARK, GpuIndex
from tandemd.edges.outbox import Outboxes
from tandemd.edges.peers import Peer, has_other_clock
from tandemd.edges.signals import Target, send
from tandemd.observers.usages import usage_of
from tandemd.remembered import Remembered

CLOCK_MONOTONIC, CLOCK_VIRTUAL = 0, 1  # wire::ClockKind
SECOND_NS = 1_000_000_000
ENDED_SLACK = 64  # jobs whose commands may be kept after the core has forgotten them

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInfo:
    """What other parts need to know of an attached process."""

    pid: int
    uid: int
    attached_ns: int
    is_there: Callable[[], bool]  # this very process lives, not one that reused its pid; any thread
    target: Target  # for signals
    shim_version: str  # as reported by the shim


class Note(Protocol):
    """Hands an event to the core; `afterwards` runs once its conclusions have been performed."""

    def __call__(self, event: Event, *, afterwards: Callable[[], None] | None = None) -> None:
        """Call from the loop's thread."""


class Sessions:
    """The attached processes and launched jobs, by connection."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        channels: Channels,
        poller: _native.Poller,
        limits: Limits,
        gpu_index: GpuIndex,
        clock_kind: int,
    ) -> None:
        self.limits = limits
        self.attach: AttachServer  # set by the code that makes both
        self.note: Note  # the loop's
        self.on_attach: list[Callable[[], None]] = []  # called on the loop's thread
        # Returns the extra environment for a job of a uid on some GPUs, or on any.
        self.surroundings: Callable[[int, frozenset[int]], dict[str, str]] = lambda *_: {}
        # Returns why MPS there would not serve such a job; empty: it does, or none is needed.
        self.unserved: Callable[[int, frozenset[int]], str] = lambda *_: ""
        self.is_draining: Callable[[int], bool] = lambda _: False
        self.remembered = Remembered(None, at_once=True)  # default: nothing from before a restart
        self.outboxes = Outboxes()
        self.info: dict[int, ProcessInfo] = {}  # by process
        self.commands: dict[int, str] = {}  # by job
        self._ended: deque[int] = deque()  # ended jobs, oldest first, whose commands are still kept
        self._scheduler = scheduler
        self._channels = channels
        self._poller = poller
        self._gpu_index = gpu_index
        self._clock_kind = clock_kind
        # Start at a random number, so that no new job gets the number of one from before a restart.
        self._next_job_id = secrets.randbits(16) << 4 | 1
        self._next_process_id = 1
        self._processes: dict[int, int] = {}  # connection -> process
        self._launched: dict[int, int] = {}  # connection -> job
        self._launchers: dict[int, Target] = {}  # job -> the process that registered it

    def take(self, message: Message, now_ns: int) -> None:
        """Handle one message from the attach socket."""
        if isinstance(message, Gone):
            self._gone(message.connection, now_ns)
            return
        if isinstance(message, Readable):
            self._readable(message.connection)
            return
        connection, packet = message.connection, message.packet
        match packet:
            case _native.Register():
                self._register(connection, packet, now_ns)
            case _native.Hello():
                self._hello(connection, packet, now_ns)
            case _native.Mapped():
                self._mapped(connection, now_ns)
            case _native.Shared():
                self._shared(connection, packet.key, now_ns)
            case _native.Uses():
                self._uses(connection, packet.device_uuid, now_ns)
            case _:
                assert_never(packet)

    def _readable(self, connection: Connection) -> None:
        process_id = self._processes.get(connection.number)
        if process_id is not None and self.outboxes.go_on(process_id):
            self._channels.readable(process_id)

    def regard(self, uid: int, now_ns: int) -> None:
        """Tell the core how much memory all jobs of a user may hold, by the current limits."""
        ceiling = self.limits.memory_ceiling(uid)
        if ceiling != self._scheduler.memory.line.ceilings.of(uid):
            self.note(CeilingSet(now_ns=now_ns, uid=uid, ceiling=ceiling))

    def _register(self, connection: Connection, packet: _native.Register, now_ns: int) -> None:
        uid = connection.peer.uid
        self.regard(uid, now_ns)
        gpus = self._gpu_index.named(packet.gpu)
        spec = self._spec(uid, packet, gpus)
        before = self._registered_by(connection)
        if (refused := self._refusal(uid, packet, spec, gpus, before)) is not None:
            code, reason = refused
            if code == REFUSED_NOT_YET:  # not worth a log line: it asks again in a moment
                self.attach.send(connection, _native.encode_refused(code=code, reason=reason))
                self.attach.hang_up(connection)
            else:
                self.attach.refuse(connection, code=code, reason=reason)
            return
        told = list(without_effect_from_the_start(self._scheduler, spec, gpus))
        less = self._less_memory(uid, packet, spec)
        told += less
        # The answer carries this in a field of its own.
        lower = self._lower_class(uid, packet, spec)
        job_id = 0 if packet.only_asks else self._new_job_id()
        if job_id:
            if before is not None:
                self._end_launch(before, now_ns)
            self.commands[job_id] = packet.command
            self._launched[connection.number] = job_id
            self._launchers[job_id] = _target(connection)
            self.note(
                JobRegistered(
                    now_ns=now_ns,
                    job_id=job_id,
                    uid=uid,
                    spec=spec,
                    meant_gpus=gpus or frozenset(self._scheduler.options.sm_counts),
                    told="; ".join(
                        filter(None, (*lower, *told, self.unserved(uid, gpus))),
                    ),
                )
            )
            log.info("job registered", job=f"j-{job_id:x}", uid=uid, pid=connection.peer.pid)
        environment = self._environment(uid, spec, packet.gpu, says_memory=bool(less))
        answer = _native.encode_registered(
            job_id=job_id, job_class=spec.job_class, environment=environment, told="\n".join(told)
        )
        self.attach.send(connection, answer)

    def _registered_by(self, connection: Connection) -> Job | None:
        """Return the job that this process registered before and that never had a process.

        `tandem run ... -- tandem run ...` is one process that registers twice. The last request
        counts, and what was promised to the first is freed for others.
        """
        pid, uid = connection.peer.pid, connection.peer.uid
        for job_id, launcher in self._launchers.items():
            job = self._scheduler.jobs.get(job_id)
            if job is not None and launcher.pid == pid and job.uid == uid and not job.processes:
                return job
        return None

    def _end_launch(self, job: Job, now_ns: int) -> None:
        """Drop a job whose launching process has registered another one."""
        self._launched = {n: job_id for n, job_id in self._launched.items() if job_id != job.job_id}
        del self._launchers[job.job_id]
        log.info("registered anew by the same process", job=job.display_name)
        self.note(JobExited(now_ns=now_ns, job_id=job.job_id))

    def _refusal(
        self,
        uid: int,
        packet: _native.Register,
        spec: JobSpec,
        gpus: frozenset[int],
        before: Job | None,
    ) -> tuple[int, str] | None:
        """Return code and reason for refusing the job, in place of `before`; None: start it."""
        options, unserved = self._scheduler.options, self.unserved(uid, gpus)
        if drained := self._drained(packet.gpu):
            return (REFUSED_NO_ROOM if packet.no_wait else REFUSED_UNFIT), drained
        never = self._no_such_gpu(packet.gpu) or never_fits(spec, gpus, options)
        if packet.asks_again and not never and (reason := not_yet(spec, gpus, options)):
            return REFUSED_NOT_YET, reason
        why = never or unfit(spec, gpus, options)
        if not why and unserved and spec.isolation.startswith("mps"):
            why = f"it asks for isolation {spec.isolation}, but {unserved}"
        if why:
            return REFUSED_UNFIT, why
        # Above its user's limits it must not run unmanaged either.
        if told := self._scheduler.objection_for_user(spec, uid, before, gpus):
            return REFUSED_UNFIT, told
        objection = self._scheduler.objection_to(spec, before, gpus)
        if objection and minima.never_fits(spec, gpus, self._scheduler.memory.line.capacity_bytes):
            return REFUSED_UNFIT, objection
        if objection is None and packet.no_wait:
            objection = self._scheduler.line_before(spec, uid, gpus)
        return None if objection is None else (REFUSED_NO_ROOM, objection)

    def _environment(self, uid: int, spec: JobSpec, gpu: str, *, says_memory: bool) -> str:
        """Return the environment of a job that is about to start, one variable per line."""
        gpus, options = self._gpu_index.named(gpu), self._scheduler.options
        said = variables(spec, gpus, options) | self.surroundings(uid, gpus)
        if says_memory:
            share = f"{spec.memory_percent}%" if spec.memory_percent else ""
            said["TANDEM_MEMORY"] = share or exact_bytes(spec.memory_bytes)
        if (instance := self._gpu_index.instance(gpu)) is not None:
            # CUDA knows an instance by no other name.
            said["CUDA_VISIBLE_DEVICES"] = instance.uuid_text
        elif gpu and options.overlaps(gpus or options.sm_counts):
            # Clients of an MPS that was started with some of the GPUs number those from 0.
            said["CUDA_VISIBLE_DEVICES"] = self._gpu_index.by_uuid(gpu)
        return "\n".join(f"{name}={value}" for name, value in said.items())

    def _drained(self, names: str) -> str:
        """Return why no job may start on these GPUs, or on any if none is named; empty: it may.

        If none is named, nobody knows which GPU the program will take, so all must be draining.
        """
        options = self._scheduler.options
        every = options.sm_counts.keys()
        named = frozenset().union(*map(self._gpu_index.named, map(str.strip, names.split(","))))
        drained = [gpu for gpu in sorted(named if names else every) if self.is_draining(gpu)]
        if not drained or (not names and len(drained) < len(every)):
            return ""
        called = ", ".join(map(options.name_of, drained))
        are = "gpus" if len(drained) > 1 else "gpu"
        return (
            f"{are} {called}: an admin's `tandem drain` lets no job start there; "
            "name another gpu with --gpu, or try again later"
        )

    def _no_such_gpu(self, names: str) -> str | None:
        name = self._gpu_index.missing(names)
        if not name:
            return None
        is_instance = INSTANCE_MARK in name or name.startswith("MIG-")
        what = "MIG instance" if is_instance else "gpu"
        return f"no {what} is called '{name}'; `tandem gpus` lists those that exist"

    def _hello(self, connection: Connection, hello: _native.Hello, now_ns: int) -> None:
        if (refusal := self._unfit(hello, connection.peer)) is not None:
            self._turn_away(connection, hello, REFUSED_PROTOCOL, refusal, now_ns)
            return
        uid = connection.peer.uid
        self.regard(uid, now_ns)
        job_id = self._job_for(uid, hello.job_id)
        process_id = self._next_process_id
        try:
            pages = _native.Process(process_id=process_id, job_id=job_id)
        except OSError as error:
            reason = f"no shared memory: {error}"
            self._turn_away(connection, hello, REFUSED_NO_ROOM, reason, now_ns)
            return
        self._next_process_id += 1
        self._processes[connection.number] = process_id
        self.outboxes.open(
            process_id,
            send=partial(self.attach.send, connection),
            hang_up=partial(self.attach.hang_up, connection),
        )
        self.info[process_id] = ProcessInfo(
            pid=connection.peer.pid,
            uid=connection.peer.uid,
            attached_ns=now_ns,
            is_there=connection.is_there,
            target=_target(connection),
            shim_version=_version_of(hello.shim_version),
        )
        for hear in self.on_attach:
            hear()
        self._channels.open(process_id, pages)
        gpu = self._gpu_index.of(hello.device_uuids)
        spec, known = self._spec(uid, hello, {gpu}), None
        if job_id not in self._scheduler.jobs:
            if job_id not in self._scheduler.finished:
                self.commands.pop(job_id, None)  # would be that of an earlier job with this number
            spec, known = self.remembered.take_back(job_id, spec)
            if known is not None:  # set before anybody hears of the job
                self.commands[job_id] = known.command
        self.note(
            ProcessAttached(
                now_ns=now_ns,
                process_id=process_id,
                job_id=job_id,
                uid=uid,
                gpu=gpu,
                spec=spec,
                takes_files=bool(hello.abilities & _native.ABILITY_HOST_FILE),
                gives_back=bool(hello.abilities & _native.ABILITY_HOST_BACK),
                has_set=bool(hello.abilities & _native.ABILITY_HAS_SET),
                cancel=known.cancel if known is not None else None,
                mps_percent=hello.mps_percent,
            ),
            # Only once its gate and settings are as the core wants them.
            afterwards=lambda: self._welcome(connection, process_id, job_id, pages),
        )
        if known is not None and known.paused:
            self.note(paused_again(job_id, known.notice, now_ns))
        group = self._scheduler.groups[self._scheduler.jobs[job_id].group_key]
        self._poller.add(pages, group=group.number, gpu=gpu)

    def _turn_away(
        self, connection: Connection, hello: _native.Hello, code: int, reason: str, now_ns: int
    ) -> None:
        """Refuse a process and tell its job, which would look as if it just left the GPU unused."""
        self.attach.refuse(connection, code=code, reason=reason)
        job = self._scheduler.jobs.get(hello.job_id)
        if job is not None and job.uid == connection.peer.uid:
            self.note(JobTurnedAway(now_ns=now_ns, job_id=job.job_id, why=reason))

    def _welcome(
        self, connection: Connection, process_id: int, job_id: int, pages: _native.Process
    ) -> None:
        if process_id not in self.info:
            return  # gone already
        packet = _native.encode_welcome(
            process_id=process_id,
            job_id=job_id,
            clock=self._clock_kind,
            swappable=self._scheduler.jobs[job_id].spec.swappable,
        )
        job = f"j-{job_id:x}"
        log.info("attached", job=job, pid=connection.peer.pid, uid=connection.peer.uid)
        self.outboxes.send(process_id, packet, pages.fds)
        self._channels.welcomed(process_id)

    def _process_of(self, connection: Connection, message: str) -> int | None:
        process_id = self._processes.get(connection.number)
        if process_id is None:
            reason = f"{message} without HELLO"
            self.attach.refuse(connection, code=REFUSED_MALFORMED, reason=reason)
        return process_id

    def _mapped(self, connection: Connection, now_ns: int) -> None:
        process_id = self._process_of(connection, "MAPPED")
        if process_id is not None:
            self._channels.mapped(process_id)
            self.note(ProcessMapped(now_ns=now_ns, process_id=process_id))

    def _shared(self, connection: Connection, key: int, now_ns: int) -> None:
        process_id = self._process_of(connection, "SHARED")
        if process_id is not None:
            self.note(HandleShared(now_ns=now_ns, process_id=process_id, key=key))

    def _uses(self, connection: Connection, device_uuid: bytes, now_ns: int) -> None:
        process_id = self._process_of(connection, "USES")
        if process_id is not None:
            gpu = self._gpu_index.of([device_uuid])
            self.note(GpuAdded(now_ns=now_ns, process_id=process_id, gpu=gpu))

    def _gone(self, connection: Connection, now_ns: int) -> None:
        job_id = self._launched.pop(connection.number, None)
        if job_id is not None:
            del self._launchers[job_id]
            if job_id in self._scheduler.jobs:
                self.note(JobExited(now_ns=now_ns, job_id=job_id))
        process_id = self._processes.pop(connection.number, None)
        if process_id is None:
            return
        last = usage_of(self._poller.remove(process_id=process_id))
        self.note(UsageSampled(now_ns=now_ns, samples=(last,)))
        self.note(ProcessExited(now_ns=now_ns, process_id=process_id))
        self._channels.close(process_id)
        self.outboxes.close(process_id)
        self.info.pop(process_id, None)
        log.info("detached", pid=connection.peer.pid)

    def signal(self, action: SignalJob) -> None:
        """Send a signal to a job's processes; failures are logged."""
        job = self._scheduler.jobs[action.job_id]
        if action.process_id is None:
            targets = self.targets(job)
        else:
            targets = [self.info[action.process_id].target]
        number = signal.Signals[f"SIG{action.signal}"]
        told = {"job": job.display_name, "signal": number.name}
        problems = {target.pid: send(target, number, uid=job.uid) for target in targets}
        log.info(
            "signalled", pids=[pid for pid, problem in problems.items() if not problem], **told
        )
        for problem in filter(None, problems.values()):
            log.warning("not signalled", reason=problem, **told)

    def targets(self, job: Job) -> list[Target]:
        """Return a job's processes, each once: one may have both registered it and attached."""
        attached = [self.info[p].target for p in job.processes if p in self.info]
        launcher = self._launchers.get(job.job_id)
        pids = {target.pid for target in attached}
        return attached if launcher is None or launcher.pid in pids else [launcher, *attached]

    def remember(self, job_id: int) -> None:
        """Record a changed job for a daemon that is started anew."""
        job = self._scheduler.jobs.get(job_id)
        if job is None:
            self.remembered.forget_job(job_id)
            self._ended.append(job_id)
            self._forget_commands()
        else:
            self.remembered.keep_job(job, self.commands.get(job_id, ""))

    def _forget_commands(self) -> None:
        """Drop the command lines of jobs the core no longer knows, in the order of their ends.

        The core forgets later jobs of a user with many short ones before earlier jobs of others, so
        the queue is cleaned up from time to time.
        """
        finished = self._scheduler.finished
        is_due = len(self._ended) > 2 * len(finished) + ENDED_SLACK
        kept = [job_id for job_id in self._ended if job_id in finished] if is_due else []
        while self._ended and (is_due or self._ended[0] not in finished):
            job_id = self._ended.popleft()
            if job_id not in finished and job_id not in self._scheduler.jobs:
                self.commands.pop(job_id, None)
        self._ended.extend(kept)

    def _unfit(self, hello: _native.Hello, peer: Peer) -> str | None:
        if not hello.layout_min <= _native.LAYOUT_VERSION <= hello.layout_max:
            return (
                f"the shim has layouts {hello.layout_min} to {hello.layout_max}, "
                f"the daemon has {_native.LAYOUT_VERSION}"
            )
        if self._clock_kind == CLOCK_VIRTUAL != hello.clock:
            return "the daemon runs on the software GPU's virtual clock, the process does not"
        if self._clock_kind == CLOCK_MONOTONIC and hello.clock == CLOCK_VIRTUAL:
            return (
                "it uses the software GPU's virtual clock, and the daemon does not; "
                "start tandemd with --clock softgpu"
            )
        # With another clock a process takes each of our heartbeats for stale or nonsense, so it
        # would never be held.
        if self._clock_kind == CLOCK_MONOTONIC and has_other_clock(peer.pid):
            return "its clock is not the daemon's: it is in a time namespace with another offset"
        return None

    def _job_for(self, uid: int, claimed: int) -> int:
        if claimed == 0 or claimed >= 2**63:
            return self._new_job_id()
        owner = self._owner_of(claimed)
        if owner is None or owner == uid:
            return claimed
        log.warning(
            "the job id belongs to another uid, continuing as a new job", uid=uid, owner=owner
        )
        return self._new_job_id()

    def _new_job_id(self) -> int:
        while self._owner_of(self._next_job_id) is not None:
            self._next_job_id += 1
        self._next_job_id += 1
        return self._next_job_id - 1

    def _owner_of(self, job_id: int) -> int | None:
        """Return the uid of the job, living or ended, with this number; None: it is free."""
        scheduler = self._scheduler
        job = scheduler.jobs.get(job_id) or scheduler.finished.get(job_id)
        known = job or self.remembered.claim_of(job_id)
        return None if known is None else known.uid

    def _lower_class(self, uid: int, asked: _native.Register, granted: JobSpec) -> list[str]:
        """Report a class that the job asked for and its user may not have."""
        wanted = asked.request.job_class
        if wanted == 0 or wanted >= granted.job_class:
            return []
        name, got = JobClass(wanted).name.lower(), granted.job_class.name.lower()
        why = self.limits.why_class(uid)
        return [f"it asked for class {name}; its user may have at most {got} ({why})"]

    def _less_memory(self, uid: int, asked: _native.Register, granted: JobSpec) -> list[str]:
        """Report memory that the job asked for and its user may not have."""
        request, key = asked.request, self._scheduler.memory.line.ceilings.of(uid).key
        if granted.memory_percent < request.memory_percent:
            wanted, most = f"{request.memory_percent}%", f"{granted.memory_percent}%"
        elif granted.memory_bytes < _said(request.memory_bytes, NO_LIMIT):
            wanted, most = sizes_apart(request.memory_bytes, granted.memory_bytes)
        else:
            return []
        return [
            f"it asked for {wanted} of memory, and gets the {most} that its user may have ({key})"
        ]

    def _spec(
        self, uid: int, packet: _native.Hello | _native.Register, gpus: Collection[int]
    ) -> JobSpec:
        """Return the spec asked for on some GPUs, or on any, clamped to its user's limits."""
        request, promise, (sm_count, isolation) = packet.request, packet.promise, packet.space
        asked = JobClass(request.job_class) if request.job_class in (1, 2, 3) else JobClass.NORMAL
        granted = self.limits.clamp(uid, asked)
        if granted is not asked:
            log.warning("class clamped", uid=uid, asked=asked.name, granted=granted.name)
        is_swapped = granted in self._scheduler.options.swappable_classes
        spec = JobSpec(
            job_class=granted,
            memory_bytes=_said(request.memory_bytes, NO_LIMIT),
            memory_percent=request.memory_percent,
            memory_min_bytes=_said(request.memory_min_bytes, 0),
            persistent_bytes=_said(promise[0], 0),
            ephemeral_bytes=_said(promise[1], 0),
            wait_memory_ns=request.wait_memory_s * SECOND_NS,
            idle_release_ns=min(packet.idle_release_s * SECOND_NS, NEVER_IDLE_NS),
            sm_percent=min(request.sm_percent, 100),
            sm_count=sm_count,
            isolation=("", *MODES)[isolation],
            slo_p99_ns=min(_said(request.slo_p99_ns, 0), MOST_NS),
            preemptible={1: True, 2: False}.get(request.preemptible),
            swappable={1: True, 2: False, 3: False}.get(request.swappable, is_swapped),
            checkpoint=request.swappable == 3,
            name=request.name,
            group=request.group,
        )
        clipped = self._scheduler.memory.line.ceilings.clip(uid, spec, gpus)
        if clipped != spec:
            log.warning("memory clamped", uid=uid, what=changes_of(spec, clipped))
        return clipped


def _target(connection: Connection) -> Target:
    return Target(pid=connection.peer.pid, pidfd=connection.pidfd)


def _version_of(said: int) -> str:
    """Decode a version as wire.h packs it."""
    return f"{said >> 16}.{said >> 8 & 0xFF}.{said & 0xFF}"


def _said(value: int, otherwise: int) -> int:
    return otherwise if value in (0, NO_LIMIT) else value
