"""When iterations are recorded to find out how jobs scale, and what the records show."""

import struct
from dataclasses import dataclass, replace
from unittest.mock import Mock

import pytest

from tandemd.core.model import Mix, Process, Usage
from tandemd.edges.worker import Worker
from tandemd.observers.scalings import ANEW_NS, RETRY_NS, Scalings, Wanted
from tandemd.observers.window_scaling import Recorded, UntoldError, tell_scaling

RECORD = struct.Struct("<QBBHIQQQIIQQ")
LAUNCH, SYNC, GRAPH, OF_STREAM = 1, 6, 13, 1
MS = 1_000_000
SMS = 8


def record(at_ns, kind, *, ns=0, blocks=0, stream=0x1000):
    low = OF_STREAM if kind == SYNC else 0
    return RECORD.pack(at_ns, kind, 1, 0, 5, stream, 0xA, 0, blocks, 1024, ns, 1 << 32 | low)


@dataclass(frozen=True, kw_only=True)
class Window(Recorded):
    """Stands for `_native.Window`."""

    busy_ns: int = MS  # the iteration itself is much longer
    shared_ns: int = 0


def recorded(begin_ms=1, length_ms=4, *, kind=LAUNCH, known_ms=4, iterations=1, shared_ms=0):
    """An iteration of one kernel with 80 blocks, of which an SM holds two at a time."""
    begin_ns, length_ns = begin_ms * MS, length_ms * MS
    return Window(
        begin_ns=begin_ns,
        end_ns=begin_ns + length_ns,
        iterations=iterations,
        lost=0,
        is_cut=False,
        shared_ns=round(shared_ms * MS),
        records=record(begin_ns, kind, ns=known_ms * MS, blocks=80)
        + record(begin_ns + length_ns, SYNC, ns=length_ns),
    )


class Poller:
    """Stands for `_native.Poller`: windows end when a test says so."""

    def __init__(self):
        self.asked, self.newest = 0, None

    def want_window(self, *, process_id):
        self.asked += 1

    def window(self, *, process_id):
        return self.newest

    def wake(self):
        pass


@pytest.fixture
def poller():
    return Poller()


@pytest.fixture
def scalings(poller):
    return Scalings(poller, Worker("test", at_once=True))


def wanted(sms=SMS, **usage):
    usage = Usage(process_id=1, iterations=3, **usage)
    process = Process(process_id=1, job_id=1, gpu=0, usage=usage)
    return Wanted(process=process, sms=sms, sm_count=SMS, has_own_sms=lambda: False)


def look(scalings, at_ms, one=None, *, goes_on=True):
    """Looks once; `goes_on`: the process iterates all the time."""
    one = one or wanted()
    if goes_on and one.process.usage.iterations:
        one.process.usage = replace(one.process.usage, iterations=at_ms)
    return list(scalings.look([one], at_ms * MS))


def test_an_iteration_tells_the_time_on_fewer_sms():
    curve = tell_scaling(recorded(), SMS, SMS)

    assert curve.at(8) == 4 * MS
    assert curve.at(4) == pytest.approx(8 * MS, rel=0.01)
    assert curve.at(1) == pytest.approx(32 * MS, rel=0.01)
    assert (curve.source, curve.gamma, curve.recorded_sms) == ("predicted", 0, 8)
    assert curve.held_sms == 8


def test_kernels_hold_as_many_sms_as_their_blocks_need():
    launch = record(MS, LAUNCH, ns=4 * MS, blocks=6)
    few = replace(recorded(), records=launch + recorded().records[len(launch) :])

    assert tell_scaling(few, SMS, SMS).held_sms == 3


def test_another_number_of_sms_is_a_probe_of_how_little_they_mean():
    curve = tell_scaling(recorded(length_ms=4), SMS, SMS, probes={2: 8 * MS, 8: 4 * MS})

    assert curve.source == "probed"
    assert curve.gamma == pytest.approx(0.5, abs=0.01)
    assert curve.at(2) == pytest.approx(8 * MS, rel=0.01)


def test_what_took_another_time_on_as_many_sms_before_was_other_work():
    probes = {2: 8 * MS, 8: 3 * MS}

    assert tell_scaling(recorded(length_ms=4), SMS, SMS, probes=probes).source == "predicted"


def test_what_would_be_the_same_with_any_gamma_tells_none():
    few = replace(recorded(), records=record(MS, LAUNCH, ns=4 * MS, blocks=2))

    assert tell_scaling(few, SMS, SMS, probes={4: 4 * MS}).source == "predicted"


def after_a_pause(pause_ms, *, begin_ms=1, sms=SMS):
    """Like `recorded`, in an iteration that began `pause_ms` before its first operation."""
    worked = recorded(begin_ms + pause_ms, 4 * SMS // sms, known_ms=4 * SMS // sms)
    return replace(worked, begin_ns=begin_ms * MS)


def test_pauses_between_requests_say_nothing_of_how_it_scales(scalings, poller):
    """A pause that varies would end every probe, or be taken for an effect of the SMs."""
    found = []
    for at_s, sms, pause_ms in ((0, 8, 40), (1, 2, 3), (2, 8, 9)):
        one = replace(wanted(sms=sms), serves=True)
        look(scalings, at_s * 1000 + 1, one)
        poller.newest = after_a_pause(pause_ms, begin_ms=at_s * 1000 + 2, sms=sms)
        (told,) = look(scalings, at_s * 1000 + 90, one)
        found.append((told.curve.source, told.curve.recorded_ns, told.curve.at(4)))

    assert [source for source, _, _ in found] == ["predicted", "probed", "probed"]
    assert [ns for _, ns, _ in found] == [4 * MS, 16 * MS, 4 * MS]
    assert [at_4 for _, _, at_4 in found] == pytest.approx([8 * MS] * 3, rel=0.01)


def test_records_with_and_without_pauses_are_not_compared(scalings, poller):
    look(scalings, 1)
    poller.newest = after_a_pause(40, begin_ms=3)
    look(scalings, 90)
    one = replace(wanted(sms=2), serves=True)  # by now it has an objective and other SMs
    look(scalings, 100, one)
    poller.newest = after_a_pause(40, begin_ms=101, sms=2)

    (told,) = look(scalings, 190, one)

    assert (told.curve.source, told.curve.recorded_ns) == ("predicted", 16 * MS)


def test_pauses_of_who_serves_nothing_count(scalings, poller):
    look(scalings, 1)
    poller.newest = after_a_pause(40, begin_ms=3)

    (told,) = look(scalings, 90)

    assert told.curve.recorded_ns == 44 * MS
    assert told.curve.at(4) == pytest.approx(48 * MS, rel=0.01)


def crowded(streams):
    """One kernel in each stream, all at once."""
    launches = (
        record(MS, LAUNCH, ns=MS, blocks=1, stream=stream) for stream in range(3, streams + 3)
    )
    return replace(recorded(length_ms=1), records=b"".join(launches))


@pytest.mark.parametrize(
    ("window", "why"),
    [
        (recorded(iterations=0), "none of its iterations was recorded completely"),
        (replace(recorded(), lost=1), "none of its iterations was recorded completely"),
        (replace(recorded(), is_cut=True), "none of its iterations was recorded completely"),
        (replace(recorded(), records=b""), "it has no kernels"),
        (recorded(kind=GRAPH), "100% of its GPU time is in graphs"),
        (crowded(33), "more than 32 of its kernels could run at a time"),
        (recorded(known_ms=1), "an iteration of 4 ms is reconstructed as taking 1 ms"),
    ],
)
def test_what_does_not_tell_says_why(window, why):
    with pytest.raises(UntoldError, match=why):
        tell_scaling(window, SMS, SMS)


def test_an_iteration_that_waited_for_something_tells_nothing():
    with pytest.raises(UntoldError, match="took 4 ms, where 2 ms are usual"):
        tell_scaling(replace(recorded(), usual_ns=2 * MS), SMS, SMS)
    assert tell_scaling(replace(recorded(), usual_ns=3 * MS), SMS, SMS).recorded_ns == 4 * MS


def test_operations_without_a_duration_are_not_taken_for_nothing():
    launches = b"".join(record(0, LAUNCH, ns=ms * MS, blocks=8) for ms in (4, 0))

    with pytest.raises(UntoldError, match="how long 1 of its operations take is not known"):
        tell_scaling(replace(recorded(), records=launches), SMS, SMS)


def test_a_process_is_recorded_once_in_a_while(scalings, poller):
    assert look(scalings, 1) == look(scalings, 2) == []
    assert poller.asked == 1
    poller.newest = recorded(begin_ms=3)

    (told,) = look(scalings, 8)

    assert (told.process_id, told.curve.recorded_ns, told.doubt) == (1, 4 * MS, "")
    look(scalings, 8 + ANEW_NS // MS - 1)
    assert poller.asked == 1
    look(scalings, 8 + ANEW_NS // MS)
    assert poller.asked == 2


def test_a_process_that_does_nothing_is_not_recorded_again(scalings, poller):
    look(scalings, 1, goes_on=False)
    poller.newest = recorded(begin_ms=3, iterations=0)

    (told,) = look(scalings, 8, goes_on=False)

    assert told.doubt == "none of its iterations was recorded completely"
    look(scalings, 8 + RETRY_NS // MS, goes_on=False)
    assert poller.asked == 1
    look(scalings, 9 + RETRY_NS // MS)
    assert poller.asked == 2


def test_a_record_at_most_of_each_process_waits_for_the_worker(poller):
    errands, anew_ms = [], ANEW_NS // MS
    scalings = Scalings(poller, Mock(do=errands.append))
    for round_ in range(1, 20):
        poller.newest = recorded(round_ * anew_ms - 5)
        look(scalings, round_ * anew_ms, wanted(sms=2))
    assert len(errands) == 1

    errands.pop()()
    (told,) = look(scalings, 20 * anew_ms, wanted(sms=5))
    look(scalings, 20 * anew_ms + 1, wanted(sms=5))  # a record on its present SMs is wanted at once
    poller.newest = recorded(20 * anew_ms + 2)
    look(scalings, 20 * anew_ms + 9, wanted(sms=5))

    assert told.curve.recorded_sms == 2
    assert len(errands) == 1


def test_a_record_that_cannot_be_read_does_not_end_it(scalings, poller):
    look(scalings, 1)
    poller.newest = replace(recorded(begin_ms=3), records=b"?")

    (told,) = look(scalings, 8)

    assert told.doubt == "its record could not be read"
    look(scalings, 8 + RETRY_NS // MS)
    assert poller.asked == 2


def test_other_work_makes_earlier_records_a_thing_of_the_past(scalings, poller):
    found = []
    for at_s, sms, length_ms in ((0, 8, 4), (1, 2, 8), (2, 8, 6), (3, 2, 24)):
        look(scalings, at_s * 1000 + 1, wanted(sms=sms))
        poller.newest = recorded(at_s * 1000 + 2, length_ms, known_ms=length_ms)
        (told,) = look(scalings, at_s * 1000 + 50, wanted(sms=sms))
        found.append((told.curve.source, round(told.curve.gamma, 1)))

    assert found == [("predicted", 0), ("probed", 0.5), ("predicted", 0), ("probed", 0)]


def test_nothing_is_recorded_without_iterations_or_without_knowing_the_sms(scalings, poller):
    look(scalings, 1, wanted(sms=0))
    idle = wanted()
    idle.process.usage = Usage(process_id=1)
    look(scalings, 2, idle)

    assert poller.asked == 0


def test_a_record_beside_others_is_told_only_if_they_had_other_sms(scalings, poller):
    look(scalings, 1)
    poller.newest = recorded(begin_ms=3, shared_ms=0.11)

    (told,) = look(scalings, 8)
    assert (told.curve, told.doubt) == (None, "others used its SMs while it was recorded")
    look(scalings, 8 + RETRY_NS // MS)
    poller.newest = recorded(begin_ms=8 + RETRY_NS // MS, shared_ms=1)
    (told,) = look(scalings, 20 + RETRY_NS // MS, replace(wanted(), has_own_sms=lambda: True))

    assert told.curve is not None


def test_a_record_from_before_it_was_asked_for_is_waited_out(scalings, poller):
    look(scalings, 5)
    poller.newest = recorded(begin_ms=2)  # began before that, ended after it

    assert look(scalings, 7) == look(scalings, 8) == []
    assert poller.asked == 2


def test_other_sms_are_recorded_at_once_and_make_a_probe(scalings, poller):
    look(scalings, 1)
    poller.newest = recorded(begin_ms=3)
    (first,) = look(scalings, 8)
    look(scalings, 9, wanted(sms=2))
    assert poller.asked == 2
    poller.newest = recorded(begin_ms=9, length_ms=8, known_ms=8)

    (second,) = look(scalings, 20, wanted(sms=2))

    assert first.curve.source == "predicted"
    assert second.curve.source == "probed"
    assert second.curve.gamma == pytest.approx(0.5, abs=0.01)
    assert second.curve.at(8) == pytest.approx(4 * MS, rel=0.01)


def test_times_of_the_sms_before_do_not_tell(scalings, poller):
    look(scalings, 1)
    look(scalings, 2, wanted(sms=2))
    poller.newest = recorded(begin_ms=3, length_ms=16, known_ms=4)

    (told,) = look(scalings, 20, wanted(sms=2))

    assert (told.curve, told.doubt) == (
        None,
        "an iteration of 16 ms is reconstructed as taking 4 ms",
    )


def test_what_its_kernels_are_bound_by_is_assumed_until_then(scalings, poller):
    one = wanted()
    one.process.mix = Mix(shares=(0.0, 0.5, 0.5, 0.0, 0.0), operations=9, untimed=0, at_ns=1)
    look(scalings, 1, one)
    poller.newest = recorded(begin_ms=3)

    (told,) = look(scalings, 8, one)

    assert told.curve.gamma == 0.5


def test_a_process_that_left_is_forgotten(scalings, poller):
    look(scalings, 1)
    poller.newest = recorded(begin_ms=3)

    assert list(scalings.look([], 8 * MS)) == []
