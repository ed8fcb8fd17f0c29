"""When an iteration's memory curve is reported, and when it is asked for again."""

from types import SimpleNamespace

import pytest

from tandemd.core.curves.curves import Curve
from tandemd.core.model import Process, Usage
from tandemd.observers import curves


def process(number):
    usage = Usage(process_id=number, iterations=1)
    return Process(process_id=number, job_id=number, gpu=0, usage=usage)


def test_a_record_that_cannot_be_read_is_looked_at_once_and_keeps_no_other_waiting(monkeypatch):
    windows = {number: SimpleNamespace(end_ns=number) for number in (1, 2)}
    curve = Curve((0,), (1,), 1)

    def curve_of(window):
        if window is windows[1]:
            raise OverflowError
        return curve

    monkeypatch.setattr(curves, "curve_of", curve_of)
    poller = SimpleNamespace(
        window=lambda *, process_id: windows[process_id], want_window=lambda *, process_id: None
    )
    watched = curves.Curves(poller)
    both = [process(1), process(2)]

    with pytest.raises(OverflowError):
        list(watched.look(both, 1))

    assert [told.process_id for told in watched.look(both, 2)] == [2]
