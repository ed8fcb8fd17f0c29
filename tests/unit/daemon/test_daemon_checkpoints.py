"""What is asked of the driver to save a process and to bring it back, and what it may answer."""

import pytest

from tandemd.edges.checkpoints import CALLS, PREFIX, Checkpointer

PID = 4711
SAVED = [("Lock", PID), ("Checkpoint", PID)]


class Driver:
    """Answers success unless told otherwise, and keeps what it was asked."""

    def __init__(self, *, state=0, **answers):
        self.state = state
        self.answers = {name: list(each) for name, each in answers.items()}
        self.asked = []

    def __getitem__(self, symbol):
        name = symbol.removeprefix(PREFIX)
        assert name in CALLS

        def call(pid, argument):
            self.asked.append((name, pid))
            if name == "GetState":
                argument._obj.value = self.state
            return self.answers[name].pop(0) if self.answers.get(name) else 0

        return call

    def cuInit(self, _flags):  # noqa: N802
        self.asked.append("cuInit")

    def cuGetErrorName(self, status, out):  # noqa: N802
        out._obj.value = {2: b"CUDA_ERROR_OUT_OF_MEMORY"}.get(status)
        return 0 if out._obj.value else 1


def moved(driver, *, away, at_once=True):
    """What was told, once the errand was done."""
    told, errands = [], []
    checkpointer = Checkpointer(post=errands.append, at_once=at_once, load=lambda: driver)
    checkpointer.move(PID, away=away, tell=told.append)
    checkpointer.close(20)
    for errand in errands:
        errand()
    return told


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "on its thread"])
def test_a_process_is_locked_and_then_saved(at_once):
    driver = Driver()

    assert moved(driver, away=True, at_once=at_once) == [""]
    assert driver.asked == SAVED


def test_what_cannot_be_saved_is_let_go_on():
    driver = Driver(Checkpoint=[801])

    assert moved(driver, away=True) == ["cuCheckpointProcessCheckpoint answers error 801"]
    assert driver.asked == [*SAVED, ("Unlock", PID)]


def test_what_cannot_be_locked_is_left_alone():
    driver = Driver(Lock=[600])

    assert moved(driver, away=True) == ["cuCheckpointProcessLock answers error 600"]
    assert driver.asked == SAVED[:1]


@pytest.mark.parametrize(
    ("state", "calls"),
    [(0, []), (1, ["Unlock"]), (2, ["Restore", "Unlock"])],
    ids=["running", "locked", "saved"],
)
def test_only_what_was_saved_is_brought_back(state, calls):
    driver = Driver(state=state)

    assert moved(driver, away=False) == [""]
    assert driver.asked == [(name, PID) for name in ("GetState", *calls)]


def test_a_process_without_room_stays_saved():
    driver = Driver(state=2, Restore=[2])

    (problem,) = moved(driver, away=False)
    assert problem == "cuCheckpointProcessRestore answers CUDA_ERROR_OUT_OF_MEMORY"
    assert ("Unlock", PID) not in driver.asked


def test_a_process_that_the_driver_has_lost_is_said_to_be():
    (problem,) = moved(Driver(state=3), away=False)

    assert problem == "the driver failed at it, and says that the process is lost"


def test_a_driver_that_wants_to_be_initialised_is():
    driver = Driver(Lock=[3])

    assert moved(driver, away=True) == [""]
    assert driver.asked == [SAVED[0], "cuInit", *SAVED]


def test_without_the_calls_nothing_is_saved_and_nothing_needs_to_come_back():
    told = []

    def missing():
        raise OSError("libcuda.so.1: cannot open shared object file")

    checkpointer = Checkpointer(post=lambda errand: errand(), at_once=True, load=missing)
    for away in (True, False):
        checkpointer.move(PID, away=away, tell=told.append)

    assert told == ["this driver has no checkpoints; 570 and newer have", ""]
