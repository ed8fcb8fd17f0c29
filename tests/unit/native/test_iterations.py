"""Iterations are found in what programs submit, and checked against the programs' own marks."""

import bisect
import statistics
import struct
import zlib
from itertools import pairwise
from random import Random

import pytest
from iterations.aperiodic import wander
from iterations.programs import APERIODIC, PERIODIC, TAKING_TURNS
from iterations.training import train

from tandem._native import IterationFinder

RECORD = struct.Struct("<QBBHIQQQIIQQ")
LAUNCH, COPY, MEMSET, SYNC, GRAPH = 1, 2, 3, 6, 13
KINDS = {
    "launch": (LAUNCH, 0),
    "graph": (GRAPH, 0),
    "to_device": (COPY, 1),
    "to_host": (COPY, 2),
    "memset": (MEMSET, 0),
    "sync": (SYNC, 0),
}


def encode(program):
    """Return records whose ticks are their positions, and the positions of the labels."""
    records, labels = [], []
    for kind, *names in program:
        if kind == "step":
            labels.append(len(records))
            continue
        number, value = KINDS[kind]
        function = zlib.crc32(names[0].encode()) if names else 0
        ticks = len(records)
        records.append(RECORD.pack(ticks, number, 0, 0, 1, 5, function, 0, 4, 32, 0, value))
    return records, labels


def found_in(records):
    return IterationFinder().take(b"".join(records))


def share_right(labels, ends):
    """Return the share of the labels with exactly one end near them.

    Where in its loop an iteration ends is a matter of convention, so a constant distance from the
    labels is no mistake: near is within a tenth of an iteration of the usual distance.
    """
    length = statistics.median(after - before for before, after in pairwise(labels))
    nearest = [min(labels, key=lambda label: abs(label - end)) - end for end in ends]
    usual = statistics.median(nearest)
    reach = max(1, length / 10)
    right = 0
    for label in labels:
        low = bisect.bisect_left(ends, label - usual - reach)
        high = bisect.bisect_right(ends, label - usual + reach)
        right += high - low == 1
    return right / max(len(labels), len(ends))


def share_of_ends_right(labels, ends):
    """Return the share of the ends near a label, judged by the length of the iteration ended."""
    right = 0
    for end in ends:
        place = bisect.bisect_left(labels, end)
        near = labels[max(0, place - 1) : place + 1]
        length = labels[place] - labels[place - 1] if 0 < place < len(labels) else 0
        right += any(abs(label - end) <= max(3, length / 10) for label in near)
    return right / len(ends)


@pytest.mark.parametrize("name", PERIODIC)
def test_nearly_all_ends_of_iterations_are_found(name):
    records, labels = encode(PERIODIC[name]())

    assert share_right(labels, found_in(records)) >= 0.95


@pytest.mark.parametrize("name", TAKING_TURNS)
def test_ends_found_of_loops_that_take_turns_are_right(name):
    records, labels = encode(TAKING_TURNS[name]())

    ends = found_in(records)

    assert len(ends) > len(labels) / 3
    assert share_of_ends_right(labels, ends) >= 0.95


@pytest.mark.parametrize(
    "name",
    [
        "train",
        "train_with_logging",
        "alternate",
        "decode",
        "decode_with_growing_cache",
        "prefetch",
        "train_beside_a_loader",
        "recompute",
        "critics_that_report",
        "search_beams",
    ],
)
def test_what_repeats_exactly_is_found_within_two_iterations(name):
    records, labels = encode(PERIODIC[name]())

    first = found_in(records)[0]

    assert first < labels[2]


def test_a_long_iteration_is_found_as_soon():
    records, labels = encode(train(iterations=3, layers=600))
    assert labels[1] - labels[0] > 12_000

    assert labels[0] < found_in(records)[0] < labels[2]


@pytest.mark.parametrize("name", APERIODIC)
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_claimed_of_what_does_not_repeat(name, seed):
    records, _ = encode(APERIODIC[name](seed=seed))

    assert found_in(records) == []


def test_what_an_iteration_consists_of_is_told():
    finder = IterationFinder()
    records, labels = encode(train(iterations=10, layers=3))

    finder.take(b"".join(records))

    assert finder.found
    length = labels[1] - labels[0]
    assert finder.duration == length  # ticks are positions here
    assert finder.launches == length - 2  # all but the copy and the wait


def test_a_loop_that_ended_is_forgotten():
    finder = IterationFinder()
    records, labels = encode(train(iterations=10, layers=3))
    finder.take(b"".join(records))
    other, _ = encode(wander(operations=20 * (labels[1] - labels[0])))

    finder.take(b"".join(other))

    assert not finder.found


def test_lost_records_lose_one_iteration_and_not_the_loop():
    records, labels = encode(train(iterations=40, layers=3))
    cut = (labels[19] + labels[20]) // 2
    finder = IterationFinder()

    ends = finder.take(b"".join(records[:cut]))
    finder.gap()
    ends += finder.take(b"".join(records[cut + 30 :]))

    assert share_right(labels, ends) >= 0.9
    assert not any(labels[19] < end < labels[20] for end in ends)


def test_garbage_is_no_iteration():
    chance = Random(4)
    finder = IterationFinder()

    ends = finder.take(chance.randbytes(64 * 20_000))

    assert ends == []


def test_half_a_record_is_refused():
    with pytest.raises(ValueError, match="65 bytes are no whole number of records of 64"):
        IterationFinder().take(bytes(65))
