import pytest
from watched import SECOND, Watched, facts

from tandemd.core.model import JobClass, WaitReason
from tandemd.core.watchdog.rules.stall import Stall

GATE, MEMORY = frozenset({WaitReason.GATE}), frozenset({WaitReason.MEMORY})


@pytest.fixture
def trainer():
    """Ten iterations a second for twenty seconds: at that pace a minute's standstill is a stall."""
    return Watched(Stall()).goes_on(20, launches=500, iterations=10)


def test_a_job_that_goes_on_has_no_finding(trainer):
    assert trainer.find() is None


def test_work_that_the_gpu_does_not_complete_is_found_after_a_minute(trainer):
    began_ns = trainer.look.now_ns
    stuck = {"busy": True, "open_segments": 0}

    assert trainer.goes_on(59, now=stuck).find() is None
    found = trainer.goes_on(1).find()

    assert "completed none" in found.what
    assert "100 ms" in found.what
    assert found.since_ns == began_ns
    assert facts(found)["usual_iteration_ns"] == 100_000_000


def test_a_host_that_submits_nothing_is_told_apart(trainer):
    assert "host submits nothing" in trainer.goes_on(60).find().what


def test_long_iterations_are_waited_for(trainer):
    trainer.goes_on(1, now={"iteration_ns": 20 * SECOND})

    assert trainer.goes_on(198).find() is None
    assert trainer.goes_on(1).find() is not None


def test_neither_the_start_nor_a_pause_is_the_pace():
    slow_start = Watched(Stall()).goes_on(500).goes_on(5, iterations=10)
    paused = slow_start.goes_on(500).goes_on(5, iterations=10)

    assert 0 < paused.history.iteration_ns < SECOND


def test_work_that_drains_is_progress(trainer):
    draining = trainer.goes_on(1, now={"busy": True, "open_segments": 200})

    assert draining.goes_on(90, open_segments=-1).find() is None


def test_a_job_that_never_had_a_pace_is_left_alone():
    slow_start = Watched(Stall()).goes_on(5, launches=3).goes_on(40).goes_on(3, launches=10)

    assert slow_start.goes_on(200).find() is None


def test_launches_at_a_steady_pace_are_one_without_iterations_too():
    assert Watched(Stall()).goes_on(12, launches=9).goes_on(61).find() is not None


@pytest.mark.parametrize(
    "why",
    [
        {"paused": True},
        {"waiting": MEMORY},
        {"waiting": frozenset({WaitReason.PRESENCE})},
        {"waiting": frozenset({WaitReason.WINDOW})},
        {"job_class": JobClass.LATENCY},
    ],
)
def test_a_job_that_is_paused_or_waits_or_serves_nobody_is_not_stalled(trainer, why):
    assert trainer.goes_on(300, now=why).find() is None


def test_a_latency_job_whose_work_does_not_end_is_stalled(trainer):
    assert trainer.goes_on(60, now={"busy": True, "job_class": JobClass.LATENCY}).find()


def test_a_hold_beyond_its_bound_is_our_fault(trainer):
    since_ns = trainer.look.now_ns
    held = {"waiting": GATE, "gate_open": False, "held_since_ns": since_ns}

    assert trainer.goes_on(22, now=held).find() is None
    found = trainer.goes_on(1).find()

    assert "fault of Tandem" in found.why
    assert found.since_ns == since_ns


def test_so_is_a_wait_at_an_open_gate(trainer):
    waits = {"waiting": GATE, "waiting_since_ns": trainer.look.now_ns}

    assert "fault of Tandem" in trainer.goes_on(23, now=waits).find().why


def test_it_is_over_with_the_next_launch(trainer):
    trainer.goes_on(100)

    assert trainer.goes_on(1, launches=1).find(standing=True) is None
