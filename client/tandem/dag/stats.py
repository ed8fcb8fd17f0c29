"""The key figures of a graph."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tandem._native import Analysis
from tandem._page import Cell, count, span, time_text
from tandem.dag.graph import Graph
from tandem.dag.model import ON_GPU
from tandem.dag.phases import PHASES
from tandem.dag.rests import LINK_BYTES_PER_S, Memory, memory_of
from tandem.trace.records import Device
from tandem.units import format_bytes

_GAPS = {  # keyed by GapCause
    "host": "host: handed over only then",
    "sync": "host: it had waited for the GPU",
    "pause": "host: a pause of over 1 ms",
    "held": "tandem: held at the gate",
    "function": "host function",
    "other": "not known",
}
_COMPUTE = (
    "Bound by compute is said of kernels that take more than five times as long as moving their "
    "buffers: whatever slows them counts, also other jobs, and a software GPU that does not keep "
    "up with its clock."
)
_Table = tuple[str, tuple[str, ...], list[tuple[Cell, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Critical:
    """The critical path, which determines the length; its parts add up to that."""

    nodes: int
    length_ns: int
    gpu_ns: int
    host_ns: int  # between the host's waits and its submissions
    held_ns: int  # the same while Tandem held its launches; not part of host_ns
    earlier_ns: int  # work from before the graph begins
    other_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """How many operations have unknown properties, and how many calls are missing."""

    durations: int  # GPU operations whose duration is taken as 0 ns
    estimated: int  # with the mean duration of operations of the same name
    accesses: int  # that may touch more memory than is known
    order: int  # that may have to wait for more than is known
    lost_calls: int
    left_out: dict[str, int]
    is_cut_short: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """How far kernels and transfers overlap, from 0 to 1 (`tandem._native.Overlap`)."""

    ct: float  # kernel time during which a transfer runs / kernel time
    tc: float  # transfer time during which a kernel runs / transfer time
    cc: float  # kernel time during which another kernel runs / kernel time
    tot: float  # time that operations run beside one that began earlier / time of all


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Times in which the GPU ran none of the operations."""

    count: int
    total_ns: int
    longest_ns: int
    by_cause_ns: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchBound:
    """Whether the GPU idles because the host is too slow."""

    verdict: bool
    found_idle: int  # operations submitted after all that they had to wait for had ended
    idle_share: float  # share of the length in gaps caused by the host, without its pauses


@dataclass(frozen=True, slots=True, kw_only=True)
class Width:
    """How many GPU operations run at the same time."""

    most: int
    mean: float
    busy_ns: int  # time in which at least one runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of a training iteration."""

    launches: int
    gpu_ns: int  # as far as durations are known
    share: float  # of the GPU time of all launches in the iteration, from 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """The figures of a whole recording, or of one iteration."""

    source: str
    iteration: int | None
    iterations: int
    iterations_are_marked: bool
    device: Device
    operations: int
    nodes: dict[str, int]  # by kind
    edges: dict[str, int]  # by kind
    gpu_ns: int  # sum over all GPU operations
    critical: Critical
    gpu_critical_ns: int  # minimum length if the host took no time
    data_critical_ns: int | None  # minimum by data alone; None if accesses are not known
    phases: dict[str, Phase]  # forward, backward, update; empty: not known, or no single iteration
    overlap: Overlap
    width: Width
    classes: dict[str, float]  # share of GPU time, from 0 to 1
    gaps: Gaps
    launch_bound: LaunchBound
    memory: Memory
    unknown: Unknown

    def facts(self) -> Iterator[tuple[str, str]]:
        """The most important figures, as text."""
        how = "marked" if self.iterations_are_marked else "found"
        known = f"{self.iterations} {how}" if self.iterations else "none known"
        yield "iteration", known if self.iteration is None else f"{self.iteration} of {known}"
        if self.device.sm_count:
            yield "device", _device(self.device)
        yield "operations", f"{self.operations:,}"
        yield "edges", f"{sum(self.edges.values()):,}"
        yield "length", time_text(self.critical.length_ns)
        yield "GPU time of all", self._as_known(self.gpu_ns)
        yield "longest chain on the GPU", self._as_known(self.gpu_critical_ns)
        if self.data_critical_ns is not None:
            yield "longest chain by data", self._as_known(self.data_critical_ns)
        bound = self.launch_bound
        verdict = "yes" if bound.verdict else "no"
        yield "launch-bound", f"{verdict}: {bound.idle_share:.0%} of the length idle for the host"
        if self.memory.used_bytes:
            yield "memory used", format_bytes(self.memory.used_bytes)
            yield "rests for long enough to move", self._resting()
        if held_ns := self.gaps.by_cause_ns.get("held"):
            yield "idle while held by tandem", time_text(held_ns)

    def _resting(self) -> str:
        if not self.memory.resting_bytes:
            return "nothing"
        text = format_bytes(self.memory.resting_bytes)
        text = f"{text}, to the host and back at {LINK_BYTES_PER_S / 1e9:.0f} GB/s"
        return f"at most {text}" if self.memory.is_bound else text

    def _as_known(self, gpu_ns: int) -> str:
        """A sum of durations as text, with a reservation if some are not known."""
        if not self.unknown.durations:
            return time_text(gpu_ns)
        return f"at least {time_text(gpu_ns)}" if gpu_ns else "not known"

    def doubts(self) -> Iterator[str]:
        """Sentences about what is not known."""
        unknown = self.unknown
        if unknown.is_cut_short:
            yield "The recording ends early."
        if unknown.lost_calls:
            yield f"{unknown.lost_calls:,} calls were not recorded."
        for name, number in sorted(unknown.left_out.items()):
            yield f"{number:,} \u00d7 {name} left out: the recording does not say what they touch."
        if unknown.durations:
            count = f"{unknown.durations:,}"
            yield f"The durations of {count} GPU operations are not known, and count as 0."
        if unknown.estimated:
            yield f"For {unknown.estimated:,} operations the mean duration of their name is taken."
        if unknown.accesses:
            yield f"{unknown.accesses:,} operations may touch more memory than is known."
        if unknown.order:
            yield f"{unknown.order:,} operations may have had to wait for more than is known."
        yield from [_COMPUTE] * bool(self.classes.get("compute"))

    def tables(self) -> Iterator[_Table]:
        """The remaining figures, as tables."""
        critical = self.critical
        parts = [("GPU", critical.gpu_ns), ("host", critical.host_ns)]
        parts += [("held by tandem", critical.held_ns)]
        parts += [("earlier work", critical.earlier_ns), ("other", critical.other_ns)]
        length = max(1, critical.length_ns)
        yield (
            "Critical path",
            ("of what", "time", "share"),
            [(name, span(ns), (ns, f"{ns / length:.1%}")) for name, ns in parts if ns],
        )
        phases: list[tuple[Cell, ...]] = [
            (name, count(part.launches), span(part.gpu_ns), _share(part.share))
            for name, part in self.phases.items()
        ]
        yield "Phases", ("phase", "launches", "time", "share"), phases
        overlap = self.overlap
        yield (
            "Overlap",
            ("of what", "share"),
            [
                ("CT: kernels, with a transfer", _share(overlap.ct)),
                ("TC: transfers, with a kernel", _share(overlap.tc)),
                ("CC: kernels, with another kernel", _share(overlap.cc)),
                ("TOT: all, with one before", _share(overlap.tot)),
            ],
        )
        classes: list[tuple[Cell, ...]] = [(n, _share(x)) for n, x in self.classes.items() if x]
        yield "Classes", ("bound by", "share of GPU time"), classes
        gaps: list[tuple[Cell, ...]] = [
            (_GAPS[n], span(ns)) for n, ns in self.gaps.by_cause_ns.items()
        ]
        yield "Gaps on the GPU", ("made by", "time"), gaps
        for title, counts in (("Nodes", self.nodes), ("Edges", self.edges)):
            rows: list[tuple[Cell, ...]] = [(_words(n), count(c)) for n, c in counts.items()]
            yield title, ("kind", "count"), rows


def stats_of(graph: Graph) -> Stats:
    """Compute the figures of a graph."""
    window, analysis = graph.window, graph.analysis
    parts = analysis.critical_parts
    operations = [graph.operation(node) for node in graph.nodes]
    return Stats(
        source=window.source,
        iteration=graph.iteration,
        iterations=len(window.iterations),
        iterations_are_marked=window.is_marked,
        device=window.device,
        operations=len(graph),
        nodes=_sorted(Counter(op.kind.name.lower() for op in operations)),
        edges=_sorted({kind.name.lower(): n for kind, n in graph.edge_counts().items() if n}),
        gpu_ns=sum(op.duration_ns for op in operations if op.kind in ON_GPU),
        critical=Critical(
            nodes=len(analysis.critical_path),
            length_ns=analysis.critical_ns,
            gpu_ns=parts.gpu_ns,
            host_ns=parts.host_ns,
            held_ns=parts.held_ns,
            earlier_ns=parts.earlier_ns,
            other_ns=parts.other_ns,
        ),
        gpu_critical_ns=analysis.gpu_critical_ns,
        data_critical_ns=analysis.data_critical_ns,
        phases=_phases(graph),
        overlap=_overlap(analysis),
        width=Width(most=analysis.most_width, mean=analysis.mean_width, busy_ns=analysis.busy_ns),
        classes={c.name.lower(): share for c, share in analysis.class_shares.items()},
        gaps=_gaps(analysis),
        launch_bound=_launch_bound(analysis),
        memory=memory_of(analysis, [op.kind in ON_GPU for op in operations]),
        unknown=_unknown(graph),
    )


def _phases(graph: Graph) -> dict[str, Phase]:
    launches = Counter(graph.phases.values())
    times = Counter[str]()
    for node, phase in graph.phases.items():
        times[phase] += graph.operation(node).duration_ns
    total = max(1, sum(times.values()))
    return {
        name: Phase(launches=launches[name], gpu_ns=times[name], share=times[name] / total)
        for name in PHASES.values()
        if launches[name]
    }


def _overlap(analysis: Analysis) -> Overlap:
    found = analysis.overlap
    return Overlap(ct=found.ct, tc=found.tc, cc=found.cc, tot=found.tot)


def _gaps(analysis: Analysis) -> Gaps:
    by_cause: Counter[str] = Counter()
    lengths = []
    for gap in analysis.gaps:
        lengths.append(gap.end_ns - gap.start_ns)
        by_cause[gap.cause.name.lower()] += lengths[-1]
    return Gaps(
        count=len(lengths),
        total_ns=sum(lengths),
        longest_ns=max(lengths, default=0),
        by_cause_ns=_sorted(by_cause),
    )


def _launch_bound(analysis: Analysis) -> LaunchBound:
    found = analysis.launch_bound
    return LaunchBound(
        verdict=found.verdict, found_idle=found.found_idle, idle_share=found.idle_share
    )


def _device(device: Device) -> str:
    bandwidth = device.bandwidth_bytes_per_s
    return f"{device.sm_count} SMs" + (f", {bandwidth / 1e9:,.0f} GB/s" if bandwidth else "")


def _share(share: float) -> Cell:
    return share, f"{share:.1%}"


def _unknown(graph: Graph) -> Unknown:
    missing, unknown = graph.analysis.unknown, graph.window.unknown
    return Unknown(
        durations=missing.durations,
        estimated=missing.estimated,
        accesses=missing.accesses,
        order=missing.order,
        lost_calls=unknown.lost_calls,
        left_out=unknown.left_out,
        is_cut_short=unknown.is_cut_short,
    )


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _words(name: str) -> str:
    return name.replace("_", " ")
