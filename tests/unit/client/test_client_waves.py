"""Waves take turns phase by phase and leave nobody waiting."""

import threading

import pytest

from tandem.waves import Waves

DEADLINE_S = 30


class Stream:
    """Stands for torch's stream; records what it was told."""

    def __init__(self):
        self.told = []

    def record_event(self):
        event = object()
        self.told.append(("record", event))
        return event

    def wait_event(self, event):
        self.told.append(("wait", event))


def test_a_pass_waits_on_the_gpu_for_the_one_before_of_its_kind():
    waves, streams = Waves(2), (Stream(), Stream())

    for wave, stream in zip((waves[0], waves[1]), streams, strict=True):
        with wave.forward(stream):
            pass
    with waves[0].backward(streams[0]):
        pass

    (record, first), (record_again, _) = streams[0].told
    assert (record, record_again) == ("record", "record")
    assert streams[1].told[0] == ("wait", first)


def test_a_wave_waits_for_the_pass_of_the_other():
    waves, order, stream = Waves(2), [], Stream()

    def second():
        with waves[1].forward(stream):
            order.append(1)

    thread = threading.Thread(target=second)
    thread.start()
    with waves[0].forward(stream):
        order.append(0)
    thread.join(DEADLINE_S)

    assert order == [0, 1]


def test_whoever_leaves_keeps_nobody_waiting():
    waves, stream = Waves(3), Stream()

    with pytest.raises(ZeroDivisionError), waves[0], waves[0].forward(stream):
        _ = 1 / 0
    waves[1].close()
    for _ in range(2):
        with waves[2].forward(stream), waves[2].backward(stream):
            pass

    assert [what for what, _ in stream.told] == ["record", "record", "wait", "wait"] + [
        "record"
    ] * 2


def test_streams_of_two_kinds_are_refused():
    waves = Waves(2)
    pytest.importorskip("cuda.bindings")
    with waves[0].forward(Stream()):
        pass

    with pytest.raises(TypeError, match="streams of one kind"), waves[1].forward(0):
        pass


def test_there_is_a_wave_at_least():
    with pytest.raises(ValueError, match="cannot be 0 waves"):
        Waves(0)
    assert len(Waves(1)) == 1
