"""Telemetry is drained once and passed to every recorder."""

from types import SimpleNamespace

import pytest

from tandem.trace.records import RECORD
from tandemd.observers import taps
from tandemd.observers.taps import Taken, Taps
from tandemd.observers.trace_events import KINDS


@pytest.fixture
def telemetry():
    """What the poller hands out next, and what it was asked for."""
    return SimpleNamespace(new=[], asked=[])


@pytest.fixture
def shared(telemetry):
    def drain(kinds):
        telemetry.asked.append(kinds)
        new, telemetry.new = telemetry.new, []
        return new

    return Taps(drain)


def test_each_is_told_of_what_comes_while_it_records(telemetry, shared):
    telemetry.new = [(1, b"before")]
    with shared.open() as first:
        telemetry.new = [(1, b"a")]
        with shared.open() as second:
            telemetry.new = [(2, b"b")]

            assert second().records == [(2, b"b")]
            assert first().records == [(1, b"a"), (2, b"b")]
            assert (first().records, second().records) == ([], [])


def test_nothing_is_kept_once_nobody_records(telemetry, shared):
    with shared.open(), shared.open():
        pass

    assert telemetry.asked == [KINDS, KINDS, 0]


def test_of_what_somebody_does_not_take_the_newest_stays(telemetry, shared, monkeypatch):
    record = bytes(RECORD.size)
    monkeypatch.setattr(taps, "MOST_BYTES", 5 * RECORD.size)
    with shared.open() as slow, shared.open() as quick:
        for process_id in (7, 7, 8, 9):
            telemetry.new = [(process_id, record * 2)]
            assert quick() == Taken([(process_id, record * 2)], {})

        assert slow() == Taken([(8, record * 2), (9, record * 2)], {7: 4})
        assert slow() == Taken([], {})
