"""Convert how GPUs are divided; needs protobuf, so only `_client` imports it."""

from tandem import _convert
from tandem._results import JobPart, Partition, ScalingCurve
from tandem._wire import tandem_pb2 as pb


def partitions(message: pb.Partition) -> list[Partition]:
    """Convert the partitions of all GPUs."""
    return [
        Partition(
            gpu=_convert.gpu(one.gpu),
            part_sms=one.part_sms or None,
            jobs=tuple(map(_part, one.jobs)),
        )
        for one in message.gpus
    ]


def _part(message: pb.JobPart) -> JobPart:
    return JobPart(
        job=message.job,
        display_name=message.display_name,
        priority=_convert.class_word(getattr(message, "class")),
        asked=message.asked,
        asked_sms=message.asked_sms or None,
        given_sms=message.given_sms or None,
        owed_ratio=message.owed_ratio or None,
        required_sms=message.required_sms or None,
        proposed_sms=message.proposed_sms,
        why=message.why,
        why_no_set=message.why_no_set,
        scaling=_curve(message.scaling) if message.HasField("scaling") else None,
        doubt=message.doubt,
        predicted_ns=message.predicted_ns or None,
        measured_ns=message.measured_ns or None,
    )


def _curve(message: pb.ScalingCurve) -> ScalingCurve:
    return ScalingCurve(
        sm_counts=tuple(message.sm_counts),
        iteration_ns=tuple(message.iteration_ns),
        source=message.source,
        gamma=message.gamma,
        recorded_sms=message.recorded_sms,
        recorded_ns=message.recorded_ns,
        knee_sms=message.knee_sms,
    )
