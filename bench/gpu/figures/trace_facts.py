"""What a recording of driver calls tells about a program. Pure functions."""

from __future__ import annotations

import bisect
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from tandem._native import Allocations, OperationKind
from tandem.dag.from_trace import from_trace
from tandem.dag.iterations import find_iterations
from tandem.dag.model import UNRESOLVED, Window
from tandem.trace import meaning
from tandem.trace.file import Recording
from tandem.trace.records import LEGACY_STREAM, PER_THREAD_STREAM, Call

# The library a kernel belongs to, by its mangled name; the first match counts.
FAMILIES = {
    "cudnn": re.compile("cudnn|xmma_[fdw](prop|grad)|convolve|winograd", re.I),
    "cutlass": re.compile("cutlass", re.I),  # used by NVIDIA's libraries or by the program itself
    "xla": re.compile(r"^([a-z]+_)*fusion(_\w+)?$|^wrapped_"),
    "cublas": re.compile("cublas|gemm|gemv|nvjet|splitk|xmma", re.I),
    "triton": re.compile("^(triton_|add_and_halve)"),
    "torch": re.compile("2at6native|2at4cuda|c10"),
    "cub": re.compile("cub|thrust", re.I),
}
LOWEST_ADDRESS, HIGHEST_ADDRESS = 1 << 32, 1 << 57  # as in csrc/core/dag/parameters.cpp
WORD_BYTES = 8
NEAR = 0.1  # of an iteration: allowed deviation of an end's distance from its mark


def family(kernel: str) -> str:
    """The family that a kernel belongs to."""
    return next((name for name, fits in FAMILIES.items() if fits.search(kernel)), "other")


def iterations(window: Window) -> dict[str, int]:
    """Count iterations: marked by the program, found without marks, and found right.

    An end that was found is right if it has a mark of its own at the usual distance.
    """
    marks = [end for _, end in window.iterations] if window.is_marked else []
    found = sorted({place for bounds in find_iterations(window.operations) for place in bounds})
    ends = [place for place in found if place > 0]
    return {"marked": len(marks), "found": len(ends), "right": _right(ends, marks)}


def _right(ends: Sequence[int], marks: Sequence[int]) -> int:
    if len(marks) < 2 or not ends:
        return 0
    length = statistics.median(after - before for before, after in pairwise(marks))
    usual = statistics.median(min((mark - end for mark in marks), key=abs) for end in ends)
    near = NEAR * length
    return sum(
        bisect.bisect_left(marks, end + usual - near)
        != bisect.bisect_right(marks, end + usual + near)
        for end in ends
    )


def parameters(recording: Recording) -> dict[str, dict[str, float]]:
    """By family, the launches whose parameters' sizes are known, and what their words point to.

    `addresses` counts the 8-byte words that could be an address, `resolved_share` is the share of
    these that point into memory whose allocation was seen. `all_known_share` is the graph's result:
    the share of launches that can touch nothing else.
    """
    memory: defaultdict[int, Allocations] = defaultdict(Allocations)
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for call in recording.calls:
        kind = meaning.kind_of(call)
        if call.result != 0:
            continue
        if kind == "alloc":
            size = meaning.reserved_bytes(call)
            memory[call.pid].add(meaning.allocated_address(call), size)
        elif kind == "free":
            memory[call.pid].remove(meaning.word(call, "dptr"))
        elif kind == "launch":
            _count(counts[family(call.function.name if call.function else "")], call, memory)
    whole = _all_known(from_trace(recording, ""))
    return {name: _shares(counts[name], whole.get(name)) for name in sorted(counts)}


def _count(counts: Counter[str], call: Call, memory: dict[int, Allocations]) -> None:
    counts["launches"] += 1
    sizes = [size for _, size in call.function.parameters] if call.function else []
    counts["sized"] += bool(sizes) and not call.is_cut
    for word in full_words(sizes, call.words[call.type.words :]):
        counts["words"] += 1
        if LOWEST_ADDRESS <= word < HIGHEST_ADDRESS:
            counts["addresses"] += 1
            counts["resolved"] += memory[call.pid].holding(word) is not None


def full_words(sizes: Iterable[int], words: Sequence[int]) -> list[int]:
    """The words that a parameter fills completely; each parameter begins with a new word."""
    found: list[int] = []
    place = 0
    for size in sizes:
        found += words[place : place + size // WORD_BYTES]
        place += -(-size // WORD_BYTES)
    return found


def _all_known(window: Window) -> dict[str, float]:
    known: defaultdict[str, list[bool]] = defaultdict(list)
    for operation in window.operations:
        if operation.kind is OperationKind.LAUNCH:
            known[family(operation.name)].append(not operation.flags & UNRESOLVED)
    return {name: statistics.fmean(flags) for name, flags in known.items()}


def _shares(counts: Counter[str], all_known: float | None) -> dict[str, float]:
    shares: dict[str, float] = {
        "launches": counts["launches"],
        "sized_share": round(counts["sized"] / counts["launches"], 4),
        "words": counts["words"],
        "addresses": counts["addresses"],
    }
    if counts["addresses"]:  # otherwise there is no share
        shares["resolved_share"] = round(counts["resolved"] / counts["addresses"], 4)
    # Captured launches are not nodes of the graph.
    return shares if all_known is None else shares | {"all_known_share": round(all_known, 4)}


def streams(recording: Recording) -> dict[str, int]:
    """Count work by kind of stream, and the contexts and processes that submit it."""
    counts: Counter[str] = Counter()
    own: dict[tuple[int, int, int], bool] = {}
    contexts = set()
    for call in recording.calls:
        if meaning.kind_of(call) not in ("launch", "graph", "copy", "set") or call.result != 0:
            continue
        contexts.add((call.pid, call.context))
        stream = call.stream or _default(call)
        if stream == LEGACY_STREAM:
            counts["in_legacy"] += 1
        elif stream == PER_THREAD_STREAM:
            counts["in_per_thread"] += 1
        else:
            counts["in_own"] += 1
            own[call.pid, call.context, stream] = call.is_non_blocking
    return {
        "processes": len({pid for pid, _ in contexts}),
        "contexts": len(contexts),
        **{name: counts[name] for name in ("in_legacy", "in_per_thread", "in_own")},
        "own_blocking": sum(not free for free in own.values()),
        "own_non_blocking": sum(own.values()),
    }


def _default(call: Call) -> int:
    return PER_THREAD_STREAM if call.type.name.endswith(("_ptds", "_ptsz")) else LEGACY_STREAM


def calls(recording: Recording) -> dict[str, Any]:
    """Count what is in the recording."""
    kinds = Counter(meaning.kind_of(call) for call in recording.calls)
    return {
        "calls": len(recording.calls),
        "launches": kinds["launch"],
        "graphs": kinds["graph"],
        "lost": recording.lost,
        "processes": len({call.pid for call in recording.calls}),
    }
