"""Ten thousand random changes of a job's SMs: where its kernels run, in which order, how soon.

A C program works in two streams under the one-job daemon, which sets another set of SMs before each
round of launches. In the software GPU's timeline, every kernel must run within the set that was in
force when it was submitted, and the words that the kernels update must show the right order. The
cost of a change is how much longer the gap between two kernels of a stream is where the set changed
than where it did not: while work is queued, the rest of a change's latency is the drain.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from bench.bars import bar, progress
from bench.one_job_daemon import GROUP_SMS, LONG_SEGMENT_NS, Treatment, listening, one_job
from bench.stage import HERE, NotMeasuredError, Stage, expect, stage, tell
from tandem import softgpu

CHANGES = 10_000
GROUPS = 16  # on the software GPU's profile h200
STREAMS, STEPS = ("left", "right"), 2  # as in sets.cpp
SWITCH_LIMIT_US = 50
SEED = 11
PATIENCE_S = 60.0

Row = Mapping[str, Any]
Span = tuple[int, int]  # first group, groups


def measure(changes: int = CHANGES) -> dict[str, Any]:
    """Return how many kernels ran outside their set, how many words are wrong, a change's time."""
    told = list(_spans(changes))
    with stage() as place:
        right, rows = _run(place, told)
    outside = 0
    switches_us: list[float] = []
    others_us: list[float] = []
    for name in STREAMS:
        kernels = _kernels(rows, name)
        if len(kernels) != STEPS * changes:
            raise NotMeasuredError(f"{len(kernels)} kernels ran, not {STEPS * changes}")
        for number, parts in enumerate(kernels):
            span = told[number // STEPS]
            outside += any(not sms_of(part["sm_set"]) <= sms_in(span) for part in parts)
        for number, (one, other) in enumerate(pairwise(kernels), start=1):
            gap_us = (other[0]["t_start_ns"] - one[-1]["t_end_ns"]) / 1e3
            has_changed = number % STEPS == 0 and told[number // STEPS] != told[number // STEPS - 1]
            (switches_us if has_changed else others_us).append(gap_us)
    switch_us = statistics.median(switches_us) - statistics.median(others_us)
    return {
        "changes": len(switches_us),
        "kernels_outside": outside,
        "words_wrong": len(STREAMS) - right,
        "switch_us": round(switch_us, 2),
        "bars": {
            "kernels_outside": bar(outside, 0),
            "words_wrong": bar(len(STREAMS) - right, 0),
            "switch_us": bar(round(switch_us, 2), SWITCH_LIMIT_US),
        },
    }


def sms_of(text: str) -> set[int]:
    """Parse a set such as `0-3,8`."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def sms_in(span: Span) -> set[int]:
    """The SMs in the groups of a span."""
    first, count = span
    return set(range(first * GROUP_SMS, (first + count) * GROUP_SMS))


def _spans(count: int) -> Iterator[Span]:
    chance = random.Random(SEED)
    for _ in range(count):
        first = chance.randrange(GROUPS)
        yield first, chance.randint(1, GROUPS - first)


def _run(place: Stage, told: Sequence[Span]) -> tuple[int, list[Row]]:
    """Run the program; return how many words came out right, and the timeline."""
    image, timeline = place.folder / "sets.so", place.folder / "timeline.jsonl"
    softgpu.compile_kernels(HERE / "sets.cu", image)
    wanted = Treatment(segment_ns=LONG_SEGMENT_NS, has_peer=False, has_set=True)
    env = place.shimmed(TANDEM_SOFTGPU_TIMELINE=str(timeline))
    command = [place.compile("sets.cpp"), image]
    with (
        listening(place.attach_socket) as listener,
        place.running(command, env) as child,
        one_job(listener, wanted) as job,
    ):
        expect(child, "ready")
        for number, (first, count) in enumerate(told):
            if number % (len(told) // 4) == 0:
                progress(f"sets: change {number} of {len(told)}")
            job.process.set_sms(first=first, count=count, group_sms=GROUP_SMS)
            tell(child)
            expect(child, "submitted")
        output, _ = child.communicate(timeout=PATIENCE_S)
    if child.returncode != 0 or not output.startswith("right "):
        raise NotMeasuredError(f"the program ended with {child.returncode}: {output!r}")
    return int(output.split()[1]), [json.loads(line) for line in timeline.read_text().splitlines()]


def _kernels(rows: Sequence[Row], name: str) -> list[list[Row]]:
    """The kernels of that name in the order they began, each as the list of its parts."""
    parts: dict[int, list[Row]] = {}
    for row in rows:
        if row["kind"] == "kernel" and row["name"] == name:
            parts.setdefault(row["op"], []).append(row)
    return sorted(parts.values(), key=lambda own: own[0]["t_start_ns"])
