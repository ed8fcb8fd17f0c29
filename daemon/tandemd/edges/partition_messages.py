"""How GPUs are divided, as messages of tandem.v1."""

from __future__ import annotations

from collections.abc import Iterable

from tandem._wire import tandem_pb2 as pb
from tandemd.core.space.partition import Part
from tandemd.core.space.scaling import Curve
from tandemd.edges.messages import gpu_message, int64
from tandemd.views import PartitionView


def partition_message(views: Iterable[PartitionView]) -> pb.Partition:
    """Return the message for all GPUs."""
    return pb.Partition(
        gpus=[
            pb.GpuPartition(
                gpu=gpu_message(view.gpu),
                part_sms=view.part_sms,
                jobs=map(_part_message, view.parts),
            )
            for view in views
        ]
    )


def _part_message(part: Part) -> pb.JobPart:
    spec = part.job.spec
    message = pb.JobPart(
        job=part.job.display_name,
        display_name=spec.name,
        asked=part.asked,
        asked_sms=part.asked_sms,
        given_sms=part.given_sms,
        owed_ratio=part.owed_share,
        required_sms=part.required_sms,
        proposed_sms=part.proposed_sms,
        why=part.why,
        why_no_set=part.why_no_set,
        scaling=_curve_message(part.scaling) if part.scaling else None,
        doubt=part.doubt,
        measured_ns=int64(part.measured_ns),
        predicted_ns=int64(part.predicted_ns),
    )
    setattr(message, "class", int(spec.job_class))
    return message


def _curve_message(curve: Curve) -> pb.ScalingCurve:
    return pb.ScalingCurve(
        sm_counts=curve.sm_counts,
        iteration_ns=map(int64, curve.iteration_ns),
        source=curve.source,
        gamma=curve.gamma,
        recorded_sms=curve.recorded_sms,
        recorded_ns=int64(curve.recorded_ns),
        knee_sms=curve.knee(),
    )
