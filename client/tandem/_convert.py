"""Convert wire messages to plain values and back; needs protobuf, so only `_client` imports it."""

from collections.abc import Callable, Mapping
from itertools import repeat
from typing import TypeVar

from tandem._attach import MAX_WAIT_NS, NEVER_IDLE_NS
from tandem._results import (
    Allowance,
    Explanation,
    Finding,
    Gpu,
    GpuCut,
    Job,
    JobEvent,
    LaunchMemory,
    MemoryCurve,
    MemoryHistory,
    MemoryPoint,
    MigInstance,
    PastJob,
    Policy,
    Process,
    SetProof,
    Status,
    TraceEvent,
    Wait,
    Window,
)
from tandem._wire import tandem_pb2 as pb
from tandem.errors import UsageError
from tandem.units import (
    Percent,
    parse_device_bytes,
    parse_duration,
    parse_memory,
    parse_slo,
    parse_sm,
)

_MODES = {
    pb.MODE_TIME: "time",
    pb.MODE_MPS: "mps",
    pb.MODE_MPS_GREEN: "mps+green",
    pb.MODE_MIG: "mig",
}
_NO_LIMIT = "none"
_Value = TypeVar("_Value", bound=int)


def job(message: pb.Job) -> Job:
    """Convert a job."""
    spec, status = message.spec, message.status
    return Job(
        name=message.name,
        display_name=message.display_name,
        uid=message.uid,
        user=message.user,
        command=message.command,
        gpu=message.gpu,
        group=spec.group,
        priority=class_word(getattr(spec, "class")),
        memory_quota_bytes=spec.memory_quota_bytes or None,
        memory_min_bytes=spec.memory_min_bytes or None,
        wait_memory_ns=spec.wait_memory.ToNanoseconds() or None,
        sm_percent=spec.sm_percent or None,
        sm_count=spec.sm_count or None,
        isolation=_MODES.get(spec.isolation, ""),
        mode=_MODES.get(message.mode, ""),
        slo_p99_ns=spec.slo.p99.ToNanoseconds() or None,
        preemptible=spec.preemptible if spec.HasField("preemptible") else None,
        state=_word(pb.State.Name, status.state, "STATE_"),
        reason=status.reason,
        resident_bytes=status.resident_bytes,
        swapped_bytes=status.swapped_bytes,
        filed_bytes=status.filed_bytes,
        memory_wait_bytes=status.memory_wait_bytes,
        memory_wait_place=status.memory_wait_place,
        gpu_time_ns=status.gpu_time.ToNanoseconds(),
        gpu_time_estimated=status.gpu_time_estimated,
        energy_mj=status.energy_mj if status.HasField("energy_mj") else None,
        wait_time_ns=status.wait_time.ToNanoseconds(),
        launches=status.launches,
        steps=status.steps,
        share_ratio=status.share_ratio,
        share_target_ratio=status.share_target_ratio or None,
        sms=status.sms or None,
        set_groups=tuple(status.set_groups) or None,
        set_group_sms=status.set_group_sms or None,
        pause_unready=status.pause_unready,
        pause_in_ns=status.pause_in.ToNanoseconds() if status.HasField("pause_in") else None,
        request_p99_ns=status.request_p99.ToNanoseconds() if status.requests else None,
        requests=status.requests,
        marked_p99_ns=status.marked_p99.ToNanoseconds() or None,
        create_time_ns=message.create_time.ToNanoseconds(),
        processes=tuple(_process(p) for p in message.processes),
        etag=message.etag,
        findings=tuple(map(_finding, status.findings)),
        memory_percent=spec.memory_percent or None,
        idle_release_ns=spec.idle_release.ToNanoseconds() or None,
        persistent_bytes=spec.persistent_bytes or None,
        ephemeral_bytes=spec.ephemeral_bytes or None,
        swappable=spec.swappable,
        checkpoint=spec.checkpoint,
        warnings=tuple(message.warnings),
    )


def past_job(message: pb.PastJob) -> PastJob:
    """Convert a job that has ended."""
    return PastJob(
        name=message.name,
        display_name=message.display_name,
        uid=message.uid,
        user=message.user,
        priority=class_word(getattr(message, "class")),
        group=message.group,
        gpus=tuple(message.gpus),
        command=message.command,
        begin_time_ns=message.begin_time.ToNanoseconds(),
        end_time_ns=message.end_time.ToNanoseconds(),
        outcome=message.outcome,
        gpu_time_ns=message.gpu_time.ToNanoseconds(),
        gpu_time_estimated=message.gpu_time_estimated,
        energy_mj=message.energy_mj if message.HasField("energy_mj") else None,
        wait_time_ns=message.wait_time.ToNanoseconds(),
        peak_bytes=message.peak_bytes,
        launches=message.launches,
        iterations=message.iterations,
        refusals=message.refusals,
        findings=tuple(message.findings),
    )


def history_request(
    *, user: str | None, group: str | None, since_ns: int | None, until_ns: int | None
) -> pb.ListHistoryRequest:
    """The request for ended jobs that match; None matches all."""
    request = pb.ListHistoryRequest(user=user or "", group=group or "")
    if since_ns is not None:
        request.since.FromNanoseconds(since_ns)
    if until_ns is not None:
        request.until.FromNanoseconds(until_ns)
    return request


def job_event(message: pb.JobEvent) -> JobEvent:
    """Convert an event of a job."""
    return JobEvent(
        time_ns=message.time.ToNanoseconds(),
        kind=message.kind,
        job=job(message.job),
        times=message.times or 1,  # older daemons do not send it
        rule=message.rule,
    )


def policy(message: pb.Policy) -> Policy:
    """Convert the policy in force."""
    return Policy(
        name=message.name, description=message.description, available=tuple(message.available)
    )


def explanation(message: pb.Explanation) -> Explanation:
    """Convert an explanation of why a job runs or waits."""
    return Explanation(
        job=message.job,
        summary=message.summary,
        lines=tuple(message.lines),
        mode=_MODES.get(message.mode, ""),
        policy=message.policy,
        waits=tuple(Wait(reason=w.reason, total_ns=w.total.ToNanoseconds()) for w in message.waits),
        story=tuple(message.story),
        findings=tuple(map(_finding, message.findings)),
    )


def window(message: pb.ProcessWindow) -> Window:
    """Convert the recorded window of one process."""
    return Window(
        pid=message.pid,
        gpus=tuple(message.gpus),
        begin_ns=message.begin_ns,
        end_ns=message.end_ns,
        first_iteration=message.first_iteration,
        iterations=message.iterations,
        lost_records=message.lost_records,
        is_cut=message.is_cut,
        records=message.records,
        kernels=tuple((kernel.handle, kernel.name) for kernel in message.kernels),
        launches={launch.sample_number: _memory(launch) for launch in message.launches},
    )


def trace_event(message: pb.TraceEvent) -> TraceEvent:
    """Convert a trace event; one that only a newer daemon knows gets an empty kind."""
    return TraceEvent(
        kind=_word(pb.TraceEvent.Kind.Name, message.kind, "KIND_").replace("_", "-"),
        time_ns=message.time.ToNanoseconds(),
        jobs=tuple(message.jobs),
        gpus=tuple(message.gpus),
        part=message.part,
        pid=message.pid,
        thread=message.thread,
        id=message.id,
        duration_ns=message.duration.ToNanoseconds(),
        reason=_word(pb.WaitReason.Name, message.reason, "WAIT_REASON_"),
        lost_records=message.lost_records,
    )


def _memory(message: pb.LaunchMemory) -> LaunchMemory:
    accesses = tuple((a.address, a.bytes, a.is_const) for a in message.accesses)
    return LaunchMemory(accesses=accesses, is_all=message.is_all)


def gpu(message: pb.Gpu) -> Gpu:
    """Convert a GPU."""
    return Gpu(
        index=message.index,
        uuid=message.uuid,
        product_name=message.product_name,
        mode=_MODES.get(message.mode, ""),
        memory_total_bytes=message.memory_total_bytes,
        memory_used_bytes=message.memory_used_bytes,
        sm_count=message.sm_count,
        busy_ratio=message.busy_ratio,
        software=message.software,
        name=message.name or str(message.index),
        sets=_set_proof(message.sets) if message.HasField("sets") else None,
        not_had=message.not_had,
        unmanaged_processes=(
            message.unmanaged_processes if message.HasField("unmanaged_processes") else None
        ),
        draining=message.draining,
        memory_reserved_bytes=message.memory_reserved_bytes,
    )


def _set_proof(message: pb.SetProof) -> SetProof:
    return SetProof(
        under_way=message.under_way,
        groups=message.groups,
        group_sms=message.group_sms,
        problem=message.problem,
    )


def gpu_cut(message: pb.ApplyPartitionResponse) -> GpuCut:
    """Convert the result of cutting a GPU by MIG."""
    return GpuCut(
        done=message.done,
        destroyed=tuple(map(_mig_instance, message.destroyed)),
        created=tuple(map(_mig_instance, message.created)),
        turned=message.turned,
        users=tuple(message.users),
    )


def _mig_instance(message: pb.MigInstance) -> MigInstance:
    return MigInstance(name=message.name or None, profile=message.profile)


def status(message: pb.DaemonStatus) -> Status:
    """Convert the daemon's status."""
    return Status(
        version=message.version,
        pid=message.pid,
        uptime_ns=message.uptime.ToNanoseconds(),
        policy=message.policy,
        jobs=message.jobs,
        processes=message.processes,
        runtime_dir=message.runtime_dir,
        clock=message.clock,
        gpus=tuple(gpu(g) for g in message.gpus),
        allowance=allowance(message.allowance) if message.HasField("allowance") else None,
        state_problem=message.state_problem or None,
    )


def allowance(message: pb.Allowance) -> Allowance:
    """Convert what a user may ask for."""
    return Allowance(
        max_class=class_word(message.max_class),
        max_class_key=message.max_class_key or None,
        max_memory_bytes=message.max_memory_bytes or None,
        max_memory_percent=message.max_memory_percent or None,
        max_memory_key=message.max_memory_key or None,
    )


def update_request(name: str, changes: Mapping[str, str]) -> pb.UpdateJobRequest:
    """The request that applies `changes`, a map from the keys of `tandem set` to their texts.

    Raises:
        UsageError: an unknown key or a bad value.
    """
    request = pb.UpdateJobRequest(job=pb.Job(name=name))
    for word, text in changes.items():
        if word not in CHANGES:
            raise UsageError(f"cannot set {word!r}; known are {', '.join(CHANGES)}")
        request.update_mask.paths.append(f"spec.{CHANGES[word](request.job.spec, text, word)}")
    return request


def _set_priority(spec: pb.JobSpec, text: str, word: str) -> str:
    values = {
        "latency": pb.CLASS_LATENCY,
        "normal": pb.CLASS_NORMAL,
        "batch": pb.CLASS_BATCH,
    }
    if text not in values:
        raise UsageError(f"{word} {text!r} is unknown; use {', '.join(values)}")
    setattr(spec, "class", values[text])  # `class` is a Python keyword
    return "class"


def _set_memory(spec: pb.JobSpec, text: str, word: str) -> str:
    limit = 0 if text == _NO_LIMIT else parse_memory(text, what=word)
    if isinstance(limit, Percent):
        spec.memory_percent = limit.value
        return "memory_percent"
    spec.memory_quota_bytes = limit
    return "memory_quota_bytes"


def _set_memory_min(spec: pb.JobSpec, text: str, word: str) -> str:
    spec.memory_min_bytes = _size(text, word)
    return "memory_min_bytes"


def _set_wait_memory(spec: pb.JobSpec, text: str, word: str) -> str:
    wait_ns = 0 if text == _NO_LIMIT else parse_duration(text, what=word)
    if wait_ns > MAX_WAIT_NS:
        raise UsageError(f"{word} {text!r} is more than {MAX_WAIT_NS // 10**9}s")
    spec.wait_memory.FromNanoseconds(wait_ns)
    return "wait_memory"


def _set_idle_release(spec: pb.JobSpec, text: str, word: str) -> str:
    after_ns = NEVER_IDLE_NS
    if text not in (_NO_LIMIT, "never"):
        after_ns = 0 if text == "default" else min(parse_duration(text, what=word), NEVER_IDLE_NS)
    spec.idle_release.FromNanoseconds(after_ns)
    return "idle_release"


def _set_persistent(spec: pb.JobSpec, text: str, word: str) -> str:
    spec.persistent_bytes = _size(text, word)
    return "persistent_bytes"


def _set_ephemeral(spec: pb.JobSpec, text: str, word: str) -> str:
    spec.ephemeral_bytes = _size(text, word)
    return "ephemeral_bytes"


def _set_sm(spec: pb.JobSpec, text: str, word: str) -> str:
    sm = None if text == _NO_LIMIT else parse_sm(text, what=word)
    spec.sm_percent = sm.value if isinstance(sm, Percent) else 0
    spec.sm_count = sm if isinstance(sm, int) else 0
    return "sm"


def _set_slo(spec: pb.JobSpec, text: str, word: str) -> str:
    spec.slo.p99.FromNanoseconds(0 if text == _NO_LIMIT else parse_slo(text, what=word))
    return "slo"


def _set_preemptible(spec: pb.JobSpec, text: str, word: str) -> str:
    if text not in ("yes", "no", "default"):
        raise UsageError(f"{word} {text!r} is none of yes, no and default")
    if text != "default":  # else leave the field unset: the class decides
        spec.preemptible = text == "yes"
    return "preemptible"


# key of `tandem set` -> function that writes its value and returns the field for the update mask
CHANGES: dict[str, Callable[[pb.JobSpec, str, str], str]] = {
    "priority": _set_priority,
    "memory": _set_memory,
    "memory_min": _set_memory_min,
    "wait_memory": _set_wait_memory,
    "idle_release": _set_idle_release,
    "persistent": _set_persistent,
    "ephemeral": _set_ephemeral,
    "sm": _set_sm,
    "slo": _set_slo,
    "preemptible": _set_preemptible,
}


def _size(text: str, word: str) -> int:
    return 0 if text == _NO_LIMIT else parse_device_bytes(text, what=word)


def class_word(value: pb.Class.ValueType) -> str:
    """`latency`, `normal` or `batch`."""
    return _word(pb.Class.Name, value, "CLASS_")


def _word(name_of: Callable[[_Value], str], value: _Value, prefix: str) -> str:
    try:
        text = name_of(value).removeprefix(prefix).lower()
    except ValueError:  # a value of a newer daemon
        return ""
    return "" if text == "unspecified" else text


def _finding(message: pb.Finding) -> Finding:
    return Finding(
        rule=message.rule,
        since_ns=message.since.ToNanoseconds(),
        what=message.what,
        why=message.why,
        advice=message.advice,
        facts=dict(message.facts),
    )


def memory_history(message: pb.MemoryHistory) -> MemoryHistory:
    """Convert the jobs' memory use over time."""
    return MemoryHistory(
        end_ns=message.end_ns,
        gpus=tuple(map(gpu, message.gpus)),
        curves=tuple(map(_curve, message.curves)),
    )


def _curve(message: pb.MemoryCurve) -> MemoryCurve:
    columns = (
        message.times_ns,
        message.resident_bytes,
        message.swapped_bytes,
        message.filed_bytes or repeat(0),  # from a daemon that knows no files
        message.waiting_bytes,
        message.gpu_time_ns,
        message.sm_time_ns or repeat(0),  # from a daemon that does not count them
    )
    return MemoryCurve(
        job=message.job,
        display_name=message.display_name,
        gpu=message.gpu,
        points=tuple(
            MemoryPoint(
                time_ns=at_ns,
                resident_bytes=resident,
                swapped_bytes=swapped,
                filed_bytes=filed,
                waiting_bytes=waiting,
                gpu_time_ns=gpu_ns,
                sm_time_ns=sm_ns,
            )
            for at_ns, resident, swapped, filed, waiting, gpu_ns, sm_ns in zip(
                *columns, strict=False
            )
        ),
    )


def _process(message: pb.Process) -> Process:
    return Process(
        pid=message.pid,
        attach_time_ns=message.attach_time.ToNanoseconds(),
        device_bytes=message.device_bytes,
        ungated=message.ungated,
        dropped_records=message.dropped_records,
    )
