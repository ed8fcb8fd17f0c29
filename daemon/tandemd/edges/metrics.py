"""The daemon's metrics as Prometheus text: tables for jobs, GPUs and the daemon.

Base units, `_total` for counters, `_ratio` for 0..1; histograms where the distribution matters,
with the fixed bounds of core/histogram.py. Every series of a job has the labels job, user and
class; none has a pid; a job's series end with the job. Rendering needs prometheus-client, which is
imported with this module, so nothing that always runs may import it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from tandemd import __version__
from tandemd.core.histogram import Counted
from tandemd.core.model import NO_LIMIT, JobClass, JobState, Preemption, Refusal, WaitReason
from tandemd.core.watchdog.rule import RULES
from tandemd.views import GpuView, JobView, MetricsView

JOB_LABELS = ("job", "user", "class")
GPU_LABELS = ("gpu", "UUID")
Labels = Mapping[str, str]
Kind = Literal["counter", "gauge"]
MOST_VERSIONS = 8  # of shims
PARTS = ("_bucket", "_count", "_sum")  # of a histogram; each suffix makes a scraped name


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMetric:
    """A family with one or more series per job."""

    name: str  # without `_total`, which counters get
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()  # besides JOB_LABELS
    series: Callable[[JobView], Iterable[tuple[tuple[str, ...], float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHistogram:
    """A family with one histogram per job."""

    name: str
    help: str
    counted: Callable[[JobView], Counted | None]  # None: this job has none


def _one(
    value: Callable[[JobView], float | None],
) -> Callable[[JobView], list[tuple[tuple[()], float]]]:
    """Make one series per job; jobs without a value have none."""
    return lambda job: [] if (figure := value(job)) is None else [((), figure)]


def _info(job: JobView) -> list[tuple[tuple[str, ...], float]]:
    gpus = ",".join(job.gpu_names)
    return [((job.spec.name, gpus, job.state.name.lower(), job.mode), 1.0)]


def _waits(job: JobView) -> Iterator[tuple[tuple[str, ...], float]]:
    for reason in WaitReason:
        if reason is not WaitReason.NONE:
            yield (reason.name.lower(),), job.waits_ns[reason] / 1e9


def _refusals(job: JobView) -> Iterator[tuple[tuple[str, ...], float]]:
    for refusal in Refusal:
        yield (refusal.name.lower(),), job.refused_by[refusal]


def _preemptions(job: JobView) -> Iterator[tuple[tuple[str, ...], float]]:
    for why in Preemption:
        yield (why.name.lower(),), job.preemptions[why]


def _moved(job: JobView) -> Iterator[tuple[tuple[str, ...], float]]:
    out_bytes, in_bytes = job.moved_bytes
    yield ("out",), out_bytes
    yield ("in",), in_bytes


def _moving(job: JobView) -> Iterator[tuple[tuple[str, ...], float]]:
    out_ns, in_ns = job.moved_ns
    yield ("out",), out_ns / 1e9
    yield ("in",), in_ns / 1e9


def _findings(job: JobView) -> Iterator[tuple[tuple[str, ...], float]]:
    standing = {view.finding.rule for view in job.findings}
    for rule in RULES:
        yield (rule,), float(rule in standing)


JOB_METRICS = (
    JobMetric(
        name="tandem_job_info",
        kind="gauge",
        help="always 1; the labels say what the job is",
        labels=("name", "gpu", "state", "isolation"),
        series=_info,
    ),
    JobMetric(
        name="tandem_job_gpu_time_seconds",
        kind="counter",
        help="GPU time charged to the job, including the estimated part",
        series=_one(lambda job: job.gpu_ns / 1e9),
    ),
    JobMetric(
        name="tandem_job_energy_joules",
        kind="counter",
        help="energy of its GPU while its work ran, attributed by GPU time and not measured; no "
        "series where no driver counts it",
        series=_one(lambda job: None if job.energy_mj is None else job.energy_mj / 1e3),
    ),
    JobMetric(
        name="tandem_job_share_ratio",
        kind="gauge",
        help="part of the GPU's time in the last second",
        series=_one(lambda job: job.share),
    ),
    JobMetric(
        name="tandem_job_share_target_ratio",
        kind="gauge",
        help="part of the GPU's time in the last second that its --sm owed it while it had work",
        series=_one(lambda job: job.owed or None),
    ),
    JobMetric(
        name="tandem_partition_sm_count",
        kind="gauge",
        help="SMs of the set that the job is on; no series without one",
        series=_one(lambda job: job.set_sms or None),
    ),
    JobMetric(
        name="tandem_job_request_p99_seconds",
        kind="gauge",
        help="99 of 100 requests in the last half minute took no longer than this",
        series=_one(lambda job: job.p99_ns / 1e9 if job.requests else None),
    ),
    JobMetric(
        name="tandem_job_slo_seconds",
        kind="gauge",
        help="how long 99 of 100 requests may take by --slo; no series without --slo",
        series=_one(lambda job: job.spec.slo_p99_ns / 1e9 or None),
    ),
    JobMetric(
        name="tandem_job_slo_marked_seconds",
        kind="gauge",
        help="how long 99 of 100 requests may take by its marks; no series if they do not say",
        series=_one(lambda job: job.marked_p99_ns / 1e9 or None),
    ),
    JobMetric(
        name="tandem_job_slo_violations",
        kind="counter",
        help="requests that took longer than --slo, or else their mark, allows; no series without",
        series=_one(lambda job: job.missed if job.spec.slo_p99_ns or job.marked_p99_ns else None),
    ),
    JobMetric(
        name="tandem_job_wait_seconds",
        kind="counter",
        help="time its threads waited, summed over the threads, by reason",
        labels=("reason",),
        series=_waits,
    ),
    JobMetric(
        name="tandem_job_preemptions",
        kind="counter",
        help="times it lost the turn although it had work, by reason",
        labels=("reason",),
        series=_preemptions,
    ),
    JobMetric(
        name="tandem_job_launches",
        kind="counter",
        help="kernels and graphs it launched",
        series=_one(lambda job: job.launches),
    ),
    JobMetric(
        name="tandem_job_iterations",
        kind="counter",
        help="iterations ended, marked or else found, in all its processes",
        series=_one(lambda job: job.iterations),
    ),
    JobMetric(
        name="tandem_job_memory_resident_bytes",
        kind="gauge",
        help="device memory it holds, by its own count",
        series=_one(lambda job: sum(p.device_bytes - p.swapped_bytes for p in job.processes)),
    ),
    JobMetric(
        name="tandem_job_memory_swapped_bytes",
        kind="gauge",
        help="its device memory that was moved to the host",
        series=_one(lambda job: sum(process.swapped_bytes for process in job.processes)),
    ),
    JobMetric(
        name="tandem_job_memory_filed_bytes",
        kind="gauge",
        help="its device memory that was moved to the host and is in files in swap_dir",
        series=_one(lambda job: sum(process.filed_bytes for process in job.processes)),
    ),
    JobMetric(
        name="tandem_swap_bytes",
        kind="counter",
        help="its device memory that was copied out to the host, and in again",
        labels=("direction",),
        series=_moved,
    ),
    JobMetric(
        name="tandem_swap_seconds",
        kind="counter",
        help="time in which its device memory was on its way out to the host, and in again",
        labels=("direction",),
        series=_moving,
    ),
    JobMetric(
        name="tandem_job_memory_audited_bytes",
        kind="gauge",
        help="device memory it holds, by the driver's count, including contexts and code",
        series=_one(lambda job: job.audited_bytes),
    ),
    JobMetric(
        name="tandem_job_memory_quota_bytes",
        kind="gauge",
        help="device memory it may hold; no series without a limit",
        series=_one(
            lambda job: job.spec.memory_bytes if job.spec.memory_bytes < NO_LIMIT else None
        ),
    ),
    JobMetric(
        name="tandem_job_memory_waiting_bytes",
        kind="gauge",
        help="size of the job's first allocation in line for device memory",
        series=_one(lambda job: job.memory_wait_bytes),
    ),
    JobMetric(
        name="tandem_job_oom",
        kind="counter",
        help="times it was told out of memory, by whom: its quota, the device, the line for memory",
        labels=("decision",),
        series=_refusals,
    ),
    JobMetric(
        name="tandem_job_dropped_records",
        kind="counter",
        help="telemetry records that were overwritten before they were read",
        series=_one(lambda job: sum(process.dropped_records for process in job.processes)),
    ),
    JobMetric(
        name="tandem_job_finding",
        kind="gauge",
        help="1 while the watchdog finds this about the job",
        labels=("rule",),
        series=_findings,
    ),
)

JOB_HISTOGRAMS = (
    JobHistogram(
        name="tandem_job_slo_latency_seconds",
        help="how long its requests took; no series if nothing observes them",
        counted=lambda job: job.served,
    ),
    JobHistogram(
        name="tandem_job_gate_wait_seconds",
        help="how long it waited for its turn with work, counted when each wait ends",
        counted=lambda job: job.gate_waits,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonMetric:
    """A gauge of the daemon with one or more series."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    series: Callable[[MetricsView], Iterable[tuple[tuple[str, ...], float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMetric:
    """A family with one series per GPU."""

    name: str  # without `_total`, which counters get
    kind: Kind = "gauge"
    help: str
    figure: Callable[[GpuView], float | None]  # None: this GPU has none


GPU_METRICS = (
    GpuMetric(
        name="tandem_gpu_memory_used_bytes",
        help="device memory in use, by anybody",
        figure=lambda view: view.gpu.memory_used_bytes,
    ),
    GpuMetric(
        name="tandem_gpu_memory_total_bytes",
        help="device memory in total",
        figure=lambda view: view.gpu.memory_total_bytes,
    ),
    GpuMetric(
        name="tandem_gpu_memory_reserved_bytes",
        help="device memory that is kept free of all jobs",
        figure=lambda view: view.reserved_bytes,
    ),
    GpuMetric(
        name="tandem_gpu_busy_ratio",
        help="part of the last second in which jobs of this daemon had work on it",
        figure=lambda view: view.busy,
    ),
    GpuMetric(
        name="tandem_gpu_energy_joules",
        kind="counter",
        help="energy it used since the daemon started, by the driver's count; no series if the "
        "driver does not say",
        figure=lambda view: view.energy.total_mj / 1e3 if view.energy else None,
    ),
    GpuMetric(
        name="tandem_gpu_unattributed_energy_joules",
        kind="counter",
        help="energy it used for no job: while idle, or for processes without Tandem",
        figure=lambda view: view.energy.unattributed_mj / 1e3 if view.energy else None,
    ),
    GpuMetric(
        name="tandem_gpu_unmanaged_processes",
        help="processes that compute on it and belong to no job; no series if the driver does "
        "not say",
        figure=lambda view: view.strangers,
    ),
)


def _queue(view: MetricsView) -> Iterator[tuple[tuple[str, ...], float]]:
    waiting = [job.spec.job_class for job in view.jobs if job.state is JobState.WAITING]
    for job_class in sorted(JobClass):  # also if none waits: a series that ends is not a zero
        yield (job_class.name.lower(),), waiting.count(job_class)


def _shims(view: MetricsView) -> Iterator[tuple[tuple[str, ...], float]]:
    """Count processes by shim version: always our own, else only the most frequent ones.

    A shim may report any version, and no user may be able to create an unbounded number of series.
    """
    found = Counter(process.shim_version for job in view.jobs for process in job.processes)
    found[__version__] += 0
    often = dict(found.most_common(MOST_VERSIONS))
    if rest := found.total() - sum(often.values()):
        often["other"] = rest
    for version, count in often.items():
        yield (version,), count


DAEMON_METRICS = (
    DaemonMetric(
        name="tandem_build_info",
        help="always 1; the labels say which daemon answers and by which policy it decides",
        labels=("version", "policy"),
        series=lambda view: [((__version__, view.policy), 1.0)],
    ),
    DaemonMetric(
        name="tandem_queue_depth",
        help="jobs that have work and wait, by class",
        labels=("class",),
        series=_queue,
    ),
    DaemonMetric(
        name="tandem_shim_connected",
        help="attached processes, by the version of their shim",
        labels=("version",),
        series=_shims,
    ),
    DaemonMetric(
        name="tandem_config_reload_success",
        help="1 while the configuration that was read last is in force, 0 if it was invalid",
        series=lambda view: [((), float(view.is_reload_good))],
    ),
    DaemonMetric(
        name="tandem_state_write_success",
        help="1 while what a restart needs is in the state file, 0 if that cannot be written",
        series=lambda view: [((), float(view.is_state_kept))],
    ),
)

_KINDS: Mapping[Kind, type[CounterMetricFamily | GaugeMetricFamily]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
}
DECISIONS = "tandem_scheduler_decision_seconds"


def families() -> list[str]:
    """Return every metric, by the name that people know it by."""
    told = (*JOB_METRICS, *GPU_METRICS)
    counted = [metric.name + "_total" * (metric.kind == "counter") for metric in told]
    return [*counted, *(metric.name for metric in DAEMON_METRICS), *_histograms()]


def names() -> list[str]:
    """Return the names as they are scraped: a histogram has several."""
    whole = [name for name in families() if name not in _histograms()]
    return [*whole, *(name + part for name in _histograms() for part in PARTS)]


def _histograms() -> list[str]:
    return [*(histogram.name for histogram in JOB_HISTOGRAMS), DECISIONS]


def exposition(view: MetricsView) -> str:
    """Render everything in Prometheus' text format, version 0.0.4."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(tuple(_families(view))))
    return generate_latest(registry).decode()


class _Families:
    """The collector interface that a registry expects."""

    def __init__(self, families: tuple[Metric, ...]) -> None:
        self._families = families

    def collect(self) -> tuple[Metric, ...]:
        return self._families


def _families(view: MetricsView) -> Iterator[Metric]:
    jobs = _Jobs(view.jobs)
    yield from map(jobs.family, JOB_METRICS)
    yield from map(jobs.histogram, JOB_HISTOGRAMS)
    yield from (_of_gpus(metric, view.gpus) for metric in GPU_METRICS)
    for metric in DAEMON_METRICS:
        family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        for values, figure in metric.series(view):
            family.add_metric(values, figure)
        yield family
    decisions = HistogramMetricFamily(DECISIONS, "what the scheduler took to decide something")
    _add(decisions, (), view.decisions)
    yield decisions


def _of_gpus(metric: GpuMetric, gpus: Iterable[GpuView]) -> Metric:
    family = _KINDS[metric.kind](metric.name, metric.help, labels=GPU_LABELS)
    for view in gpus:
        if (figure := metric.figure(view)) is not None:
            family.add_metric([view.gpu.name, view.gpu.uuid_text], figure)
    return family


class _Jobs:
    """The jobs and their labels, computed once for all families."""

    def __init__(self, jobs: Sequence[JobView]) -> None:
        self._jobs = [(job, (job.name, job.user, job.spec.job_class.name.lower())) for job in jobs]

    def family(self, metric: JobMetric) -> Metric:
        labels = (*JOB_LABELS, *metric.labels)
        family = _KINDS[metric.kind](metric.name, metric.help, labels=labels)
        for job, values in self._jobs:
            for more, value in metric.series(job):
                family.add_metric([*values, *more], value)
        return family

    def histogram(self, metric: JobHistogram) -> Metric:
        family = HistogramMetricFamily(metric.name, metric.help, labels=JOB_LABELS)
        for job, values in self._jobs:
            if (counted := metric.counted(job)) is not None:
                _add(family, values, counted)
        return family


def _add(family: HistogramMetricFamily, labels: Sequence[str], counted: Counted) -> None:
    """Add a histogram with cumulative buckets, as Prometheus expects them."""
    bounds = [*(str(bound_ns / 1e9) for bound_ns in counted.bounds_ns), "+Inf"]
    buckets = list(zip(bounds, accumulate(counted.counts), strict=True))
    family.add_metric(labels, buckets, sum_value=counted.sum_ns / 1e9)
