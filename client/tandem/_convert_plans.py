"""Convert plans for sharing GPUs; needs protobuf, so only `_client` imports it."""

from typing import Literal

from tandem import _convert
from tandem._results import GpuPlans, Plan, PlannedJob
from tandem._wire import tandem_pb2 as pb


def plans(message: pb.Plans) -> list[GpuPlans]:
    """Convert the plans of all GPUs."""
    return [
        GpuPlans(
            gpu=_convert.gpu(one.gpu),
            plans=tuple(map(_plan, one.plans)),
            notes=tuple(one.notes),
            planner=one.planner,
        )
        for one in message.gpus
    ]


def _plan(message: pb.Plan) -> Plan:
    return Plan(
        kind=message.kind,
        needs=message.needs,
        progress=message.progress,
        missed=message.missed,
        in_force=message.in_force,
        jobs=tuple(map(_job, message.jobs)),
    )


def _job(message: pb.PlannedJob) -> PlannedJob:
    return PlannedJob(
        job=message.job,
        display_name=message.display_name,
        sms=message.sms,
        shares_with=tuple(message.shares_with),
        progress_ratio=message.progress_ratio,
        p99_ns=_nanoseconds(message, "p99"),
        misses=message.misses,
        slowdown=message.slowdown,
        measured_progress_ratio=(
            message.measured_progress_ratio if message.HasField("measured_progress_ratio") else None
        ),
        measured_p99_ns=_nanoseconds(message, "measured_p99"),
    )


def _nanoseconds(message: pb.PlannedJob, field: Literal["p99", "measured_p99"]) -> int | None:
    return getattr(message, field).ToNanoseconds() if message.HasField(field) else None
