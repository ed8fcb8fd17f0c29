"""gRPC servicers: message -> question to the desk, view -> message, error -> status.

They decide nothing. Every call except health checks carries the token of the login socket;
`rpc_calls` rejects calls without one, and runs the servicers in threads.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import structlog
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2_grpc

from tandem import _native, errors
from tandem._wire import tandem_pb2 as pb
from tandem._wire import tandem_pb2_grpc as pb_grpc
from tandemd import __version__
from tandemd.core.space.layouts import Part
from tandemd.desk import Desk
from tandemd.edges.front import Front
from tandemd.edges.messages import (
    allowance_message,
    cancel_of,
    changes_of,
    event_message,
    explanation_message,
    gpu_message,
    history_message,
    job_message,
    past_message,
    past_query,
    pause_grace_ns,
    window_message,
)
from tandemd.edges.partition_messages import partition_message
from tandemd.edges.plan_messages import plans_message
from tandemd.edges.readiness import Readiness
from tandemd.edges.rpc_calls import NO_TOKEN, Aborted, Door, PeerFor, peer_of
from tandemd.edges.trace_messages import trace_chunks
from tandemd.rights import Whom
from tandemd.views import JobView

BEHIND = "grpc/sock"  # where gRPC itself listens, beside the public socket
STOP_GRACE_S = 0.5
MAX_REQUEST_BYTES = 1 << 20  # the longest requests have the signatures of kernels with long names
MAX_UNREAD_BYTES = 65536  # of a call
MAX_STREAMS = 64  # open calls of a connection, of any kind
GREETING_MS = 10_000  # for the first bytes; as long as on the attach socket
IDLE_MS = 60_000  # for a connection without calls; clients reconnect at their next call
MAX_PAGE = 1000
MAX_TOKEN = 19  # digits of a number in a page token
PATIENCE_S, MAX_PATIENCE_S = 30.0, 60.0  # waiting for the end of an iteration
LOOK_S = 0.5  # how soon the end of a watch is noticed
MAX_TRACE_S = 600.0  # of a recording: the daemon forgets ended jobs after that
TRACE_LOOK_S = 0.05  # how long telemetry waits at most: there is room for 65,536 records
MAX_SIGNATURES = 1024  # of kernels, per call

log = structlog.get_logger(__name__)


class _Servicer:
    """What all servicers share."""

    def __init__(self, desk: Desk, peer_for: PeerFor) -> None:
        self._desk = desk
        self._peer_for = peer_for

    def _uid(self, context: grpc.ServicerContext) -> int:
        peer = peer_of(context.invocation_metadata(), self._peer_for)
        if peer is None:  # the login connection closed during the call
            raise Aborted(grpc.StatusCode.UNAUTHENTICATED, NO_TOKEN, "NO_TOKEN")
        return peer.uid


class Jobs(_Servicer, pb_grpc.JobServiceServicer):
    """tandem.v1.JobService."""

    def ListJobs(  # noqa: N802 - gRPC's names
        self, request: pb.ListJobsRequest, context: grpc.ServicerContext
    ) -> pb.ListJobsResponse:
        """Return jobs, oldest first, one page at a time."""
        with _errors_to(context):
            start, size = _page(request)
            views = self._desk.jobs(self._uid(context), finished=request.show_finished)
            following = str(start + size) if len(views) > start + size else ""
            jobs = [job_message(view) for view in views[start : start + size]]
            return pb.ListJobsResponse(jobs=jobs, next_page_token=following)

    def GetJob(self, request: pb.GetJobRequest, context: grpc.ServicerContext) -> pb.Job:  # noqa: N802
        """Return one job."""
        with _errors_to(context):
            return job_message(self._desk.job(self._uid(context), request.name))

    def UpdateJob(self, request: pb.UpdateJobRequest, context: grpc.ServicerContext) -> pb.Job:  # noqa: N802
        """Change what a job may have."""
        with _errors_to(context):
            return self._only(self._update(self._uid(context), Whom(request.job.name), request))

    def PauseJob(self, request: pb.PauseJobRequest, context: grpc.ServicerContext) -> pb.Job:  # noqa: N802
        """Hold a job until it is resumed."""
        with _errors_to(context):
            return self._only(self._pause(self._uid(context), Whom(request.name), request))

    def ResumeJob(self, request: pb.JobName, context: grpc.ServicerContext) -> pb.Job:  # noqa: N802
        """Let a paused job go on."""
        with _errors_to(context):
            uid = self._uid(context)
            return self._only(self._desk.set_paused(uid, Whom(request.name), paused=False))

    def CancelJob(self, request: pb.CancelJobRequest, context: grpc.ServicerContext) -> pb.Job:  # noqa: N802
        """End a job."""
        with _errors_to(context):
            return self._only(self._cancel(self._uid(context), Whom(request.name), request))

    def ChangeGroup(  # noqa: N802
        self, request: pb.ChangeGroupRequest, context: grpc.ServicerContext
    ) -> pb.ChangeGroupResponse:
        """Change all jobs of a group, or list them."""
        with _errors_to(context):
            views = self._change(self._uid(context), request)
            return pb.ChangeGroupResponse(jobs=map(job_message, views))

    def _change(self, uid: int, request: pb.ChangeGroupRequest) -> list[JobView]:
        whom = Whom(request.group, is_group=True)
        match request.WhichOneof("change"):
            case "pause":
                return self._pause(uid, whom, request.pause)
            case "resume":
                return self._desk.set_paused(uid, whom, paused=False)
            case "cancel":
                return self._cancel(uid, whom, request.cancel)
            case "update":
                return self._update(uid, whom, request.update)
            case _:
                return self._desk.group(uid, request.group)

    def _pause(self, uid: int, whom: Whom, request: pb.PauseJobRequest) -> list[JobView]:
        return self._desk.set_paused(uid, whom, paused=True, grace_ns=pause_grace_ns(request))

    def _cancel(self, uid: int, whom: Whom, request: pb.CancelJobRequest) -> list[JobView]:
        signal, grace_ns = cancel_of(request)
        return self._desk.cancel(uid, whom, signal=signal, grace_ns=grace_ns)

    def _update(self, uid: int, whom: Whom, request: pb.UpdateJobRequest) -> list[JobView]:
        return self._desk.update(uid, whom, changes_of(request), etag=request.job.etag)

    @staticmethod
    def _only(views: list[JobView]) -> pb.Job:
        [view] = views
        return job_message(view)

    def ExplainJob(self, request: pb.JobName, context: grpc.ServicerContext) -> pb.Explanation:  # noqa: N802
        """Explain why a job runs or waits."""
        with _errors_to(context):
            return explanation_message(self._desk.explanation(self._uid(context), request.name))

    def RecordWindow(  # noqa: N802
        self, request: pb.RecordWindowRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.ProcessWindow]:
        """Record what the job's processes do during one iteration."""
        with _errors_to(context):
            patience_s = _seconds(
                request.patience, usual_s=PATIENCE_S, most_s=MAX_PATIENCE_S, what="patience"
            )
            signatures = _signatures(request)
            views = self._desk.windows(
                self._uid(context),
                request.name,
                patience_s=patience_s,
                is_wanted=context.is_active,
                signatures=signatures,
            )
            for view in views:
                yield window_message(view)

    def WatchJobs(  # noqa: N802
        self, request: pb.WatchJobsRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.JobEvent]:
        """Stream changes from now on."""
        del request
        with _errors_to(context), self._desk.watch(self._uid(context)) as events:
            context.send_initial_metadata(())  # tells the caller that the watch has begun
            while context.is_active():
                try:
                    event = events.get(timeout=LOOK_S)
                except queue.Empty:
                    continue
                if event is None:
                    raise errors.CapacityError(
                        "the watcher is too slow, it missed changes; list the jobs and watch again"
                    )
                yield event_message(event)

    def ListJobEvents(  # noqa: N802
        self, request: pb.ListJobEventsRequest, context: grpc.ServicerContext
    ) -> pb.ListJobEventsResponse:
        """Return what has happened so far."""
        del request
        with _errors_to(context):
            events = map(event_message, self._desk.events(self._uid(context)))
            return pb.ListJobEventsResponse(events=events)

    def ListHistory(  # noqa: N802
        self, request: pb.ListHistoryRequest, context: grpc.ServicerContext
    ) -> pb.ListHistoryResponse:
        """Return ended jobs, newest first, one page at a time."""
        with _errors_to(context):
            before, size = _page(request)
            query = past_query(request, before_id=before, most=size + 1)
            found = self._desk.past(self._uid(context), query)
            following = str(found[size - 1][0]) if len(found) > size else ""
            jobs = [past_message(job) for _, job in found[:size]]
            return pb.ListHistoryResponse(jobs=jobs, next_page_token=following)


class Gpus(_Servicer, pb_grpc.GpuServiceServicer):
    """tandem.v1.GpuService."""

    def ListGpus(  # noqa: N802
        self, request: pb.ListGpusRequest, context: grpc.ServicerContext
    ) -> pb.ListGpusResponse:
        """Return the GPUs of this machine."""
        del request
        with _errors_to(context):
            return pb.ListGpusResponse(gpus=[gpu_message(view) for view in self._desk.gpus()])

    def DrainGpu(self, request: pb.DrainGpuRequest, context: grpc.ServicerContext) -> pb.Gpu:  # noqa: N802
        """Stop starting jobs on a GPU, or undo that."""
        with _errors_to(context):
            uid = self._uid(context)
            return gpu_message(self._desk.drain(uid, request.name, is_on=not request.undo))

    def GetMemoryHistory(  # noqa: N802
        self, request: pb.GetMemoryHistoryRequest, context: grpc.ServicerContext
    ) -> pb.MemoryHistory:
        """Return the memory curves of jobs."""
        del request
        with _errors_to(context):
            return history_message(self._desk.history(self._uid(context)))


class Daemon(_Servicer, pb_grpc.DaemonServiceServicer):
    """tandem.v1.DaemonService."""

    def GetStatus(  # noqa: N802
        self, request: pb.GetStatusRequest, context: grpc.ServicerContext
    ) -> pb.DaemonStatus:
        """Return the state of the daemon itself."""
        del request
        with _errors_to(context):
            view = self._desk.status(self._uid(context))
            status = pb.DaemonStatus(
                version=__version__,
                pid=os.getpid(),
                policy=view.policy,
                jobs=view.jobs,
                processes=view.processes,
                runtime_dir=str(self._desk.runtime_dir),
                clock=view.clock,
                allowance=allowance_message(view.allowance),
                state_problem=view.state_problem,
                gpus=[gpu_message(gpu) for gpu in self._desk.gpus()],
            )
            status.uptime.FromNanoseconds(view.uptime_ns)
            return status

    def GetMetrics(  # noqa: N802
        self, request: pb.GetMetricsRequest, context: grpc.ServicerContext
    ) -> pb.Metrics:
        """Return the metrics."""
        del request
        # Imported late, because most daemons are never asked.
        from tandemd.edges.metrics import exposition

        with _errors_to(context):
            return pb.Metrics(text=exposition(self._desk.metrics(self._uid(context))))


class Partitions(_Servicer, pb_grpc.PartitionServiceServicer):
    """tandem.v1.PartitionService."""

    def GetPartition(  # noqa: N802
        self, request: pb.GetPartitionRequest, context: grpc.ServicerContext
    ) -> pb.Partition:
        """Return how each GPU is divided."""
        del request
        with _errors_to(context):
            return partition_message(self._desk.partitions(self._uid(context)))

    def PlanPartition(  # noqa: N802
        self, request: pb.PlanPartitionRequest, context: grpc.ServicerContext
    ) -> pb.Plans:
        """Return how jobs might share each GPU."""
        del request
        with _errors_to(context):
            return plans_message(self._desk.plans(self._uid(context)))

    def ApplyPartition(  # noqa: N802
        self, request: pb.ApplyPartitionRequest, context: grpc.ServicerContext
    ) -> pb.ApplyPartitionResponse:
        """Change the MIG layout of a GPU."""
        with _errors_to(context):
            uid = self._uid(context)
            done = self._desk.cut(uid, request.mig, is_real=not request.dry_run)
            return pb.ApplyPartitionResponse(
                destroyed=[_mig_instance(one) for one in done.cut.destroyed],
                created=[_mig_instance(one) for one in done.cut.created],
                turned=done.cut.turned,
                users=done.users,
                done=done.cut.is_done,
            )


def _mig_instance(part: Part) -> pb.MigInstance:
    return pb.MigInstance(name=part.name, profile=part.profile)


class Traces(_Servicer, pb_grpc.TraceServiceServicer):
    """tandem.v1.TraceService."""

    def RecordTrace(  # noqa: N802
        self, request: pb.RecordTraceRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.TraceChunk]:
        """Stream what happens from now on."""
        with _errors_to(context):
            duration_s = _seconds(
                request.duration, usual_s=MAX_TRACE_S, most_s=MAX_TRACE_S, what="duration"
            )
            left = threading.Event()
            context.add_callback(left.set)
            with self._desk.trace(self._uid(context)) as take:
                end_s = time.monotonic() + duration_s
                yield pb.TraceChunk()  # tells the caller that the recording has begun
                while (rest_s := end_s - time.monotonic()) > 0:
                    if left.wait(min(rest_s, TRACE_LOOK_S)):
                        return
                    yield from trace_chunks(take(), self._desk.wall_ns)


class Policies(_Servicer, pb_grpc.PolicyServiceServicer):
    """tandem.v1.PolicyService."""

    def GetPolicy(self, request: pb.GetPolicyRequest, context: grpc.ServicerContext) -> pb.Policy:  # noqa: N802
        """Return the policy in force."""
        del request
        with _errors_to(context):
            return self._message(self._desk.policy())

    def SetPolicy(self, request: pb.SetPolicyRequest, context: grpc.ServicerContext) -> pb.Policy:  # noqa: N802
        """Switch to another policy."""
        with _errors_to(context):
            return self._message(self._desk.set_policy(self._uid(context), request.name))

    def _message(self, name: str) -> pb.Policy:
        policies = self._desk.policies()
        return pb.Policy(name=name, available=sorted(policies), description=policies[name])


class RpcServer:
    """The server on its unix socket."""

    def __init__(
        self, path: Path, *, desk: Desk, peer_for: PeerFor, is_ready: Callable[[], bool]
    ) -> None:
        """Bind the socket, mode 0666, replacing a stale one. `is_ready` must not block."""
        self._behind = path.parent / BEHIND
        self._behind.parent.mkdir(exist_ok=True)
        # gRPC creates its socket with the mode that the umask leaves.
        self._behind.parent.chmod(0o700)
        self._behind.unlink(missing_ok=True)
        self._readiness = Readiness(is_ready)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rpc", daemon=True)
        self._thread.start()
        try:
            self._do(self._bind(path, desk, peer_for))
        except BaseException:
            self._end()
            raise

    async def _bind(self, path: Path, desk: Desk, peer_for: PeerFor) -> None:
        self._front = Front(path, behind=self._behind)
        self._server = grpc.aio.server(
            interceptors=[Door(peer_for)],
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_concurrent_streams", MAX_STREAMS),
                ("grpc.server_handshake_timeout_ms", GREETING_MS),
                ("grpc.max_connection_idle_ms", IDLE_MS),
                ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
                # The probe would make it buffer megabytes that nobody reads yet.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.http2.lookahead_bytes", MAX_UNREAD_BYTES),
            ],
        )
        pb_grpc.add_JobServiceServicer_to_server(Jobs(desk, peer_for), self._server)
        pb_grpc.add_GpuServiceServicer_to_server(Gpus(desk, peer_for), self._server)
        pb_grpc.add_DaemonServiceServicer_to_server(Daemon(desk, peer_for), self._server)
        pb_grpc.add_PartitionServiceServicer_to_server(Partitions(desk, peer_for), self._server)
        pb_grpc.add_PolicyServiceServicer_to_server(Policies(desk, peer_for), self._server)
        pb_grpc.add_TraceServiceServicer_to_server(Traces(desk, peer_for), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._readiness, self._server)
        self._server.add_insecure_port(f"unix:{self._behind}")

    def refusal(self, uid: int) -> str:
        """Return why the uid may open no further connection; empty: it may. Any thread."""
        return self._front.refusal(uid)

    def start(self) -> None:
        """Start serving."""
        self._do(self._begin())

    def stop(self) -> None:
        """End all calls and close the socket."""
        self._do(self._leave())
        self._end()

    async def _begin(self) -> None:
        self._watching = asyncio.create_task(self._readiness.run())
        await self._server.start()

    async def _leave(self) -> None:
        self._watching.cancel()
        with suppress(asyncio.CancelledError):
            await self._watching
        await self._readiness.enter_graceful_shutdown()
        await asyncio.gather(self._front.leave(), self._server.stop(STOP_GRACE_S))
        with suppress(OSError):
            self._behind.unlink(missing_ok=True)
            self._behind.parent.rmdir()

    def _do(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def _errors_to(context: grpc.ServicerContext) -> Iterator[None]:
    try:
        yield
    except errors.TandemError as error:
        code = grpc.StatusCode[errors.grpc_status(error)]
        raise Aborted(code, str(error), error.reason) from error
    except TimeoutError:
        context.abort(grpc.StatusCode.UNAVAILABLE, "the scheduler does not answer")
    except Aborted:
        raise
    except Exception as error:
        log.exception("rpc failed")
        text = f"this is a bug in tandem, please report it: {error!r}"
        context.abort(grpc.StatusCode.INTERNAL, text)


def _seconds(said: Duration, *, usual_s: float, most_s: float, what: str) -> float:
    """Return the duration requested, or the default if none was."""
    seconds = said.ToNanoseconds() / 1e9 or usual_s
    if not 0 < seconds <= most_s:
        raise errors.UsageError(f"a {what} of {seconds:g} s is not between 0 and {most_s:g} s")
    return seconds


def _signatures(request: pb.RecordWindowRequest) -> dict[str, _native.Signature]:
    if len(request.signatures) > MAX_SIGNATURES:
        raise errors.UsageError(
            f"{len(request.signatures)} signatures are more than {MAX_SIGNATURES}; send fewer"
        )
    return {name: _signature(name, text) for name, text in request.signatures.items()}


def _signature(name: str, text: str) -> _native.Signature:
    try:
        return _native.Signature(text)
    except ValueError as exc:
        raise errors.UsageError(f"kernel '{name}': {exc}") from exc


def _page(request: pb.ListJobsRequest | pb.ListHistoryRequest) -> tuple[int, int]:
    token = request.page_token
    if token and not (token.isascii() and token.isdigit() and len(token) < MAX_TOKEN):
        raise errors.UsageError(f"page token '{token}' was not issued by this daemon")
    if request.page_size < 0:
        raise errors.UsageError(f"page size {request.page_size} is negative")
    return int(token or 0), min(request.page_size or MAX_PAGE, MAX_PAGE)
