"""Converts views to messages of tandem.v1, and requests back; the typing half of `rpc.py`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tandem._wire import tandem_pb2 as pb
from tandem.errors import UsageError
from tandemd.core.cancels import MOST_GRACE_NS, SIGNALS
from tandemd.core.model import NO_LIMIT, JobClass, WaitReason
from tandemd.core.notices import MOST_GRACE_NS as MOST_PAUSE_GRACE_NS
from tandemd.core.past import PastJob
from tandemd.core.spec_ranges import MOST_NS, MOST_WAIT_NS
from tandemd.core.sums import MOST
from tandemd.edges.journal import PastQuery
from tandemd.failures import Failures
from tandemd.views import (
    AllowanceView,
    Event,
    ExplanationView,
    FindingView,
    GpuView,
    HistoryView,
    JobView,
    WindowView,
    etag_of,
)

GRACE_NS = 30 * 10**9  # before SIGKILL, for a cancelled job, by default
_MODES = {
    "": pb.MODE_UNSPECIFIED,
    "time": pb.MODE_TIME,
    "mps": pb.MODE_MPS,
    "mps+green": pb.MODE_MPS_GREEN,
    "mig": pb.MODE_MIG,
}

_failures = Failures()


def job_message(view: JobView) -> pb.Job:
    """Return a job's message; if that fails, one that at least says that the job exists."""
    try:
        return _job_message(view)
    except Exception as error:  # the other jobs of a list must still be reported
        _failures.tell("the message of a job", error, time.monotonic_ns())
        warning = "tandemd cannot tell more of it; its log says why"
        return pb.Job(name=view.name, uid=view.uid, user=view.user, warnings=[warning])


def _job_message(view: JobView) -> pb.Job:
    spec = view.spec
    message = pb.Job(
        name=view.name,
        display_name=spec.name,
        uid=view.uid,
        user=view.user,
        command=view.command,
        etag=etag_of(spec),
        create_time=timestamp(view.created_wall_ns),
        gpu=",".join(view.gpu_names),
        mode=_MODES[view.mode],
        warnings=view.warnings,
        processes=[
            pb.Process(
                pid=process.pid,
                attach_time=timestamp(process.attached_wall_ns),
                device_bytes=int64(process.device_bytes - process.swapped_bytes),
                ungated=process.ungated,
                dropped_records=int64(process.dropped_records),
            )
            for process in view.processes
        ],
        spec=pb.JobSpec(
            memory_quota_bytes=0 if spec.memory_bytes == NO_LIMIT else int64(spec.memory_bytes),
            memory_min_bytes=int64(spec.memory_min_bytes),
            wait_memory=duration(spec.wait_memory_ns),
            idle_release=duration(spec.idle_release_ns),
            persistent_bytes=int64(spec.persistent_bytes),
            ephemeral_bytes=int64(spec.ephemeral_bytes),
            sm_percent=0 if spec.sm_count else spec.sm_percent,
            sm_count=spec.sm_count,
            isolation=_MODES[spec.isolation],
            slo=pb.Slo(p99=duration(spec.slo_p99_ns)),
            preemptible=spec.preemptible,
            group=spec.group,
            swappable=spec.swappable,
            checkpoint=spec.checkpoint,
            memory_percent=spec.memory_percent if spec.memory_bytes == NO_LIMIT else 0,
            **{"class": int(spec.job_class)},  # a keyword in Python
        ),
    )
    message.status.CopyFrom(_status(view))
    return message


def _status(view: JobView) -> pb.JobStatus:
    return pb.JobStatus(
        state=pb.State.ValueType(int(view.state)),
        reason=view.reason,
        memory_wait_bytes=int64(view.memory_wait_bytes),
        memory_wait_place=view.memory_wait_place,
        resident_bytes=int64(sum(p.device_bytes - p.swapped_bytes for p in view.processes)),
        swapped_bytes=int64(sum(process.swapped_bytes for process in view.processes)),
        filed_bytes=int64(sum(process.filed_bytes for process in view.processes)),
        gpu_time=duration(view.gpu_ns),
        gpu_time_estimated=view.shared_ns > view.gpu_ns // 100,
        energy_mj=None if view.energy_mj is None else int64(view.energy_mj),
        wait_time=duration(sum(view.waits_ns) - view.waits_ns[WaitReason.WINDOW]),
        launches=int64(view.launches),
        steps=int64(view.steps),
        share_ratio=view.share,
        share_target_ratio=view.owed,
        request_p99=duration(view.p99_ns),
        pause_unready=view.unready,
        pause_in=None if view.pause_in_ns is None else duration(view.pause_in_ns),
        requests=int64(view.requests),
        marked_p99=duration(view.marked_p99_ns) if view.marked_p99_ns else None,
        sms=view.sms,
        set_groups=view.set_groups,
        set_group_sms=view.set_sms // len(view.set_groups) if view.set_groups else 0,
        findings=_findings(view.findings),
    )


def window_message(view: WindowView) -> pb.ProcessWindow:
    """Return the record of one process."""
    window = view.window
    return pb.ProcessWindow(
        pid=view.pid,
        gpus=view.gpus,
        begin_ns=int64(window.begin_ns),
        end_ns=int64(window.end_ns),
        first_iteration=window.first_iteration,
        iterations=window.iterations,
        lost_records=window.lost,
        is_cut=window.is_cut,
        records=window.records,
        kernels=[pb.Kernel(handle=handle, name=name) for handle, name in view.kernels],
        launches=[
            pb.LaunchMemory(
                sample_number=number,
                accesses=[pb.Access(address=a, bytes=b, is_const=c) for a, b, c in accesses],
                is_all=is_all,
            )
            for number, (accesses, is_all) in view.launches.items()
        ],
    )


def history_message(view: HistoryView) -> pb.MemoryHistory:
    """Return the memory curves of jobs."""
    return pb.MemoryHistory(
        end_ns=view.end_wall_ns,
        gpus=[gpu_message(gpu) for gpu in view.gpus],
        curves=[
            pb.MemoryCurve(
                job=curve.name,
                display_name=curve.display_name,
                gpu=curve.gpu,
                times_ns=[view.since_wall_ns + point.at_ns for point in curve.points],
                resident_bytes=[point.resident_bytes for point in curve.points],
                swapped_bytes=[point.swapped_bytes for point in curve.points],
                filed_bytes=[point.filed_bytes for point in curve.points],
                waiting_bytes=[point.waiting_bytes for point in curve.points],
                gpu_time_ns=[point.gpu_ns for point in curve.points],
                sm_time_ns=[point.sm_ns for point in curve.points],
            )
            for curve in view.curves
        ],
    )


def _findings(views: Iterable[FindingView]) -> list[pb.Finding]:
    return [
        pb.Finding(
            rule=view.finding.rule,
            since=timestamp(view.since_wall_ns),
            what=view.finding.what,
            why=view.finding.why,
            advice=view.finding.advice,
            facts=dict(view.finding.facts),
        )
        for view in views
    ]


def past_message(job: PastJob) -> pb.PastJob:
    """Return the message of a job that has ended."""
    return pb.PastJob(
        name=f"j-{job.job_id:x}",
        display_name=job.name,
        uid=job.uid,
        user=job.user,
        group=job.group,
        gpus=job.gpus,
        command=job.command,
        begin_time=timestamp(job.began_wall_ns),
        end_time=timestamp(job.ended_wall_ns),
        outcome=job.outcome,
        gpu_time=duration(job.gpu_ns),
        gpu_time_estimated=job.shared_ns > job.gpu_ns // 100,
        energy_mj=None if job.energy_mj is None else int64(job.energy_mj),
        wait_time=duration(job.waited_ns),
        peak_bytes=int64(job.peak_bytes),
        launches=int64(job.launches),
        iterations=int64(job.iterations),
        refusals=int64(job.refusals),
        findings=job.findings,
        **{"class": int(job.job_class)},  # a keyword in Python
    )


def past_query(request: pb.ListHistoryRequest, *, before_id: int, most: int) -> PastQuery:
    """Return which ended jobs a request asks for; `before_id` continues a page, 0 starts.

    Raises:
        UsageError: a time is outside a Timestamp's range.
    """
    return PastQuery(
        user=request.user,
        group=request.group,
        since_ns=_moment_ns("since", request.since),
        until_ns=_moment_ns("until", request.until) if request.HasField("until") else MOST,
        before_id=before_id or MOST,
        most=most,
    )


def _moment_ns(name: str, moment: Timestamp) -> int:
    try:
        return min(max(0, moment.ToNanoseconds()), MOST)
    except ValueError as exc:
        raise UsageError(f"{name} is not a valid time: {exc}") from exc


def event_message(event: Event) -> pb.JobEvent:
    """Return the message of a job's change."""
    return pb.JobEvent(
        time=timestamp(event.wall_ns),
        kind=event.kind,
        job=job_message(event.job),
        times=event.times,
        rule=event.rule,
    )


def explanation_message(view: ExplanationView) -> pb.Explanation:
    """Return why a job runs or waits."""
    waits = [
        pb.Wait(reason=reason.name.lower(), total=duration(view.wait_ns[reason]))
        for reason in WaitReason
        if reason is not WaitReason.NONE and view.wait_ns[reason]
    ]
    return pb.Explanation(
        job=view.name,
        summary=view.summary,
        lines=view.lines,
        mode=_MODES[view.mode],
        policy=view.policy,
        waits=waits,
        story=view.story,
        findings=_findings(view.findings),
    )


def gpu_message(view: GpuView) -> pb.Gpu:
    """Return the message of a GPU."""
    gpu = view.gpu
    return pb.Gpu(
        index=gpu.index,
        name=gpu.name,
        uuid=gpu.uuid_text,
        product_name=gpu.product_name,
        mode=_MODES[view.mode],
        memory_total_bytes=gpu.memory_total_bytes,
        memory_used_bytes=gpu.memory_used_bytes,
        sm_count=gpu.sm_count,
        busy_ratio=view.busy,
        software=gpu.is_software,
        sets=_set_proof(view),
        not_had=view.not_had,
        unmanaged_processes=view.strangers,
        draining=view.is_draining,
        memory_reserved_bytes=view.reserved_bytes,
    )


def allowance_message(view: AllowanceView) -> pb.Allowance:
    """Return what a user's jobs may have."""
    return pb.Allowance(
        max_class=pb.Class.Value(f"CLASS_{view.max_class.name}"),
        max_class_key=view.class_key,
        max_memory_bytes=int64(view.memory.size_bytes),
        max_memory_percent=view.memory.percent,
        max_memory_key=view.memory.key,
    )


def _set_proof(view: GpuView) -> pb.SetProof | None:
    if view.split is not None:
        return pb.SetProof(groups=view.split.groups, group_sms=view.split.group_sms)
    if view.is_being_proved or view.unproved:
        return pb.SetProof(under_way=view.is_being_proved, problem=view.unproved)
    return None


def cancel_of(request: pb.CancelJobRequest) -> tuple[str, int]:
    """Return the signal, and the grace in nanoseconds.

    Raises:
        UsageError: the signal does not end programs, or the grace is out of range.
    """
    signal = request.signal.upper().removeprefix("SIG") or "TERM"
    if signal not in SIGNALS:
        raise UsageError(f"signal '{request.signal}' is not one of {', '.join(SIGNALS)}")
    if not request.HasField("grace"):
        return signal, GRACE_NS
    return signal, _at_most("grace", request.grace, MOST_GRACE_NS)


def pause_grace_ns(request: pb.PauseJobRequest) -> int:
    """Return the grace before the pause for programs that listen.

    Raises:
        UsageError: it is out of range.
    """
    return _at_most("grace", request.grace, MOST_PAUSE_GRACE_NS)


def changes_of(request: pb.UpdateJobRequest) -> dict[str, object]:
    """Return the new values of the JobSpec fields that the update mask names.

    Raises:
        UsageError: the mask is empty, a field cannot be changed, or a value is out of range.
    """
    if not request.update_mask.paths:
        raise UsageError("the update mask is empty; name fields such as 'spec.class'")
    changes: dict[str, object] = {}
    for path in request.update_mask.paths:
        name, value = _change(path, request.job.spec)
        changes[name] = value
    return changes


def _change(path: str, spec: pb.JobSpec) -> tuple[str, object]:
    read = _CHANGEABLE.get(path.removeprefix("spec."))
    if read is None:
        raise UsageError(f"'{path}' cannot be changed; these can: {', '.join(sorted(_CHANGEABLE))}")
    return read(spec)


def _class(spec: pb.JobSpec) -> tuple[str, object]:
    number = getattr(spec, "class")
    if number not in iter(JobClass):
        raise UsageError("class is not one of latency, normal, batch")
    return "job_class", JobClass(number)


def _memory(spec: pb.JobSpec) -> tuple[str, object]:
    return "memory_bytes", _at_least_zero("memory", spec.memory_quota_bytes) or NO_LIMIT


def _memory_percent(spec: pb.JobSpec) -> tuple[str, object]:
    if not 1 <= spec.memory_percent <= 100:
        raise UsageError(f"memory {spec.memory_percent}% is not between 1% and 100%")
    return "memory_percent", spec.memory_percent


def _memory_min(spec: pb.JobSpec) -> tuple[str, object]:
    return "memory_min_bytes", _at_least_zero("memory_min", spec.memory_min_bytes)


def _wait_memory(spec: pb.JobSpec) -> tuple[str, object]:
    return "wait_memory_ns", _at_most("wait_memory", spec.wait_memory, MOST_WAIT_NS)


def _idle_release(spec: pb.JobSpec) -> tuple[str, object]:
    return "idle_release_ns", _at_most("idle_release", spec.idle_release, MOST_NS)


def _persistent(spec: pb.JobSpec) -> tuple[str, object]:
    return "persistent_bytes", _at_least_zero("persistent", spec.persistent_bytes)


def _ephemeral(spec: pb.JobSpec) -> tuple[str, object]:
    return "ephemeral_bytes", _at_least_zero("ephemeral", spec.ephemeral_bytes)


def _sm(spec: pb.JobSpec) -> tuple[str, object]:
    if spec.sm_percent > 100:
        raise UsageError(f"sm {spec.sm_percent}% is more than 100%")
    if spec.sm_count and spec.sm_percent:
        raise UsageError("sm is a share or a number of SMs, not both")
    return ("sm_count", spec.sm_count) if spec.sm_count else ("sm_percent", spec.sm_percent)


def _slo(spec: pb.JobSpec) -> tuple[str, object]:
    return "slo_p99_ns", _at_most("slo", spec.slo.p99, MOST_NS)


def _preemptible(spec: pb.JobSpec) -> tuple[str, object]:
    return "preemptible", spec.preemptible if spec.HasField("preemptible") else None


_CHANGEABLE: dict[str, Callable[[pb.JobSpec], tuple[str, object]]] = {
    "class": _class,
    "memory_quota_bytes": _memory,
    "memory_percent": _memory_percent,
    "memory_min_bytes": _memory_min,
    "wait_memory": _wait_memory,
    "idle_release": _idle_release,
    "persistent_bytes": _persistent,
    "ephemeral_bytes": _ephemeral,
    "sm": _sm,
    "sm_percent": _sm,
    "slo": _slo,
    "slo.p99": _slo,
    "preemptible": _preemptible,
}


def _at_least_zero(what: str, value: int) -> int:
    if value < 0:
        raise UsageError(f"{what} {value} is negative")
    return value


def _at_most(what: str, duration: Duration, most_ns: int) -> int:
    duration_ns = _at_least_zero(what, duration.ToNanoseconds())
    if duration_ns > most_ns:
        raise UsageError(f"{what} {duration_ns / 1e9:.0f}s is more than {most_ns // 10**9}s")
    return duration_ns


def int64(value: int) -> int:
    """Limit a value to what the wire can carry: a job's own claims may be anything."""
    return min(value, MOST)


def duration(duration_ns: int) -> Duration:
    """Convert to a protobuf Duration."""
    seconds, nanos = divmod(int64(duration_ns), 1_000_000_000)
    return Duration(seconds=seconds, nanos=nanos)


def timestamp(wall_ns: int) -> Timestamp:
    """Convert Unix time to a protobuf Timestamp."""
    seconds, nanos = divmod(max(0, wall_ns), 1_000_000_000)
    return Timestamp(seconds=seconds, nanos=nanos)
