"""What the planner makes of the jobs on a GPU, from what is known of them now.

What is not known is assumed, and said: work without a scaling curve counts as if it filled the GPU,
work of which nobody knows what it is bound by as if neither it nor a neighbour minded the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tandemd.core.foresight import features
from tandemd.core.interference import Features, Interference
from tandemd.core.model import Group, Job, Options
from tandemd.core.planner import alternatives
from tandemd.core.plans import Gpu, Part, Scene, Valued, Worker
from tandemd.core.space import said_share
from tandemd.core.words import span_of

MOST_GROUPS = 16  # that a GPU is thought to be divided into, where the driver does not say
UNKNOWN_NS = 10_000_000  # an iteration of a job of which none is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Jobs of an island, ready to be planned for: copies, for any thread."""

    scene: Scene
    mode: str
    titles: Mapping[str, str]  # what people called the jobs, by name
    measured_p99_ns: dict[str, int]  # of the jobs whose requests are known
    model_count: int  # measurements behind what is foretold of neighbours
    model_error: float | None  # of these
    doubts: tuple[str, ...]

    def alternatives(self) -> list[Valued]:
        """The best plan of each kind, best first; none without jobs. Takes milliseconds."""
        return alternatives(self.scene) if self.scene.workers else []

    def taking_turns(self) -> Valued | None:
        """What is to be expected where all take turns on all SMs, as in mode time."""
        names = tuple(self.scene.workers)
        return self.scene.value((Part(self.scene.gpu.groups, names),)) if names else None


def outlook(
    members: Iterable[Group], gpus: frozenset[int], options: Options, model: Interference
) -> Outlook | None:
    """Of all jobs that have a process there; None: how many SMs there are is not known."""
    sms = min((options.sm_counts.get(gpu, 0) for gpu in gpus), default=0)
    if not sms:
        return None
    group_sms = -(-sms // MOST_GROUPS)
    gpu = Gpu(groups=sms // group_sms, sms_of_group=group_sms, turn_ns=options.quantum_ns)
    jobs = [(job, group) for group in members for job in group.jobs.values() if job.processes]
    doubts: list[str] = []
    workers = [_worker(job, group, gpu, options, doubts) for job, group in jobs]
    return Outlook(
        scene=Scene({worker.name: worker for worker in workers}, gpu, model.frozen()),
        mode=options.mode_of(gpus),
        titles={job.display_name: job.spec.name for job, _ in jobs},
        measured_p99_ns={j.display_name: j.latency.p99_ns for j, _ in jobs if j.latency.count},
        model_count=model.count,
        model_error=model.error,
        doubts=tuple(doubts),
    )


def _worker(job: Job, group: Group, gpu: Gpu, options: Options, doubts: list[str]) -> Worker:
    all_sms, curve, name = gpu.groups * gpu.sms_of_group, job.scaling, job.display_name
    solo_ns = curve.at(all_sms) if curve else float(_iteration_ns(job) or UNKNOWN_NS)
    if curve is None:
        each = span_of(int(solo_ns)) if _iteration_ns(job) else "of unknown length"
        doubts.append(
            f"{name}: {job.scaling_doubt}: its iterations ({each}) count as if they filled the gpu"
        )
    needs = features(group)
    if needs is None:
        doubts.append(f"{name}: what bounds its work is not known, so no slowdown is foretold")
    said = said_share(job.spec, group.gpus, options)
    return Worker(
        name=name,
        solo_ns=solo_ns,
        at=curve.at if curve else lambda sms: solo_ns * all_sms / sms,
        features=needs or Features(),
        weight=float(options.weight(job.spec.job_class)),
        slo_ns=job.spec.slo_p99_ns,
        rate=job.latency.rate,
        groups=max(1, round(said * gpu.groups)) if said else 0,
    )


def _iteration_ns(job: Job) -> int:
    """Of its slowest process; 0 = not known."""
    return max((process.usage.iteration_ns for process in job.processes.values()), default=0)


def how_to(kind: str, mode: str) -> str:
    """What it takes to go by a plan of this kind on a GPU in this mode."""
    if kind == "time":
        return "is how jobs share it" if mode == "time" else "needs mode time"
    if mode == "time":
        return 'needs mode mps (gpu."*".mode)'
    if mode == "mps":
        return "needs jobs to be started anew with these --sm"
    return "can be had while they run" if mode == "mps+green" else "is not for instances of MIG"
