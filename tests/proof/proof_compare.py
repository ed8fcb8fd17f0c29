"""Differences between a bare and a managed run of one program, beyond those that are allowed."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache

from proof_program import Program, Step
from proof_stage import ROOT, Outcome, Stamp

NOT_READY = {"0", "600"}
CAPTURING, LOST = "900", "700"
CONTEXT_ENDS = ("cuCtxDestroy_v2", "cuDevicePrimaryCtxRelease_v2")
# Class of calls.def, or symbol -> the shm::RecordKind that the daemon gets for it.
KINDS = {"launch": 1, "copy": 2, "memset": 3, "memop": 9, "host": 10}
KINDS |= {"cuEventRecord": 7, "cuEventRecordWithFlags": 7, "cuStreamWaitEvent": 8}
KINDS |= {"cuGraphLaunch": 13, "cuGraphUpload": 2, "cuMemDiscardBatchAsync": 3}
FLAVOUR = re.compile(r"_(ptsz|ptds)$")
STREAM_NUMBERS = {"1": 1, "2": 2}


@cache
def table() -> dict[str, tuple[str, bool]]:
    """Return symbol -> (class, whether it is gated), from calls.def."""
    row = re.compile(r'^CALL\((\w+), \d+, (\w+), (\w+), "([^"]*)"\)', re.M)
    text = (ROOT / "shim/calls.def").read_text()
    return {
        symbol: (kind, handler not in ("pass", "forward") and reason.startswith("gated"))
        for symbol, kind, handler, reason in row.findall(text)
    }


def differences(program: Program, bare: Outcome, managed: Outcome) -> list[str]:
    """Return one line per difference, or none if the shim was not noticeable."""
    found = []
    is_at_rest = _comes_to_rest(program, bare)
    if bare.end or managed.end:
        found.append(f"end: bare '{bare.end}', managed '{managed.end}'")
    for index, step in enumerate(program.steps):
        one, other = bare.steps.get(index, "missing"), managed.steps.get(index, "missing")
        if not _is_same(step, one, other) and (is_at_rest or step.verb != "look"):
            found.append(f"step {index} {step}: bare '{one.strip()}', managed '{other.strip()}'")
    if is_at_rest and _notes(bare) != _notes(managed):
        found.append(f"host functions: bare {_notes(bare)}, managed {_notes(managed)}")
    one, other = _comparable_work(program, bare), _comparable_work(program, managed)
    if is_at_rest and one != other:
        found += _work_differences(one, other)
    return found + watched_faults(program, managed)


def _comes_to_rest(program: Program, bare: Outcome) -> bool:
    """Tell whether all work had ended: while a capture is open, the program cannot wait for it."""
    waits = [i for i, step in enumerate(program.steps) if step.symbol == "cuCtxSynchronize"]
    return not any(_code(bare, index) == CAPTURING for index in waits[-4:])


def _is_same(step: Step, one: str, other: str) -> bool:
    if one == other:
        return True
    a, b = one.split(), other.split()
    if step.verb != "ask" or not a or not b:
        return False
    return {a[0], b[0]} == NOT_READY and all(word in ("-", "same") for word in a[1:] + b[1:])


def _notes(outcome: Outcome) -> dict[int, list[int]]:
    """Return the host functions of each lane, in order."""
    lanes: dict[int, list[int]] = defaultdict(list)
    for note in outcome.notes:
        lanes[note // 1000].append(note)
    return dict(sorted(lanes.items()))


def _comparable_work(program: Program, outcome: Outcome) -> list[list[Stamp]]:
    """Return the work, sorted if threads ran side by side, as their streams have no order then."""
    if not any(step.is_aside for step in program.steps):
        return outcome.work
    return sorted(sorted(stream) for stream in outcome.work)


def _work_differences(bare: list[list[Stamp]], managed: list[list[Stamp]]) -> list[str]:
    if len(bare) != len(managed):
        return [f"work in {len(bare)} streams bare, in {len(managed)} managed"]
    return [
        f"work of stream {i}: bare {one}, managed {other}"
        for i, (one, other) in enumerate(zip(bare, managed, strict=True))
        if one != other
    ]


def watched_faults(program: Program, managed: Outcome) -> list[str]:
    """Return what is impossible in the daemon's view of a managed run."""
    seen = managed.watched
    if seen is None or not seen.is_attached or managed.end:
        return []
    found = []
    for index in seen.passed:
        step = program.steps[index]
        if step.is_work and _code(managed, index) == "0" and table().get(step.symbol, ("", 0))[1]:
            found.append(f"step {index} {step}: went through a closed gate")
    if not _went_wrong_in_a_capture(program, managed):
        found += [
            f"step {index} {program.steps[index]}: waited, though it was only captured"
            for index in seen.waited
            if program.steps[index].is_captured and _code(managed, index) == "0"
        ]
    if seen.capturing:
        found.append(f"{seen.capturing} captures are said to go on")
    gone = _destroyed_streams(program, managed)
    found += [
        f"{gone[handle]} was destroyed and has a slot" for handle in seen.slots if handle in gone
    ]
    return found + _record_faults(program, managed) + _count_faults(program, managed)


def _code(outcome: Outcome, index: int) -> str:
    return (outcome.steps.get(index, "").split() or [""])[0]


def _went_wrong_in_a_capture(program: Program, managed: Outcome) -> bool:
    """Tell whether a capture call failed: a capture that did not begin, or ended, has no work."""
    captures = [i for i, s in enumerate(program.steps) if "Capture" in s.symbol]
    return any(_code(managed, index) != "0" for index in captures)


def _destroyed_streams(program: Program, managed: Outcome) -> dict[int, str]:
    """Return handle -> name of destroyed streams whose handle no later stream has."""
    gone: dict[int, str] = {}
    for index, step in enumerate(program.steps):
        if _code(managed, index) != "0":
            continue
        if step.symbol == "cuStreamDestroy_v2":
            gone[managed.raw[step.arguments[0]]] = step.arguments[0]
        elif step.symbol.startswith("cuStreamCreate"):
            gone.pop(managed.raw.get(step.arguments[0].lstrip("&"), 0), None)
    return gone


def _record_faults(program: Program, managed: Outcome) -> list[str]:
    """Check that each piece of work and each ordering point gives the daemon exactly one record."""
    assert managed.watched
    if managed.watched.dropped:
        return []
    told, (due, names) = managed.watched.records, _records_due(program, managed)
    return [
        f"{due[key]} calls of kind {key[0]} in {names[key[1]]}, {told[key]} records"
        for key in sorted(due.keys() | told.keys())
        if key[1] in names and key[0] in KINDS.values() and told[key] != due[key]
    ]


def _records_due(
    program: Program, managed: Outcome
) -> tuple[Counter[tuple[int, int]], dict[int, str]]:
    """Count the records due by (kind, stream), and name the streams; captured ones are left out."""
    due: Counter[tuple[int, int]] = Counter()
    names: dict[int, str] = {}
    captured = set()
    for index, step in enumerate(program.steps):
        if not step.stream:
            continue
        number = _stream_number(step, managed)
        names[number] = step.stream
        if step.stream not in program.plain_streams:
            captured.add(number)
        if (kind := _record_kind(step.symbol)) and _code(managed, index) == "0":
            due[kind, number] += 1
    return due, {number: name for number, name in names.items() if number not in captured}


def _stream_number(step: Step, managed: Outcome) -> int:
    """Return a stream's number in records; one that could not be made is NULL, a default stream."""
    default = 2 if FLAVOUR.search(step.symbol) else 1
    return STREAM_NUMBERS.get(step.stream) or managed.raw.get(step.stream, default)


def _record_kind(symbol: str) -> int:
    base = FLAVOUR.sub("", symbol)
    if base in KINDS:
        return KINDS[base]
    return KINDS.get(table().get(symbol, ("", False))[0], 0)


# These count as many bytes as their second argument says. How much the others count is not known
# here.
PLAIN = {"cuMemAlloc_v2", "cuMemAllocManaged"}
OTHERS = {"cuMemAllocPitch_v2", "cuMemCreate"}
OTHERS |= {"cuArrayCreate_v2", "cuArray3DCreate_v2", "cuMipmappedArrayCreate"}
# After these, a pool or the memory of graphs counts too: as much as the driver chooses to keep.
POOLED = {"cuMemAllocAsync", "cuMemAllocFromPoolAsync"}
FREES = {"cuMemFree_v2", "cuMemFreeAsync", "cuMemRelease"}
FREES |= {"cuArrayDestroy", "cuMipmappedArrayDestroy"}


def _count_faults(program: Program, managed: Outcome) -> list[str]:
    """Check that the job counts exactly the memory it has allocated, or more if it has pools.

    It may count less once a lost context, in which nothing can be freed, has taken its memory
    along.
    """
    assert managed.watched
    live: dict[str, int | None] = {}
    found = []
    has_pools = is_lost = takes_all = False
    for index, step in enumerate(program.steps):
        base = FLAVOUR.sub("", step.symbol)
        is_lost |= _code(managed, index) == LOST
        takes_all |= is_lost and base in CONTEXT_ENDS and _code(managed, index) == "0"
        if step.verb == "tally" and index in managed.watched.tallies:
            told, due = managed.watched.tallies[index], sum(filter(None, live.values()))
            at_least = has_pools or None in live.values()
            if (told < due and not takes_all) or (told > due and not at_least):
                found.append(f"step {index}: {due} bytes are allocated, {told} counted")
        elif step.verb == "name" and _code(managed, index) == "0":
            live[step.symbol] = live.pop(step.arguments[0], 0)
        elif step.verb == "call" and _code(managed, index) == "0":
            has_pools |= base in POOLED
            _keep_count(live, base, step.arguments)
    return found


def _keep_count(live: dict[str, int | None], base: str, arguments: Sequence[str]) -> None:
    if base in PLAIN:
        live[arguments[0].lstrip("&")] = int(arguments[1])
    elif base in OTHERS:
        live[arguments[0].lstrip("&")] = None
    elif base in FREES:
        live.pop(arguments[0].rstrip("!"), None)
