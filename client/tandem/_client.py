"""Client: one method for each request that a person or a scheduler can make of the daemon."""

import errno
import os
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, Self, TypeVar, Unpack

import grpc
from google.protobuf.message import DecodeError

from tandem import _convert, _convert_partition, _convert_plans
from tandem._changes import Changes, said_of
from tandem._heartbeat import BEAT_S, Heartbeat, Stream
from tandem._login import Login
from tandem._paths import RuntimeDir, fits_socket_address, runtime_dir
from tandem._results import (
    Explanation,
    Gpu,
    GpuCut,
    GpuPlans,
    Job,
    JobEvent,
    MemoryHistory,
    Partition,
    PastJob,
    Policy,
    Status,
    TraceEvent,
    Window,
)
from tandem._uninterrupted import uninterrupted
from tandem._waits import LONGEST_S, arrivals
from tandem._wire import tandem_pb2 as pb
from tandem._wire import tandem_pb2_grpc as services
from tandem.errors import (
    DOMAIN,
    DeadlineError,
    StateError,
    UnavailableError,
    UsageError,
    from_grpc_status,
)

DEADLINE_S = 5.0
PAUSE_GRACE_S = 30.0  # the same as for cancelling a job
LONGEST_PAUSE_S = 3600.0
_DETAILS = "grpc-status-details-bin"  # where every gRPC library puts the google.rpc.Status
_REFUSED_STREAM = "RST_STREAM with error code 7"  # RFC 9113; gRPC exposes it nowhere else
_LONGEST_PAGE = 1000  # of a listing
CUT_DEADLINE_S = 120.0  # a driver takes seconds to make an instance

_Request = TypeVar("_Request", contravariant=True)
_Answer = TypeVar("_Answer", covariant=True)
_Metadata = tuple[tuple[str, str], ...]


class _Method(Protocol[_Request, _Answer]):
    def __call__(
        self, request: _Request, /, *, timeout: float | None, metadata: _Metadata
    ) -> _Answer: ...


class _Events(Stream, Protocol):
    def __iter__(self) -> Iterator[pb.JobEvent]: ...


class _Chunks(Stream, Protocol):
    def __iter__(self) -> Iterator[pb.TraceChunk]: ...
    def __next__(self) -> pb.TraceChunk: ...


class _Connection:
    """The connection of one process to the daemon; a forked child may not use its parent's copy."""

    def __init__(self, place: RuntimeDir, inherited: "_Connection | None" = None) -> None:
        self.pid = os.getpid()
        self.inherited = inherited  # kept alive: closing it would write to the parent's socket
        self.channel = grpc.insecure_channel(f"unix:{place.rpc}", options=_CHANNEL_OPTIONS)
        self.jobs = services.JobServiceStub(self.channel)
        self.gpus = services.GpuServiceStub(self.channel)
        self.daemon = services.DaemonServiceStub(self.channel)
        self.partitions = services.PartitionServiceStub(self.channel)
        self.policies = services.PolicyServiceStub(self.channel)
        self.traces = services.TraceServiceStub(self.channel)
        # Protects the fields below; held while logging in, never during a call.
        self.lock = threading.Lock()
        self.login: Login | None = None
        self.is_closed: bool = inherited is not None and inherited.is_closed

    def require_open(self) -> None:
        """Raise StateError if the client is closed."""
        if self.is_closed:
            raise StateError("this client is closed; make another")

    def forget_token(self) -> None:
        """Drop the token, so that the next call logs in again."""
        with self.lock:
            self.log_out()

    def log_out(self) -> None:
        """Like `forget_token`, for a caller that holds the lock."""
        if self.login is not None:
            self.login.close()
            self.login = None


class Client:
    """A connection to the daemon of this machine; use it as a context manager, or close it.

    Every call ends within its `deadline_s` seconds. A failed call raises an error of
    `tandem.errors`: UnavailableError when no daemon answers, DeadlineError when the daemon is too
    slow, AccessError when the caller's uid lacks the right, NotFoundError for an unknown job,
    UsageError for a bad value, StateError once the client is closed. A value of the wrong type
    raises TypeError. Thread-safe. The client connects on the first call, reconnects in a forked
    child, and survives a restart of the daemon.

        with tandem.Client() as client:
            for job in client.jobs():
                print(job.name, job.state, job.reason)
    """

    def __init__(self, *, directory: str | None = None) -> None:
        """Use the daemon whose runtime directory is `directory`, by default the usual one."""
        self._place = _place(directory)
        if not fits_socket_address(self._place.rpc):
            raise UnavailableError(f"{self._place.rpc} is too long for a socket")
        self._connection = _Connection(self._place)

    def _connected(self) -> _Connection:
        connection = self._connection
        if connection.pid != os.getpid():
            connection = self._connection = _Connection(self._place, connection)
        return connection

    @property
    def _jobs(self) -> services.JobServiceStub:
        return self._connected().jobs

    @property
    def _gpus(self) -> services.GpuServiceStub:
        return self._connected().gpus

    @property
    def _daemon(self) -> services.DaemonServiceStub:
        return self._connected().daemon

    @property
    def _partitions(self) -> services.PartitionServiceStub:
        return self._connected().partitions

    @property
    def _traces(self) -> services.TraceServiceStub:
        return self._connected().traces

    @property
    def _policies(self) -> services.PolicyServiceStub:
        return self._connected().policies

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Return the token and close the connection; idempotent."""
        connection = self._connected()
        with connection.lock:
            connection.is_closed = True
            connection.log_out()
        connection.channel.close()

    def jobs(self, *, show_finished: bool = False, deadline_s: float = DEADLINE_S) -> list[Job]:
        """The jobs, oldest first; `show_finished` adds those that ended in the last minutes."""
        jobs: list[Job] = []
        token = ""
        while True:
            request = pb.ListJobsRequest(show_finished=show_finished, page_token=token)
            answer = self._call(self._jobs.ListJobs, request, deadline_s)
            jobs += map(_convert.job, answer.jobs)
            token = answer.next_page_token
            if not token:
                return jobs

    def job(self, name: str, *, deadline_s: float = DEADLINE_S) -> Job:
        """One job by its name, or by its display name if only one has it."""
        request = pb.GetJobRequest(name=_text(name, "name"))
        return _convert.job(self._call(self._jobs.GetJob, request, deadline_s))

    def set(self, name: str, *, deadline_s: float = DEADLINE_S, **changes: Unpack[Changes]) -> Job:
        """Change the given settings of a job, and return the job as it is afterwards.

        Values are those of `tandem run`: `memory="20GiB"`, `slo="p99=50ms"`; "none" removes a
        limit. Owners may lower what their jobs have, and raise it up to what they may start a job
        with.

        Raises:
            UsageError: a bad value, or nothing to change.
            TypeError: an unknown keyword, or a value that is not a string, such as a number of
                bytes.
        """
        said = said_of(changes, "set")
        if not said:
            raise UsageError(f"nothing to change; give {', '.join(Changes.__annotations__)}")
        if "preemptible" in said:
            said["preemptible"] = _yes_or_no(said["preemptible"])
        texts = {word: _text(text, word) for word, text in said.items()}
        request = _convert.update_request(_text(name, "name"), texts)
        return _convert.job(self._call(self._jobs.UpdateJob, request, deadline_s))

    def pause(
        self, name: str, *, grace_s: float = PAUSE_GRACE_S, deadline_s: float = DEADLINE_S
    ) -> Job:
        """Hold a job until `resume`, however long that takes.

        Returns at once. If a program of the job listens for pauses (`tandem.job`), the job is held
        when the program is ready, or after `grace_s` seconds (at most an hour); until then,
        `pause_in_ns` of the job tells how long that takes at most.
        """
        request = _pause_request(_text(name, "name"), grace_s)
        return _convert.job(self._call(self._jobs.PauseJob, request, deadline_s))

    def resume(self, name: str, *, deadline_s: float = DEADLINE_S) -> Job:
        """Let a paused job continue."""
        request = pb.JobName(name=_text(name, "name"))
        return _convert.job(self._call(self._jobs.ResumeJob, request, deadline_s))

    def cancel(
        self,
        name: str,
        *,
        signal: str = "TERM",
        grace_s: float = 30.0,
        deadline_s: float = DEADLINE_S,
    ) -> Job:
        """End a job: send it a signal now, and SIGKILL to whatever is left after the grace period.

        Returns at once; `wait` waits for the end of the job. A paused job is resumed so that it can
        handle the signal. `warnings` of the job name the processes that cannot be signalled.
        Processes that never used the GPU are unknown to the daemon, except the one that `tandem
        run` became.

        Args:
            name: name of the job.
            signal: HUP, INT, QUIT, USR1, USR2, TERM or KILL.
            grace_s: seconds until SIGKILL, at most a day; 0: at once.
            deadline_s: limit for the call, in seconds.

        Raises:
            StateError: the job has ended.
        """
        request = _cancel_request(_text(name, "name"), signal, grace_s)
        return _convert.job(self._call(self._jobs.CancelJob, request, deadline_s))

    def group(self, group: str, *, deadline_s: float = DEADLINE_S) -> list[Job]:
        """The jobs of a group, oldest first: the live ones, or the ended ones if none is alive."""
        return self._change_group(pb.ChangeGroupRequest(group=_text(group, "group")), deadline_s)

    def pause_group(
        self, group: str, *, grace_s: float = PAUSE_GRACE_S, deadline_s: float = DEADLINE_S
    ) -> list[Job]:
        """Hold all jobs of a group until `resume_group`, each as `pause` does."""
        pause = _pause_request("", grace_s)
        request = pb.ChangeGroupRequest(group=_text(group, "group"), pause=pause)
        return self._change_group(request, deadline_s)

    def resume_group(self, group: str, *, deadline_s: float = DEADLINE_S) -> list[Job]:
        """Let all jobs of a group continue."""
        request = pb.ChangeGroupRequest(group=_text(group, "group"), resume=pb.JobName())
        return self._change_group(request, deadline_s)

    def cancel_group(
        self,
        group: str,
        *,
        signal: str = "TERM",
        grace_s: float = 30.0,
        deadline_s: float = DEADLINE_S,
    ) -> list[Job]:
        """End all jobs of a group, or none, as `cancel` does; jobs that join it later are spared.

        Raises:
            StateError: all have ended.
        """
        cancelled = _cancel_request("", signal, grace_s)
        request = pb.ChangeGroupRequest(group=_text(group, "group"), cancel=cancelled)
        return self._change_group(request, deadline_s)

    def set_group(
        self, group: str, changes: Mapping[str, str], *, deadline_s: float = DEADLINE_S
    ) -> list[Job]:
        """Change all jobs of a group, or none: `{"priority": "batch"}`, with the keys of `set`.

        Raises:
            UsageError: an unknown key, a bad value, or a promise of memory, which is for a single
                job.
        """
        if not isinstance(changes, Mapping):
            raise TypeError(f"changes are a mapping of words to text, not {changes!r}")
        if not changes:
            raise UsageError(f"nothing to change; give {', '.join(_convert.CHANGES)}")
        said = {word: _text(text, word) for word, text in changes.items()}
        update = _convert.update_request("", said)
        request = pb.ChangeGroupRequest(group=_text(group, "group"), update=update)
        return self._change_group(request, deadline_s)

    def _change_group(self, request: pb.ChangeGroupRequest, deadline_s: float) -> list[Job]:
        answer = self._call(self._jobs.ChangeGroup, request, deadline_s)
        return list(map(_convert.job, answer.jobs))

    def wait(self, *names: str, until: str = "ended", deadline_s: float | None = None) -> list[Job]:
        """Wait until each job has ended or is in the state `until`; return them as they are then.

        Raises:
            DeadlineError: the given deadline has passed.
            StateError: a job has ended while another state was awaited.
            UnavailableError: the daemon is gone or hangs; the jobs may still run.
        """
        if deadline_s is not None:
            _check_seconds(deadline_s, "deadline_s")
        arrived = {
            job.name: job for job in arrivals(self, names, until=until, deadline_s=deadline_s)
        }
        return list(arrived.values())

    def explain(self, name: str, *, deadline_s: float = DEADLINE_S) -> Explanation:
        """Why a job runs or waits."""
        request = pb.JobName(name=_text(name, "name"))
        answer = self._call(self._jobs.ExplainJob, request, deadline_s)
        return _convert.explanation(answer)

    def windows(
        self,
        name: str,
        *,
        patience_s: float = 30.0,
        signatures: Mapping[str, str] = MappingProxyType({}),
    ) -> list[Window]:
        """Record what each process of a job does during one iteration from now.

        Returns once every process has completed an iteration, at the latest after `patience_s` (up
        to 60); processes that have not completed one by then are left out. For a process that is
        known to have no iterations, a few seconds are recorded. Only the job's owner and admins may
        call this. `signatures` gives, by kernel name, the C parameter lists of kernels whose names
        do not contain them (`extern "C"`); they tell which memory a launch touches.

        Raises:
            UsageError: a signature is not a parameter list, or does not fit its kernel.
        """
        _check_seconds(patience_s, "patience_s")
        request = pb.RecordWindowRequest(name=_text(name, "name"), signatures=signatures)
        request.patience.FromNanoseconds(round(patience_s * 1e9))
        deadline_s = patience_s + DEADLINE_S
        metadata = self._metadata(deadline_s)
        with _mapped(self._place):
            begin = self._jobs.RecordWindow
            stream = uninterrupted(lambda: begin(request, timeout=deadline_s, metadata=metadata))
            return [_convert.window(message) for message in stream]

    def trace(self, *, seconds: float) -> Generator[TraceEvent, None, None]:
        """Stream the jobs' activity on the GPUs for `seconds` (up to 600), from when this returns.

        The events tell who has the turn, who waits for what, and which iterations, phases and
        requests programs mark, for all jobs that the caller may see. The events of one process are
        in order, and so are those of turns. The iterator blocks between events; closing it ends the
        recording early. Events not read within 5 seconds after the end are lost.

        Raises:
            CapacityError: too many recordings are running already.
            UsageError: `seconds` is more than the daemon allows.
            UnavailableError: the daemon ended meanwhile.
        """
        _check_seconds(seconds, "seconds")
        request = pb.RecordTraceRequest()
        request.duration.FromNanoseconds(max(1, round(seconds * 1e9)))
        deadline_s = seconds + DEADLINE_S  # the daemon ends the recording itself
        with _mapped(self._place):
            metadata, begin = self._metadata(DEADLINE_S), self._traces.RecordTrace
            stream = uninterrupted(lambda: begin(request, timeout=deadline_s, metadata=metadata))
            next(stream, None)  # the first chunk is empty: the recording has begun
        return self._traced(stream)

    def _traced(self, stream: _Chunks) -> Generator[TraceEvent, None, None]:
        with _mapped(self._place):
            try:
                for chunk in stream:
                    yield from map(_convert.trace_event, chunk.events)
            except grpc.RpcError as exc:
                self._connected().require_open()
                # A caller that reads too slowly, or a daemon that hangs, only cuts the trace short.
                if exc.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise
            finally:
                stream.cancel()

    def gpus(self, *, deadline_s: float = DEADLINE_S) -> list[Gpu]:
        """The GPUs the daemon shares out."""
        answer = self._call(self._gpus.ListGpus, pb.ListGpusRequest(), deadline_s)
        return [_convert.gpu(g) for g in answer.gpus]

    def drain_gpu(self, name: str, *, undo: bool = False, deadline_s: float = DEADLINE_S) -> Gpu:
        """Stop starting jobs on a GPU, or with `undo` allow it again; running jobs continue.

        Raises:
            AccessError: the caller is not an admin.
            NotFoundError: no GPU has that name or UUID.
        """
        request = pb.DrainGpuRequest(name=_text(name, "name"), undo=undo)
        return _convert.gpu(self._call(self._gpus.DrainGpu, request, deadline_s))

    def cut_gpu(
        self, mig: str, *, dry_run: bool = False, deadline_s: float = CUT_DEADLINE_S
    ) -> GpuCut:
        """Cut a GPU into MIG instances; if that fails, the GPU is left as it was.

        Args:
            mig: a layout such as `0=3g.71gb,2g.35gb`, or `0=off`.
            dry_run: only report what would be done.
            deadline_s: limit for the whole call, in seconds.

        Raises:
            AccessError: the caller is not an admin, or the driver reserves this for root.
            CapacityError: the layout does not fit.
            StateError: the GPU is in use or has no MIG, or the driver fails to do it.
            UsageError: `mig` is not a layout, or names a GPU or a profile that does not exist.
        """
        request = pb.ApplyPartitionRequest(mig=_text(mig, "mig"), dry_run=dry_run)
        answer = self._call(self._partitions.ApplyPartition, request, deadline_s)
        return _convert.gpu_cut(answer)

    def memory_history(self, *, deadline_s: float = DEADLINE_S) -> MemoryHistory:
        """The GPU memory that each job held over the last minutes, including ended jobs."""
        answer = self._call(self._gpus.GetMemoryHistory, pb.GetMemoryHistoryRequest(), deadline_s)
        return _convert.memory_history(answer)

    def partitions(self, *, deadline_s: float = DEADLINE_S) -> list[Partition]:
        """How each GPU is divided, and how the jobs that the caller may see scale with its SMs."""
        answer = self._call(self._partitions.GetPartition, pb.GetPartitionRequest(), deadline_s)
        return _convert_partition.partitions(answer)

    def plans(self, *, deadline_s: float = DEADLINE_S) -> list[GpuPlans]:
        """How the jobs on each GPU could share it, with the expected effects; changes nothing."""
        answer = self._call(self._partitions.PlanPartition, pb.PlanPartitionRequest(), deadline_s)
        return _convert_plans.plans(answer)

    def policy(self, *, deadline_s: float = DEADLINE_S) -> Policy:
        """The policy in force, and those available."""
        answer = self._call(self._policies.GetPolicy, pb.GetPolicyRequest(), deadline_s)
        return _convert.policy(answer)

    def set_policy(self, name: str, *, deadline_s: float = DEADLINE_S) -> Policy:
        """Switch to another policy, until the daemon reloads its configuration.

        Raises:
            AccessError: the caller is not an admin.
            NotFoundError: there is no such policy.
        """
        request = pb.SetPolicyRequest(name=_text(name, "name"))
        return _convert.policy(self._call(self._policies.SetPolicy, request, deadline_s))

    def status(self, *, deadline_s: float = DEADLINE_S) -> Status:
        """The state of the daemon itself."""
        answer = self._call(self._daemon.GetStatus, pb.GetStatusRequest(), deadline_s)
        return _convert.status(answer)

    def metrics(self, *, deadline_s: float = DEADLINE_S) -> str:
        """Metrics of the jobs that the caller may see, in the Prometheus text format."""
        return self._call(self._daemon.GetMetrics, pb.GetMetricsRequest(), deadline_s).text

    def history(
        self,
        *,
        user: str | None = None,
        group: str | None = None,
        since_ns: int | None = None,
        until_ns: int | None = None,
        limit: int | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> list[PastJob]:
        """Jobs that have ended, even before the daemon was started, in the order of their ends.

        The arguments filter the jobs: by user (name or uid), by group, and by when they ended, in
        nanoseconds since 1970. `limit` returns only that many of the newest.

        Raises:
            StateError: the daemon keeps no history.
        """
        if limit is not None and limit < 1:
            raise UsageError(f"limit is {limit}, not a number of jobs above 0; None is all")
        said = {"user": user, "group": group}
        if empty := [what for what, text in said.items() if text == ""]:
            raise UsageError(f"{empty[0]} is empty; leave it out for all jobs")
        texts = {what: None if text is None else _text(text, what) for what, text in said.items()}
        request = _convert.history_request(**texts, since_ns=since_ns, until_ns=until_ns)
        found: list[PastJob] = []
        while limit is None or len(found) < limit:
            request.page_size = 0 if limit is None else min(limit - len(found), _LONGEST_PAGE)
            answer = self._call(self._jobs.ListHistory, request, deadline_s)
            found += map(_convert.past_job, answer.jobs)
            request.page_token = answer.next_page_token
            if not request.page_token:
                break
        return found[::-1]

    def events(self, *, deadline_s: float = DEADLINE_S) -> list[JobEvent]:
        """The events of the jobs so far, oldest first; each event has its job as it is now.

        Each kind of event appears once for each job, with the time of its last occurrence and how
        often it occurred. Jobs that have ended are kept for ten minutes.
        """
        answer = self._call(self._jobs.ListJobEvents, pb.ListJobEventsRequest(), deadline_s)
        return list(map(_convert.job_event, answer.events))

    def watch(self, *, deadline_s: float | None = None) -> Generator[JobEvent, None, None]:
        """Every change from the moment this returns; closing the iterator ends the watch.

        The iterator blocks between events. It raises DeadlineError when a given deadline passes,
        UnavailableError when the daemon ends or stops answering, and StateError once the client is
        closed.
        """
        if deadline_s is not None:
            _check_seconds(deadline_s, "deadline_s")
        metadata = self._metadata(DEADLINE_S if deadline_s is None else deadline_s)
        begin, request = self._jobs.WatchJobs, pb.WatchJobsRequest()
        stream = uninterrupted(lambda: begin(request, timeout=deadline_s, metadata=metadata))
        heartbeat = Heartbeat(stream, lambda: self.status(deadline_s=DEADLINE_S), every_s=BEAT_S)
        stream.initial_metadata()  # the daemon sends it once no event can be missed
        return self._events(stream, heartbeat)

    def _events(self, stream: _Events, heartbeat: Heartbeat) -> Generator[JobEvent, None, None]:
        with _mapped(self._place):
            try:
                for event in stream:
                    yield _convert.job_event(event)
            except grpc.RpcError as exc:
                if heartbeat.failure is not None:
                    raise heartbeat.failure from exc
                self._connected().require_open()
                if exc.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise DeadlineError("the deadline of the watch has passed") from exc
                raise
            finally:
                stream.cancel()

    def _call(
        self, method: _Method[_Request, _Answer], request: _Request, deadline_s: float
    ) -> _Answer:
        _check_seconds(deadline_s, "deadline_s")
        end_s = time.monotonic() + deadline_s
        with _mapped(self._place):
            try:
                return self._attempt(method, request, end_s)
            except grpc.RpcError as exc:
                if exc.code() is not grpc.StatusCode.UNAUTHENTICATED:
                    raise
            # The daemon has just restarted and does not know the token; it did nothing.
            self._connected().forget_token()
            return self._attempt(method, request, end_s)

    def _attempt(
        self, method: _Method[_Request, _Answer], request: _Request, end_s: float
    ) -> _Answer:
        while True:
            metadata = self._metadata(_left(end_s))
            try:
                return method(request, timeout=_left(end_s), metadata=metadata)
            except grpc.RpcError as exc:
                # gRPC refuses some of very many simultaneous calls before reading them: try again.
                if _REFUSED_STREAM not in (exc.details() or ""):
                    raise

    def _metadata(self, deadline_s: float) -> _Metadata:
        connection = self._connected()
        with connection.lock:
            connection.require_open()
            if connection.login is not None and not connection.login.alive():
                connection.log_out()
            if connection.login is None:
                try:
                    timeout_s = min(deadline_s, DEADLINE_S)  # even for a call that may take longer
                    connection.login = Login(self._place.login, timeout_s=timeout_s)
                except UnavailableError as exc:
                    raise _absent(self._place, str(exc)) from exc
                except DeadlineError as exc:
                    raise _late(self._place, str(exc)) from exc
            return (("authorization", f"Bearer {connection.login.token}"),)


def _text(value: object, what: str) -> str:
    # The errors of protobuf and of our parsers name neither a value of another type nor its use.
    if not isinstance(value, str):
        raise TypeError(f"{what} is text, as in `tandem set` and `tandem ps`, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as exc:  # bytes of a command line that are not UTF-8
        raise UsageError(f"{what} {value!r} has characters that are not valid text") from exc
    return value


def _pause_request(name: str, grace_s: float) -> pb.PauseJobRequest:
    request = pb.PauseJobRequest(name=name)
    request.grace.FromNanoseconds(_grace_ns(grace_s, LONGEST_PAUSE_S))
    return request


def _grace_ns(grace_s: float, longest_s: float) -> int:
    _check_number(grace_s, "grace_s")
    if not 0 <= grace_s <= longest_s:
        raise UsageError(f"grace_s is {grace_s}, not a number of seconds from 0 to {longest_s:.0f}")
    return round(grace_s * 1e9)


def _cancel_request(name: str, signal: str, grace_s: float) -> pb.CancelJobRequest:
    grace_ns = _grace_ns(grace_s, LONGEST_S)
    request = pb.CancelJobRequest(name=name, signal=_text(signal, "signal"))
    request.grace.FromNanoseconds(grace_ns)
    return request


def _yes_or_no(value: object) -> str:
    if value == "default":
        return "default"
    if not isinstance(value, bool):  # bool("no") would be true
        raise TypeError(f"preemptible is True, False or 'default', not {value!r}")
    return "yes" if value else "no"


def _check_number(value: object, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{what} is a number of seconds, not {value!r}")


def _check_seconds(value: float, what: str) -> None:
    _check_number(value, what)
    if not 0 < value <= LONGEST_S:
        raise UsageError(
            f"{what} is {value}, not a number of seconds above 0, and at most {LONGEST_S:.0f}"
        )


def _left(end_s: float) -> float:
    return max(0.001, end_s - time.monotonic())


def _place(directory: str | None) -> RuntimeDir:
    usual = runtime_dir(os.environ, uid=os.geteuid())
    if directory is None or Path(directory) == usual.path:
        return usual  # keep the usual origin, so that errors name it as everywhere else
    return RuntimeDir(path=Path(directory), origin="directory")


@contextmanager
def _mapped(place: RuntimeDir) -> Iterator[None]:
    # The only place where a gRPC error becomes one of ours.
    try:
        yield
    except grpc.RpcError as exc:
        text = exc.details() or exc.code().name
        if exc.code() is grpc.StatusCode.UNAVAILABLE:
            raise _absent(place, text) from exc
        if exc.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise _late(place, "no answer in time") from exc
        if exc.code() is grpc.StatusCode.UNIMPLEMENTED:
            raise StateError(
                f"the daemon in {place.path} ({place.origin}) is older than this client and cannot "
                "do that; `tandem status` shows its version; start a newer one",
                reason="OLDER_DAEMON",
            ) from exc
        raise from_grpc_status(exc.code().name)(text, reason=_reason_of(exc)) from exc


def _reason_of(failure: grpc.RpcError) -> str:
    """The reason word the daemon gives for a failure; empty if it gives none, as older ones."""
    from google.rpc import error_details_pb2, status_pb2  # imported here: most calls succeed

    trailing = failure.trailing_metadata() or ()
    packed = next((one.value for one in trailing if one.key == _DETAILS), b"")
    status, info = status_pb2.Status(), error_details_pb2.ErrorInfo()
    try:
        status.ParseFromString(packed)
        said = [info.reason for one in status.details if one.Unpack(info) and info.domain == DOMAIN]
    except DecodeError:
        return ""  # not written by a Tandem daemon
    return str(said[0]) if said else ""


def _absent(place: RuntimeDir, cause: str) -> UnavailableError:
    if os.strerror(errno.EACCES) in cause:  # gRPC exposes the errno nowhere else
        return UnavailableError(
            f"no access to the daemon in {place.path} ({place.origin}): {cause}; ask whoever runs "
            "it to let you in, or set TANDEM_RUNTIME_DIR to the directory of another"
        )
    return UnavailableError(
        f"no daemon answers in {place.path} ({place.origin}): {cause}; "
        "start one with `tandemd`, or set TANDEM_RUNTIME_DIR"
    )


def _late(place: RuntimeDir, cause: str) -> DeadlineError:
    return DeadlineError(
        f"the daemon in {place.path} ({place.origin}) does not answer: {cause}; it is overloaded, "
        "stopped or hung: look at its log, or kill it and start another"
    )


# The socket is on this machine: use no proxy, and reconnect soon after a restart of the daemon.
_CHANNEL_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 16 << 20),  # large enough for a window
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 2000),  # timeout of one attempt: the daemon may be busy
    ("grpc.max_reconnect_backoff_ms", 500),
)
