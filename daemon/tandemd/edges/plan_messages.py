"""How jobs might share GPUs, as messages of tandem.v1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite

from tandem._wire import tandem_pb2 as pb
from tandemd.core.planner.divisions import InForce
from tandemd.core.planner.kept_plans import Measured
from tandemd.core.planner.planning import Outlook
from tandemd.core.planner.plans import Forecast, Part, Valued
from tandemd.core.words import span_of
from tandemd.edges.messages import duration, gpu_message
from tandemd.views import PlansView


def plans_message(views: Iterable[PlansView]) -> pb.Plans:
    """Return the message for all GPUs."""
    return pb.Plans(gpus=map(_of_gpu, views))


def _of_gpu(view: PlansView) -> pb.GpuPlans:
    seen = view.outlook
    if seen is None:
        return pb.GpuPlans(gpu=gpu_message(view.gpu))
    return pb.GpuPlans(
        gpu=gpu_message(view.gpu),
        plans=[_plan(valued, seen, view.in_force, view.gpu.gpu.sm_count) for valued in view.plans],
        notes=[*_compared(seen), *seen.doubts],
        planner=view.in_force.why,
    )


def _plan(valued: Valued, seen: Outlook, in_force: InForce, sm_count: int) -> pb.Plan:
    is_in_force = valued.plan == in_force.plan
    measured = in_force.measured if is_in_force else {}
    return pb.Plan(
        in_force=is_in_force,
        kind=valued.kind,
        needs=seen.what_it_takes(valued, has_planner=in_force.has_planner),
        progress=valued.progress,
        missed=valued.missed,
        jobs=[
            _job(name, part, valued.forecasts[name], seen, sm_count, measured.get(name))
            for part in valued.plan
            for name in part.members
        ],
    )


def _job(
    name: str,
    part: Part,
    forecast: Forecast,
    seen: Outlook,
    sm_count: int,
    measured: Measured | None,
) -> pb.PlannedJob:
    worker, gpu = seen.scene.workers[name], seen.scene.gpu
    has_requests = worker.rate or worker.slo_ns
    # Groups are real units only if the driver made them; otherwise they only serve to count.
    is_whole = part.groups == gpu.groups and seen.mode != "mps+green"
    return pb.PlannedJob(
        job=name,
        display_name=seen.titles[name],
        sms=sm_count if is_whole else part.groups * gpu.sms_of_group,
        shares_with=[other for other in part.members if other != name],
        progress_ratio=forecast.progress,
        p99=duration(int(forecast.p99_ns)) if has_requests and isfinite(forecast.p99_ns) else None,
        misses=seen.scene.misses(name, forecast),
        slowdown=forecast.slowdown,
        measured_progress_ratio=measured.progress if measured else None,
        measured_p99=duration(int(measured.p99_ns)) if measured and measured.p99_ns else None,
    )


def _compared(seen: Outlook) -> Iterator[str]:
    """Compare forecasts with measurements."""
    if seen.model_error is not None:
        yield (
            f"slowdowns by neighbours: {seen.model_count} measured on this gpu, predicted "
            f"with an error of {seen.model_error:.0%} each"
        )
    turns = seen.taking_turns()
    if seen.mode != "time" or turns is None:
        return
    for name, measured_ns in seen.measured_p99_ns.items():
        foretold_ns = turns.forecasts[name].p99_ns
        told, measured = span_of(foretold_ns), span_of(measured_ns)
        yield f"{name}: taking turns, its p99 is predicted as {told}, and is {measured}"
