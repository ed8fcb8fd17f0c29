"""Part `markers`: a number that the GPU writes into shared memory, to tell how far it has got.

Whether markers work, what they cost compared with events, when they become visible, whether they
keep programmatic launches from overlapping, and how they interact with a capture elsewhere; bare,
and as a client of MPS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench.gpu.figures.marker_costs import costs, pairs, verdict
from bench.gpu.harness.beliefs import Belief
from bench.gpu.harness.children import ask
from bench.gpu.harness.mps import mps, without_mps
from bench.gpu.harness.native import command
from bench.gpu.harness.part import GPU, Bench, main
from bench.gpu.harness.questions import all_answered, answered
from tandem.demo.place import Place
from tandem.demo.process import Message

DEADLINE_S = 25.0
KERNEL_US = {"delay": 50, "pair": 20}
HOLD_US = 4000  # longer than it takes to submit a run
SIZES = {  # on a GPU, elsewhere
    "rounds": (30, 2),
    "launches": (256, 64),
    "samples": (2000, 10),
    "pairs": (32, 4),
}

_MARKERS, _SEGMENTS = "shim/stream/markers.cpp", "shim/stream/segments.cpp"
_LAYOUT, _GATE = "csrc/core/shm_layout.h", "csrc/core/gate.cpp"
_HELD = tuple(
    f"bare.held_calls.{kept}.{call}"
    for kept in ("held", "full")
    for call in (
        *("event_query", "stream_query", "write_other_stream", "record_other_stream"),
        *("launch_other_stream", "register", "unregister", "map", "unmap", "green_context"),
    )
)
_CAPTURED = ("stream", "legacy_stream", "legacy_stream_beside_a_blocking_one")


def _captured(arm: str, mode: str, where: str) -> tuple[str, ...]:
    calls = ("write", "record", "query")
    ends = ("result", "capture_ends")
    return tuple(f"{arm}.capture.{mode}.{where}.{call}.{end}" for call in calls for end in ends)


BELIEFS = (
    Belief(
        question="Can a page of a sealed memfd be registered, does a stream operation write to it?",
        believed="as plain memory can; whoever else has mapped the file sees what was written",
        used_by=(_MARKERS, _LAYOUT),
        answers=(
            "bare.memfd.register",
            "bare.memfd.device_pointer",
            "bare.memfd.memory_operations_attribute",
            "bare.memfd.write.result",
            "bare.memfd.write.seen",
            "bare.memfd.write_seen_by_others.seen",
            "bare.anonymous.write.result",
        ),
    ),
    Belief(
        question="And the legacy stream, and a context that did not register it?",
        believed="PORTABLE makes it every context's, at the same address",
        used_by=(_MARKERS,),
        answers=(
            "bare.memfd.write_in_legacy_stream.seen",
            "bare.memfd.write_in_another_context.result",
            "bare.memfd.write_in_another_context.seen",
        ),
    ),
    Belief(
        question="What does registering a page again say?",
        believed="CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
        used_by=(_MARKERS,),
        answers=("bare.memfd.register_again",),
    ),
    Belief(
        question="The same under MPS?",
        believed="as without",
        used_by=(_MARKERS,),
        answers=("mps.memfd.register", "mps.memfd.write.result", "mps.memfd.write.seen"),
    ),
    Belief(
        question="What share of a segment of 100 us does a marker take, in percent?",
        believed="well under 3, and a memory operation less than an event",
        used_by=("shim/stream/segments.h", _MARKERS, "shim/stream/submit.cpp"),
        answers=(
            "verdict.write_pct.host",
            "verdict.write_pct.device",
            "verdict.event_pct.host",
            "verdict.event_pct.device",
            "verdict.cheaper",
            "verdict.events_instead",
        ),
    ),
    Belief(
        question="And a sample of a kernel's duration, a pair of timed events (percent)?",
        believed="little enough for one launch in a thousand",
        used_by=("shim/stream/timing.cpp", "shim/stream/submit.cpp"),
        answers=("verdict.timed_pair_pct.host", "verdict.timed_pair_pct.device"),
    ),
    Belief(
        question="How long after a kernel's last act is its marker seen (us)?",
        believed="about a microsecond; an event that is asked about not much later",
        used_by=(_GATE, "shim/job/helper.cpp", "csrc/softgpu/driver/execute.cpp"),
        answers=(
            "bare.delay.write.median_us",
            "bare.delay.write.p99_us",
            "bare.delay.event.median_us",
            "bare.delay.event.p99_us",
        ),
    ),
    Belief(
        question="How often was a marker seen before what its kernel had written?",
        believed="never: a marker proves that the work before it has ended",
        used_by=(_LAYOUT, _SEGMENTS),
        answers=(
            "bare.delay.write.before_what_the_kernel_wrote",
            "bare.delay.event.before_what_the_kernel_wrote",
        ),
    ),
    Belief(
        question="How much overlap of two programmatic launches does a marker between them leave?",
        believed="a memory operation and a timed event none, an event all: markers of such streams "
        "are events, and their launches are not timed",
        used_by=("shim/stream/markers.cpp", "shim/stream/submit.cpp"),
        answers=("bare.pair.overlaps", "bare.pair.left_with_write", "bare.pair.left_with_event"),
    ),
    Belief(
        question="A capture in global mode elsewhere: what may a thread do in another stream?",
        believed="record and write always; ask about an event only in relaxed mode",
        used_by=("shim/relaxed.h", _SEGMENTS, _MARKERS),
        answers=(
            *_captured("bare", "default", "stream"),
            *_captured("bare", "relaxed", "stream"),
        ),
    ),
    Belief(
        question="And in the legacy stream?",
        believed="nothing beside a capture in a blocking stream, in no mode",
        used_by=(_SEGMENTS,),
        answers=tuple(
            path for where in _CAPTURED[1:] for path in _captured("bare", "relaxed", where)
        ),
    ),
    Belief(
        question="What may a thread do with memory beside another's capture: in its own mode if "
        "that is thread-local, in relaxed mode if it is global?",
        believed="allocate, free, map, unmap and ask what is free; wait for the context never",
        used_by=("shim/swap/put_off.cpp", "shim/swap/mover.cpp", "shim/swap/transit.cpp"),
        answers=tuple(
            f"bare.capture.memory.{beside}.{call}.{figure}"
            for beside in ("default_beside_thread_local", "relaxed_beside_global")
            for call in ("allocate", "free", "map", "info", "synchronize")
            for figure in ("result", "capture_ends")
        ),
    ),
    Belief(
        question="How many launches a stream takes that gets no further, and which calls of other "
        "threads come back meanwhile: behind one of them (held), and behind so many that a thread "
        "is kept (full)",
        believed="about 1,024; queries come back always, what adds to other streams while there is "
        "room; registering, mapping and making a context may wait for all work",
        used_by=(
            "shim/stream/inside.h",
            "shim/stream/submit.cpp",
            "shim/swap/homes.cpp",
            "shim/partition/streams.cpp",
        ),
        answers=("bare.held_calls.queue", *_HELD),
    ),
    Belief(
        question="What a context says that has failed",
        believed="its error, to whoever waits for it, asks what is free, or makes a stream",
        used_by=("shim/swap/transit.cpp",),
        answers=tuple(
            f"bare.capture.failed.{call}" for call in ("synchronize", "info", "new_stream")
        ),
    ),
)


def measure(bench: Bench) -> dict[str, Any]:
    """Ask every question in both arms; derive the verdict for segments."""
    bare = without_mps(bench).place
    figures: dict[str, Any] = {"mode": bare.mode}
    figures["bare"] = _arm(bench, bare, "bare")
    with mps(bench) as (place, why):
        figures["mps"] = {"why_not": why} if place is None else _arm(bench, place, "mps")
    figures["verdict"] = answered("verdict", lambda: verdict(figures["bare"]["cost"]["kernels"]))
    return {**figures, "ok": all_answered(figures) or bench.where != GPU}


def _arm(bench: Bench, place: Place, arm: str) -> dict[str, Any]:
    env = place.env(bench.folder / arm)

    def said(name: str, *words: object) -> Message:
        return ask(command(bench, name, "work", *words), env, deadline_s=DEADLINE_S)

    rounds, launches, samples, pair_count = (
        size[0 if bench.where == GPU else 1] for size in SIZES.values()
    )
    questions: Mapping[str, Callable[[], Message]] = {
        "memfd": lambda: said("marker_pages", "memfd"),
        "anonymous": lambda: said("marker_pages", "anonymous"),
        "cost": lambda: _cost(said("marker_cost", rounds, launches, HOLD_US)),
        "delay": lambda: said("marker_delay", samples, KERNEL_US["delay"]),
        "pair": lambda: pairs(said("marker_pair", pair_count, rounds, KERNEL_US["pair"])),
        "capture": lambda: said("marker_capture"),
        "held_calls": lambda: said("held_calls"),
    }
    return {name: answered(f"{arm}.{name}", question) for name, question in questions.items()}


def _cost(said: Message) -> Message:
    cases = {name: costs(said[name]) for name in ("empty", "five")}
    return {
        "kernels": cases,
        "five_us": said["kernel_us"],
        "refused": said["refused"],
        # By run, how many rounds the device began before all was submitted: figures are mixed.
        "late_runs": said["late"],
    }


if __name__ == "__main__":
    main(measure)
