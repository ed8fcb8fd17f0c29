"""Part `sm_sets`: whether sets of SMs behave as the design assumes, and what they cost.

Tests the driver alone, without Tandem. In a dry run, the figures mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

from bench.gpu.figures.sm_verdicts import (
    judge_full,
    judge_groups,
    judge_overlap,
    spans_of,
    with_curves,
)
from bench.gpu.harness import children, native
from bench.gpu.harness.beliefs import Belief
from bench.gpu.harness.mps import mps, without_mps
from bench.gpu.harness.part import GPU, Bench, main
from bench.gpu.harness.questions import all_answered, answered, big_place
from tandem import _mps, _set_probe
from tandem.demo.place import Place
from tandem.demo.process import Message, WorkerError

RUN_NS, DRY_RUN_NS = 10_000_000, 500_000  # duration of each kernel that records when it runs
ROUNDS, DRY_ROUNDS = 200_000, 4  # of each kernel that fills its SMs: a few milliseconds
PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
PERCENTAGES = {"100": "100", "50": "50", "25": "25", "12_5": "12.5", "10": "10", "1": "1"}

BELIEFS = (
    Belief(
        question="How many groups of how many SMs the smallest split has, and what is left over",
        believed="on Hopper groups of 8; what is over is in no group",
        used_by=(
            "shim/partition/sets.cpp",
            "csrc/softgpu/driver/context/sm_resource.cpp",
            "docs/partitions.md",
        ),
        answers=("split.least_1.groups", "split.least_1.group_sms", "split.least_1.rest_sms"),
    ),
    Belief(
        question="Whether the same index of a split is the same SMs in two processes under MPS, "
        "and different ones share none",
        believed="both. Numbers tell it only where SMs are not numbered within each set",
        used_by=("shim/partition/sets.cpp", "docs/partitions.md"),
        answers=(
            "groups.mps.same_index_same_sms",
            "groups.mps.disjoint_across",
            "groups.mps.numbered_within_each",
            "groups.time.same_index_same_sms",
            "groups.time.disjoint_across",
            "groups.mps.sms_per_group",
        ),
    ),
    Belief(
        question="Whether the probe proves under MPS that sets of two processes have no SM in "
        "common: all blocks of both there at a moment, and no room for one more",
        believed="it does; else the mode mps+green is refused",
        used_by=("client/tandem/_set_probe.py", "daemon/tandemd/edges/set_proof.py"),
        answers=("proof.holds", "proof.problem", "proof.groups", "proof.group_sms"),
    ),
    Belief(
        question="Kernels that fill their SMs beside those of another process under MPS, over what "
        "they take alone: on another half of the groups, on the same half, with 50 % each",
        believed="1, 2, and between",
        used_by=("docs/partitions.md",),
        answers=(
            "full.halves.apart_ratio",
            "full.halves.same_ratio",
            "full.two_of_50.apart_ratio",
        ),
    ),
    Belief(
        question="Whether kernels of two processes on disjoint sets run at the same time: share "
        "of the time in which both have work",
        believed="under MPS all of it, else none: contexts take turns",
        used_by=("docs/partitions.md", "csrc/softgpu/device/gpu.cpp"),
        answers=(
            "overlap.mps_sets.both",
            "overlap.mps_whole.both",
            "overlap.time_sets.both",
            "overlap.time_whole.longest_turn_ms",
        ),
    ),
    Belief(
        question="Time on 64 SMs over time on all: compute-bound, memory-bound, a small grid, "
        "latency-bound, a matrix product",
        believed="2, less than 2, 1, 1, 2",
        used_by=("daemon/tandemd/core/space/scaling.py", "docs/partitions.md"),
        answers=tuple(
            f"scaling.{name}.sms_64" for name in ("compute", "copy", "small", "chase", "matmul")
        ),
    ),
    Belief(
        question="What a green context and a stream in it cost, in us",
        believed="made once for each set that a process was in; not known",
        used_by=("shim/partition/sets.cpp", "shim/partition/streams.cpp"),
        answers=("switch.create_us", "switch.stream_us", "switch.destroy_us"),
    ),
    Belief(
        question="From a kernel in one set to the next in another, in us; between two streams; in "
        "one stream",
        believed="an event between streams, and nothing for the set",
        used_by=("shim/partition/streams.cpp", "docs/partitions.md"),
        answers=(
            "switch.handover_two_sets.gap_us",
            "switch.handover_two_streams.gap_us",
            "switch.handover_same_stream.gap_us",
            "switch.two_sets.done_us",
            "switch.two_streams.done_us",
        ),
    ),
    Belief(
        question="Whether a function of the primary context can be launched into a stream of a "
        "green one, and where it runs",
        believed="yes, on the SMs of the stream's set",
        used_by=("shim/partition/streams.cpp", "shim/partition/through.h"),
        answers=(
            "handles.primary_function_in_set",
            "handles.kernel_in_set",
            "handles.set_function_in_primary",
            "handles.stream_context",
            "handles.primary_event_in_set",
        ),
    ),
    Belief(
        question="What a cooperative grid that fills the device comes to in a set, and outside",
        believed="too large in the set, though it may take as many blocks as any; it runs outside",
        used_by=("shim/handlers/launches.h", "docs/partitions.md"),
        answers=("handles.grid_of_the_device_in_set", "handles.grid_of_the_device_in_primary"),
    ),
    Belief(
        question="Where the kernels of a graph run that was captured in a set and is launched into "
        "a stream of the primary context; and the other way round",
        believed="the work of a graph keeps the SMs that it was captured with; the stream of a "
        "launch orders only (CUDA Programming Guide, 4.6.5)",
        used_by=(
            "docs/partitions.md",
            "shim/partition/streams.cpp",
            "csrc/softgpu/driver/graph/graph_launch.cpp",
        ),
        answers=(
            "graphs.captured_in_set.node_context",
            "graphs.captured_in_set.in_primary",
            "graphs.captured_in_set.in_second_set",
            "graphs.captured_in_primary.node_context",
            "graphs.captured_in_primary.in_first_set",
        ),
    ),
    Belief(
        question="Where a kernel node runs that was added by a call: as a kernel and as a "
        "function, with the context of a set in its parameters, and with that one current",
        believed="a kernel in the set, both ways; a function in its own context, for then the "
        "one in the parameters is ignored (cuda.h)",
        used_by=("csrc/softgpu/driver/graph/graph_params.cpp",),
        answers=(
            "graphs.kernel_added_for_set.in_primary",
            "graphs.kernel_added_while_set_current.in_primary",
            "graphs.function_added_for_set.in_primary",
            "graphs.function_added_while_set_current.in_primary",
            "graphs.function_added_for_set.node_context",
        ),
    ),
    Belief(
        question="How many SMs a client of MPS with 12.5 % sees, has, and can split",
        believed="percentages may have a fraction; rounded up to what the device divides",
        used_by=(
            "docs/partitions.md",
            "daemon/tandemd/edges/mps.py",
            "csrc/softgpu/mps/control_limits.cpp",
        ),
        answers=(
            "percentages.12_5.seen",
            "percentages.12_5.attribute_sms",
            "percentages.12_5.resource_sms",
            "percentages.12_5.smallest_groups",
        ),
    ),
)


def measure(bench: Bench) -> dict[str, Any]:
    """Ask every question, each independent of the others."""
    part = _Part(bench)
    place = part.bare
    found: dict[str, Any] = {
        "mode": place.mode,
        "split": answered("split", lambda: part.alone(place, "sm_sets", "split")),
        "groups": {"time": answered("groups.time", lambda: part.groups(place))},
        "overlap": {
            f"time_{name}": answered(f"overlap.time_{name}", part.overlap(place, halves))
            for name, halves in HALVES.items()
        },
        "switch": answered("switch", lambda: part.alone(place, "sm_switch", "costs")),
        "handles": answered("handles", lambda: part.alone(place, "sm_switch", "handles")),
        "graphs": answered("graphs", lambda: part.alone(place, "sm_switch", "graphs")),
    }
    found["scaling"] = answered(
        "scaling", lambda: with_curves(part.alone(place, "sm_scaling", part.scale))
    )

    def under_mps() -> Message:
        with mps(bench) as (with_mps, why):
            return _under_mps(part, found, with_mps, why)

    found |= answered("mps", under_mps)
    return {**found, "ok": all_answered(found) or bench.where != GPU}


HALVES = {"sets": ("0", "1"), "whole": ("all", "all")}


def _under_mps(
    part: _Part, found: Mapping[str, Any], place: Place | None, why: str
) -> dict[str, Any]:
    """Ask the questions whose answers are different under MPS."""
    if place is None:
        nothing = {"why_not": why}
        return {
            "groups": {**found["groups"], "mps": nothing},
            "overlap": {**found["overlap"], "mps_sets": nothing, "mps_whole": nothing},
            "percentages": nothing,
            "full": {"halves": nothing, "two_of_50": nothing},
            "proof": nothing,
        }
    place = replace(place, profile=part.bare.profile)
    overlaps = {
        f"mps_{name}": answered(f"overlap.mps_{name}", part.overlap(place, halves))
        for name, halves in HALVES.items()
    }
    percentages = {
        name: answered(f"percentages.{name}", part.percentage(place, percent))
        for name, percent in PERCENTAGES.items()
    }
    groups = answered("groups.mps", lambda: part.groups(place))
    halves = answered("full.halves", lambda: part.full(place, "0", "1"))
    held = with_percentage(place, "50")
    clients = answered("full.two_of_50", lambda: part.full(held, "all", "all"))
    return {
        "groups": {**found["groups"], "mps": groups},
        "full": {"halves": halves, "two_of_50": clients},
        "proof": answered("proof", lambda: part.proof(place)),
        "overlap": {**found["overlap"], **overlaps},
        "percentages": percentages,
    }


def with_percentage(place: Place, percent: str) -> Place:
    """The same place for MPS clients that have that percentage of the GPU."""
    return replace(place, base_env={**place.base_env, PERCENTAGE: percent})


class _Part:
    """Runs the programs, alone and two at a time."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.scale = "full" if bench.where == GPU else "dry"
        self._rounds = ROUNDS if bench.where == GPU else DRY_ROUNDS
        self._run_ns = RUN_NS if bench.where == GPU else DRY_RUN_NS

    @property
    def bare(self) -> Place:
        """The device without MPS."""
        return big_place(without_mps(self._bench))

    def alone(self, place: Place, program: str, *words: str) -> Message:
        """Run one process; return its result."""
        (found,) = self._together(place, [(program, *words)])
        return found

    def groups(self, place: Place) -> Message:
        """Compare the SMs of all groups in two processes at once."""
        first, second = self._together(place, [("sm_sets", "ids"), ("sm_sets", "ids")])
        return judge_groups(first["groups"], second["groups"])

    def overlap(self, place: Place, halves: Sequence[str]) -> Callable[[], Message]:
        """Ask whether kernels of two processes run at the same time."""

        def question() -> Message:
            run = str(self._run_ns)
            found = self._together(place, [("sm_sets", "overlap", half, run) for half in halves])
            first, second = (spans_of(said["spans"]) for said in found)
            return judge_overlap(first, second)

        return question

    def percentage(self, place: Place, percent: str) -> Callable[[], Message]:
        """Ask for the SMs of a client with that percentage of the GPU."""
        held = with_percentage(place, percent)
        return lambda: self.alone(held, "sm_sets", "seen")

    def full(self, place: Place, one: str, other: str) -> Message:
        """Time kernels that fill their SMs, alone and beside those of another process."""

        def times_us(*halves: str) -> list[float]:
            commands = [("sm_sets", "full", half, str(self._rounds)) for half in halves]
            return [float(said["kernel_us"]) for said in self._together(place, commands)]

        return judge_full(times_us(one)[0], times_us(one, other), times_us(one, one))

    def proof(self, place: Place) -> Message:
        """Run the proof that the daemon requires before anything relies on sets."""
        env = children.environment(self._bench, place)
        control = {_set_probe.CONTROL: env[_mps.PIPES]} if _mps.PIPES in env else {}
        found = _set_probe.probe({**env, **control})
        return {"holds": not found.problem, **asdict(found)}

    def _together(self, place: Place, commands: Sequence[Sequence[str]]) -> list[Message]:
        """Start all commands, let them begin at the same time, and collect their results."""
        with ExitStack() as stack:
            workers = []
            env = children.environment(self._bench, place)
            for program, *words in commands:
                command = native.command(self._bench, program, "sm_sets", *words)
                workers.append(stack.enter_context(children.talking(self._bench, command, env)))
            for worker in workers:
                children.heard(worker, "ready")
            for worker in workers:
                worker.go()
            said = [children.heard(worker, "result") for worker in workers]
        for one in said:
            if "error" in one:
                raise WorkerError(str(one["error"]))
        return said


if __name__ == "__main__":
    main(measure)
