"""The memory curve that an iteration's records yield."""

import struct

import pytest

from tandem import _native

RECORD = struct.Struct("<QBBHIQQQIIQQ")
LAUNCH, ALLOC, FREE, SYNC = 1, 4, 5, 6
MIB = 1 << 20


def launch(ns):
    return RECORD.pack(0, LAUNCH, 0, 0, 5, 0, 0xA, 0, 8, 32, ns, 0)


def memory(kind, size, held):
    """A record of an allocation or free of `size` that leaves `held` bytes."""
    halves = held & 0xFFFFFFFF, held >> 32
    return RECORD.pack(0, kind, 0, 0, 5, 0, 0x1000, size, *halves, 0, 0)


def curve(*records, most=64):
    return _native.memory_curve(b"".join(records), most=most)


def test_memory_is_held_at_the_progress_of_the_launches_before():
    steps, length_ns, launches, untimed = curve(
        launch(5),
        memory(ALLOC, 10, 8 << 32 | 10),
        launch(7),
        memory(ALLOC, 20, 8 << 32 | 30),
        launch(7),
        memory(FREE, 20, 8 << 32 | 10),
        launch(7),
        memory(FREE, 10, 8 << 32),
    )

    before = 8 << 32
    assert steps == [
        (0, before),
        (5, before + 10),
        (12, before + 30),
        (19, before + 10),
        (26, before),
    ]
    assert (length_ns, launches, untimed) == (26, 4, 0)


def test_between_two_launches_the_most_that_was_held_counts():
    steps, *_ = curve(
        launch(5),
        memory(ALLOC, 50, 60),
        memory(FREE, 50, 10),
        launch(5),
        launch(5),
        memory(ALLOC, 5, 15),
        memory(FREE, 5, 10),
    )

    assert steps == [(0, 10), (5, 60), (10, 15), (15, 10)]


def test_what_a_wait_gives_back_is_seen():
    steps, *_ = curve(memory(ALLOC, 50, 60), launch(5), memory(FREE, 50, 60), memory(SYNC, 0, 10))

    assert steps == [(0, 60), (5, 10)]


def test_a_long_curve_is_told_in_parts_and_never_lower():
    records = [launch(10)]
    for number in range(100):
        records += [memory(ALLOC, 1, 1 + number), launch(10)]
    records.append(memory(FREE, 100, 7))

    steps, length_ns, *_ = curve(*records, most=11)

    assert len(steps) <= 11
    assert steps[-1] == (length_ns, 7)
    for number in range(100):
        at = 10 * (number + 1)
        assert [held for start, held in steps if start <= at][-1] >= 1 + number


def test_launches_that_nobody_timed_are_counted():
    steps, length_ns, launches, untimed = curve(memory(ALLOC, 5, 5), launch(0), launch(3))

    assert (steps, length_ns, launches, untimed) == ([(0, 5)], 3, 2, 1)


def test_records_that_say_nothing_of_memory_make_no_curve():
    assert curve(launch(5)) == ([], 0, 1, 0)
    assert curve() == ([], 0, 0, 0)


def test_what_is_no_array_of_records_is_refused():
    with pytest.raises(ValueError, match="no multiple of 64"):
        _native.memory_curve(b"1", most=2)
    with pytest.raises(ValueError, match="less than 2"):
        _native.memory_curve(b"", most=1)
