"""When work is recorded to find what bounds it, and what the recordings show."""

from types import SimpleNamespace

import pytest

from tandem import _native
from tandemd.core.model import Bound, Process, Usage
from tandemd.observers.bounds import ANEW_NS, RETRY_NS, Bounds

MS = 1_000_000


class Poller:
    """Stands for `_native.Poller`: samples and windows end when a test says so."""

    def __init__(self):
        self.begun = 0
        self.sample = None

    def begin_sample(self, **_):
        self.begun += 1
        return self.begun

    def take_sample(self, *, process_id, number):
        assert number == self.begun
        taken, self.sample = self.sample, None
        return taken

    def end(self, begin_ns, end_ns, shared_ns=0):
        window = SimpleNamespace(begin_ns=begin_ns, end_ns=end_ns, busy_ns=MS, shared_ns=shared_ns)
        self.sample = SimpleNamespace(number=self.begun, window=window)


@pytest.fixture
def shares(monkeypatch):
    """The recordings' result: 20 operations bound by memory, unless a test changes it."""
    told = dict.fromkeys(_native.OperationClass, 0.0) | {_native.OperationClass.MEMORY: 1.0}
    found = [told, 20, 1]
    monkeypatch.setattr(_native, "bounds_of", lambda *_, **__: tuple(found))
    return found


@pytest.fixture
def process():
    return Process(process_id=1, job_id=1, gpu=0, usage=Usage(process_id=1, busy=True))


def look(bounds, process, at_ms, *, alone=True):
    return list(bounds.look([(process, alone)], at_ms * MS))


def test_a_recording_says_what_dominates_and_is_taken_anew_after_a_while(process, shares):
    poller = Poller()
    bounds = Bounds(poller)
    assert look(bounds, process, 1) == look(bounds, process, 2) == []

    poller.end(3 * MS, 5 * MS)
    (found,) = look(bounds, process, 6)

    assert (found.process_id, found.mix.bound, found.mix.at_ns) == (1, Bound.MEMORY, 5 * MS)
    assert (found.mix.operations, found.mix.untimed) == (20, 1)
    look(bounds, process, 6 + ANEW_NS // MS - 1)
    assert poller.begun == 1
    look(bounds, process, 6 + ANEW_NS // MS)
    assert poller.begun == 2


def test_nothing_is_recorded_beside_others_or_without_work(process, shares):
    poller = Poller()

    look(Bounds(poller), process, 1, alone=False)
    process.usage = Usage(process_id=1)
    look(Bounds(poller), process, 2)

    assert poller.begun == 0


@pytest.mark.parametrize("flaw", ["beside others", "nothing in it"])
def test_what_does_not_tell_is_left_out_and_soon_tried_again(process, shares, flaw):
    poller = Poller()
    bounds = Bounds(poller)
    look(bounds, process, 1)
    shares[1] = 0 if flaw == "nothing in it" else 20
    shared_ns = MS // 9 if flaw == "beside others" else MS // 10  # of 1 ms on the GPU
    poller.end(3 * MS, 5 * MS, shared_ns=shared_ns)

    assert look(bounds, process, 6) == []
    look(bounds, process, 6 + RETRY_NS // MS)

    assert poller.begun == 2


def test_a_recording_with_much_untimed_is_soon_tried_again_and_displaces_nothing(process, shares):
    poller = Poller()
    bounds = Bounds(poller)
    look(bounds, process, 1)
    shares[2] = 3  # of 20 operations
    poller.end(3 * MS, 5 * MS)
    (found,) = look(bounds, process, 6)
    assert (found.mix.bound, found.mix.claims) == (Bound.UNKNOWN, False)

    shares[2] = 2
    look(bounds, process, 6 + RETRY_NS // MS)
    poller.end(1007 * MS, 1008 * MS)
    (found,) = look(bounds, process, 1009)
    assert found.mix.bound is Bound.MEMORY
    process.mix = found.mix

    shares[2] = 3
    look(bounds, process, 1009 + ANEW_NS // MS)
    poller.end(11010 * MS, 11011 * MS)
    assert look(bounds, process, 11012) == []
    look(bounds, process, 11012 + RETRY_NS // MS)
    assert poller.begun == 4


def test_a_recording_that_never_ends_is_given_up(process, shares):
    poller = Poller()
    bounds = Bounds(poller)

    for at_ms in (1, 6002, 7002, 7003):
        assert look(bounds, process, at_ms) == []

    assert poller.begun == 2


def test_a_process_that_left_or_is_sampled_for_others_is_no_error(process, shares):
    for error in (KeyError, RuntimeError):
        poller = Poller()

        def refuse(error=error, **_):
            raise error

        poller.begin_sample = refuse
        assert look(Bounds(poller), process, 1) == []
