"""Runs the detectors on telemetry recorded from real programs, against the marks in it."""

import bisect
import statistics
import struct
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import recorded
from recorded import load

from tandem._marks import PHASE_BEGIN, PHASE_END, STEP
from tandem._native import IterationFinder, split_phases

FOLDER = Path(recorded.__file__).parent
MARKED = ["vision", "language", "transformer", "decoder", "loader"]
MARK = 11


def is_mark(record, *kinds):
    return record[8] == MARK and (not kinds or record[9] in kinds)


def thread_of(record):
    return record[12:16]


def marking_thread(records):
    """Return other records of the marking thread, ticks being positions, and its marks' places."""
    (thread,) = {thread_of(record) for record in records if is_mark(record, STEP)}
    own, labels = [], []
    for record in records:
        if thread_of(record) != thread:
            continue
        if is_mark(record, STEP):
            labels.append(len(own))
        elif not is_mark(record):
            own.append(struct.pack("<Q", len(own)) + record[8:])
    return own, labels


def iterations_of(records):
    """Return the records of all threads between two step marks."""
    places = [place for place, record in enumerate(records) if is_mark(record, STEP)]
    return [records[begin + 1 : end] for begin, end in pairwise(places)]


@pytest.mark.parametrize("name", MARKED)
def test_recorded_iterations_end_where_they_are_marked(name):
    own, labels = marking_thread(load(name))

    ends = IterationFinder().take(b"".join(own))

    length = statistics.median(after - before for before, after in pairwise(labels))
    distances = [min((label - end for label in labels), key=abs) for end in ends]
    usual = statistics.median(distances)
    right = [
        bisect.bisect_left(labels, end + usual - length / 10)
        != bisect.bisect_right(labels, end + usual + length / 10)
        for end in ends
    ]
    assert sum(right) >= 0.95 * len(labels)
    assert sum(right) >= 0.95 * len(ends)


def test_nothing_is_found_in_what_wanders():
    records = load("wanderer")

    assert len(records) > 3000
    assert IterationFinder().take(b"".join(records)) == []


def test_recorded_phases_turn_where_they_are_marked():
    wrong, iterations = 0, iterations_of(load("transformer"))
    for records in iterations:
        marked = split_phases(b"".join(records))
        found = split_phases(b"".join(r for r in records if not is_mark(r)))
        turns = [(letters.find("B"), letters.find("U")) for letters in (marked, found)]
        apart = [abs(one - other) for one, other in zip(*turns, strict=True)]
        wrong += max(apart) > len(marked) / 20

    assert len(iterations) >= 39
    assert wrong <= 0.05 * len(iterations)


@pytest.mark.parametrize("name", ["decoder", "wanderer"])
def test_no_phases_are_found_where_nothing_is_trained(name):
    records = load(name)
    pieces = iterations_of(records) or [records[i : i + 300] for i in range(0, len(records), 300)]

    assert {split_phases(b"".join(piece)) for piece in pieces} == {""}


@pytest.mark.parametrize("name", [*MARKED, "wanderer"])
def test_recordings_are_whole_and_small(name):
    records = load(name)

    kinds = Counter(record[8] for record in records)
    assert kinds[1] > 3000
    assert (FOLDER / f"{name}.xz").stat().st_size < 100 * 1024
    begun = sum(is_mark(record, PHASE_BEGIN) for record in records)
    assert begun == sum(is_mark(record, PHASE_END) for record in records)
