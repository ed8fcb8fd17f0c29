"""When the daemon proves that sets of SMs are disjoint, and when it does so again."""

import threading
from types import SimpleNamespace

import pytest
import structlog

from tandemd.core.model import Split
from tandemd.edges.set_proof import EndedError, Proof, SetProofs

SETS = Proof(Split(groups=16, group_sms=8))
SHARED = Proof(None, "sets share SMs")
SILENT = Proof(None, "no answer", is_final=False)
FIRST, SECOND = (SimpleNamespace(index=i, uuid_text=f"GPU-{i}") for i in (0, 1))
PATIENCE_S = 20


class Pauses(threading.Condition):
    """A condition whose waits return at once and advance its clock by their timeout."""

    def __init__(self):
        super().__init__()
        self.now_s = 100.0
        self.noted_s = []

    def wait(self, timeout=None):
        if timeout is None:  # nothing is left to do
            raise EndedError
        self.noted_s.append(timeout)
        self.now_s += timeout
        return True


def proofs(*answers, at_once=False, environments=()):
    """Proofs with these answers in order; also their pauses, what was told, and who was asked."""
    first = list(environments)
    pauses, told, asked, left = Pauses(), [], [], list(answers)

    def ask(environment):
        asked.append(environment["CUDA_VISIBLE_DEVICES"])
        if not left:
            raise EndedError
        return left.pop(0)

    made = SetProofs(
        environment=lambda _: first.pop(0) if first else {"WHERE": "mps"},
        tell=lambda: told.append(made.of([FIRST, SECOND])),
        ask=ask,
        at_once=at_once,
        now_s=lambda: pauses.now_s,
    )
    made._changed = pauses
    return made, pauses, told, asked


def test_nobody_waits_for_a_proof():
    answers, begun = threading.Event(), threading.Event()

    def ask(_):
        begun.set()
        answers.wait(PATIENCE_S)
        return SETS

    told = threading.Event()
    made = SetProofs(environment=lambda _: {}, tell=told.set, ask=ask, at_once=False)
    thread = threading.Thread(target=made.run)
    thread.start()

    made.want([FIRST])

    assert made.of([FIRST, SECOND])[0].is_under_way
    assert begun.wait(PATIENCE_S)
    told.clear()
    answers.set()
    assert told.wait(PATIENCE_S)
    assert made.of([FIRST]) == {0: SETS}
    made.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_who_does_not_answer_is_asked_again_and_said_to_be_while_it_is():
    made, pauses, told, asked = proofs(SILENT, SILENT, SETS)
    made.want([FIRST])

    made.run()

    assert pauses.noted_s == [10.0, 20.0]
    assert asked == ["GPU-0"] * 3
    steps = ["under way" if one[0].is_under_way else one[0].problem or "sets" for one in told]
    assert steps == ["under way", "no answer"] * 2 + ["under way", "sets"]


def test_it_is_asked_ever_more_rarely():
    made, pauses, _, _ = proofs(*[SILENT] * 9)
    made.want([FIRST])

    made.run()

    assert pauses.noted_s == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0, 600.0]


def test_what_the_driver_has_answered_stands():
    made, pauses, _, asked = proofs(SHARED, SETS)
    made.want([FIRST, SECOND])

    made.run()
    made.want([FIRST, SECOND], again=True)
    made.run()

    assert (asked, pauses.noted_s) == (["GPU-0", "GPU-1"], [])
    assert made.of([FIRST, SECOND]) == {0: SHARED, 1: SETS}


def test_who_has_not_answered_is_asked_at_once_when_the_configuration_is_read_again():
    made, pauses, _, asked = proofs(SILENT)
    made.want([FIRST])
    made.run()
    assert asked == ["GPU-0"] * 2  # the second time after a pause
    pauses.noted_s.clear()

    made.want([FIRST])
    assert not pauses.noted_s
    made.want([FIRST], again=True)
    made.run()

    assert pauses.noted_s == []
    assert asked == ["GPU-0"] * 3


def test_on_the_virtual_clock_it_is_known_at_once_and_asked_once():
    made, _, told, asked = proofs(SILENT, SETS, at_once=True)

    made.want([FIRST])
    made.want([FIRST])
    assert (made.of([FIRST]), asked) == ({0: SILENT}, ["GPU-0"])

    made.want([FIRST], again=True)
    assert made.of([FIRST]) == {0: SETS}
    assert told == []


def test_two_gpus_are_asked_one_after_the_other_in_their_order():
    made, _, told, asked = proofs(SETS, SILENT, SETS)
    made.want([FIRST, SECOND])

    made.run()

    assert asked == ["GPU-0", "GPU-1", "GPU-1"]
    assert told[-1] == {0: SETS, 1: SETS}


def test_who_is_not_wanted_any_more_is_not_asked_again():
    made, pauses, _, asked = proofs(SILENT)
    made.want([FIRST])
    made.run()
    assert asked == ["GPU-0"] * 2

    made.want([])
    made.run()

    assert (asked[2:], pauses.noted_s) == ([], [10.0])


def test_what_was_proved_stands_when_it_is_wanted_again():
    made, _, _, asked = proofs(SETS)
    made.want([FIRST])
    made.run()

    made.want([])
    made.want([FIRST])
    made.run()

    assert (made.of([FIRST]), asked) == ({0: SETS}, ["GPU-0"])


@pytest.mark.parametrize("still_wanted", [True, False])
def test_that_there_are_no_sets_is_said_where_they_are_wanted(still_wanted):
    def ask(_):
        made.want([FIRST] if still_wanted else [])
        return SHARED

    made = SetProofs(environment=lambda _: {}, tell=lambda: None, ask=ask, at_once=False)
    made._changed = Pauses()
    made.want([FIRST])

    with structlog.testing.capture_logs() as logs:
        made.run()

    assert [line["gpu"] for line in logs] == [0] * still_wanted


def test_what_was_proved_before_is_not_tried_again():
    asked = []
    made = SetProofs(
        environment=lambda _: {},
        tell=pytest.fail,
        ask=lambda environment: asked.append(environment["CUDA_VISIBLE_DEVICES"]) or SHARED,
        at_once=True,
        known=lambda gpu: SETS.split if gpu is FIRST else None,
    )

    made.want([FIRST, SECOND])

    assert made.of([FIRST, SECOND]) == {0: SETS, 1: SHARED}
    assert asked == ["GPU-1"]


def test_nothing_is_tried_while_there_is_a_reason_not_to():
    made, pauses, told, asked = proofs(SETS, environments=["mps is not ready"])
    made.want([FIRST])

    made.run()

    assert told[1][0].problem == "mps is not ready"
    assert pauses.noted_s == [10.0]
    assert (made.of([FIRST]), asked) == ({0: SETS}, ["GPU-0"])
