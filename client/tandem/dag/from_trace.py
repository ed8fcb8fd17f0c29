"""Turns a recording of `tandem trace calls` into the window of a graph.

Only marks of the process that launches most are used. Every step mark ends an iteration; the first
iteration begins with the recording.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

from tandem.dag.iterations import busiest_thread
from tandem.dag.model import STEP, Mark, Operation, Thread, Unknown, Window
from tandem.dag.recorded.operations import Operations
from tandem.dag.signatures import parse
from tandem.trace import meaning
from tandem.trace.file import Recording
from tandem.trace.records import Call, Device


def from_trace(
    recording: Recording, source: str, signatures: Mapping[str, str] = MappingProxyType({})
) -> Window:
    """Make a window of everything in the recording.

    `source` is a name for it; `signatures` gives C parameter lists by kernel name.

    Raises:
        UsageError: a signature is not a parameter list, or does not fit its kernel.
    """
    made = Operations(recording, parse(signatures))
    operations: list[Operation] = []
    gaps: list[int] = []
    marks: list[tuple[int, Mark]] = []  # with the process of each
    expected = 1  # calls are numbered as they begin: a missing number was not recorded
    for call in recording.calls:
        if call.number > expected:
            gaps.append(len(operations))
            made.memory.is_sure = False
        expected = call.number + 1
        if meaning.kind_of(call) == "mark":
            marks.append((made.handles.process(call.pid), _mark(call, len(operations))))
        operation = made.take(call)
        if operation is not None:
            operations.append(operation)
    main = _main_process(operations, made.handles.threads)
    told = tuple(mark for process, mark in marks if process == main)
    ends = [mark.place for mark in told if mark.kind == STEP]
    return Window(
        source=source,
        processes=tuple(made.handles.processes),
        contexts=made.handles.context_count,
        streams=tuple(made.handles.streams),
        threads=tuple(made.handles.threads),
        operations=tuple(operations),
        gaps=tuple(gaps),
        iterations=tuple((begin, end) for begin, end in pairwise([0, *ends]) if begin < end),
        is_marked=bool(ends),
        marks=told,
        device=_one_device(recording),
        unknown=Unknown(
            lost_calls=recording.lost,
            left_out=dict(made.left_out),
            is_cut_short=not recording.is_complete,
        ),
    )


def _main_process(operations: Sequence[Operation], threads: Sequence[Thread]) -> int | None:
    thread = busiest_thread(operations)
    return None if thread is None else threads[thread].process


def _mark(call: Call, place: int) -> Mark:
    return Mark(place=place, kind=meaning.word(call, "kind"), object=meaning.word(call, "id"))


def _one_device(recording: Recording) -> Device:
    # Calls do not say on which device they were made, so with several devices nothing is claimed.
    return recording.devices[0] if len(recording.devices) == 1 else Device()
