"""Driver calls that save a process and bring it back, and the answers they may get."""

import os
import queue
import socket
import subprocess
import sys
import threading
from typing import get_args

import pytest

from tandem.errors import StateError
from tandemd.edges.attach import Connection
from tandemd.edges.checkpoint_driver import PREFIX, Call, CheckpointDriver
from tandemd.edges.checkpoints import MOST_AT_ONCE, Checkpointer, Target
from tandemd.edges.peers import Peer, open_pidfd, start_time

DEADLINE_S = 30
PID, UID, OTHER = 4711, os.geteuid(), os.geteuid() + 1
SAVED = [("GetState", PID), ("Lock", PID), ("Checkpoint", PID)]
LIVES = Target(pid=PID, is_there=lambda: True, uid=UID)


class Driver:
    """Answers success unless told otherwise, and records its calls."""

    def __init__(self, *, state=0, **answers):
        self.state = state
        self.answers = {name: list(each) for name, each in answers.items()}
        self.asked = []

    def __getitem__(self, symbol):
        name = symbol.removeprefix(PREFIX)
        assert name in get_args(Call)

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


def moved(driver, *aways, target=LIVES, at_once=True):
    """Make one move after the other and return what was told of each."""
    told, posted = [], queue.SimpleQueue()
    checkpointer = Checkpointer(
        post=posted.put, at_once=at_once, driver=CheckpointDriver(lambda: driver)
    )
    for away in aways:
        checkpointer.move(target, away=away, tell=told.append)
        posted.get(timeout=DEADLINE_S)()
    return told


class Gpu:
    """A driver whose processes are saved and come back; a call may hang, or fail at first.

    `stuck`: calls, by name and process, that end when their event is set. `refused`: how often a
    process finds no room to come back.
    """

    def __init__(self, *, saved=(), stuck=None, refused=None):
        self.states = dict.fromkeys(saved, 2)
        self.stuck = stuck or {}
        self.refused = dict(refused or {})
        self.begun = queue.SimpleQueue()

    def __getitem__(self, symbol):
        name = symbol.removeprefix(PREFIX)

        def call(pid, argument):
            if name == "GetState":
                argument._obj.value = self.states.get(pid, 0)
                return 0
            self.begun.put((name, pid))
            if event := self.stuck.get((name, pid)):
                assert event.wait(DEADLINE_S)
            if name == "Restore" and self.refused.get(pid, 0):
                self.refused[pid] -= 1
                return 2
            self.states[pid] = {"Lock": 1, "Checkpoint": 2, "Restore": 1, "Unlock": 0}[name]
            return 0

        return call

    def cuGetErrorName(self, _status, out):  # noqa: N802
        out._obj.value = b"CUDA_ERROR_OUT_OF_MEMORY"

    def wait_for(self, call):
        while self.begun.get(timeout=DEADLINE_S) != call:
            pass


def lives(pid):
    return Target(pid=pid, is_there=lambda: True, uid=UID)


def on(gpu, post=lambda errand: errand()):
    return Checkpointer(post=post, at_once=False, driver=CheckpointDriver(lambda: gpu))


@pytest.fixture
def unstuck():
    """An event for calls that must not end before the test does."""
    event = threading.Event()
    yield event
    event.set()


def test_a_save_that_does_not_end_keeps_nobody_from_coming_back(unstuck):
    gpu, told = Gpu(saved=[2], stuck={("Checkpoint", 1): unstuck}), queue.SimpleQueue()
    checkpointer = on(gpu)
    checkpointer.move(lives(1), away=True, tell=lambda problem: told.put((1, problem)))
    gpu.wait_for(("Checkpoint", 1))

    checkpointer.move(lives(2), away=False, tell=lambda problem: told.put((2, problem)))

    assert told.get(timeout=DEADLINE_S) == (2, "")
    unstuck.set()
    assert told.get(timeout=DEADLINE_S) == (1, "")


def test_everybody_comes_back_however_many_and_however_often_it_takes():
    ended = Target(pid=99, is_there=lambda: False, uid=UID)
    targets = [lives(pid) for pid in range(1, MOST_AT_ONCE + 4)]
    gpu = Gpu(saved=[target.pid for target in targets], refused={1: 1, 2: 2})

    assert on(gpu).bring_back([ended, *targets], timeout_s=DEADLINE_S) == {}
    assert not any(gpu.states.values())


def test_nothing_else_is_done_with_a_process_that_is_being_saved(unstuck):
    gpu, told = Gpu(stuck={("Checkpoint", 1): unstuck}), queue.SimpleQueue()
    checkpointer, one = on(gpu), lives(1)
    checkpointer.move(one, away=True, tell=lambda _: None)
    gpu.wait_for(("Checkpoint", 1))

    checkpointer.move(one, away=False, tell=told.put)

    assert told.get(timeout=DEADLINE_S) == "the driver is still moving it"
    assert gpu.begun.empty()


def test_what_is_being_saved_comes_back_once_it_is(unstuck):
    gpu, looks = Gpu(stuck={("Checkpoint", 1): unstuck}), []

    def is_there():
        looks.append(1)
        if len(looks) == 2:  # asked whether another try is worthwhile
            unstuck.set()
        return True

    one = Target(pid=1, is_there=is_there, uid=UID)
    checkpointer = on(gpu)
    checkpointer.move(one, away=True, tell=lambda _: None)
    gpu.wait_for(("Checkpoint", 1))
    looks.clear()

    assert checkpointer.bring_back([one], timeout_s=DEADLINE_S) == {}
    assert gpu.states == {1: 0}


def test_who_stays_saved_is_told_with_what_the_driver_says(unstuck):
    no_room, hangs = lives(1), lives(2)
    gpu = Gpu(saved=[1, 2], stuck={("Restore", 2): unstuck}, refused={1: 1 << 30})
    is_over = threading.Event()

    def wait_enough():
        tries = 0
        while tries < 2:
            tries += gpu.begun.get(timeout=DEADLINE_S) == ("Restore", 1)
        is_over.set()

    thread = threading.Thread(target=wait_enough)
    thread.start()
    staying = on(gpu).bring_back([no_room, hangs], timeout_s=DEADLINE_S, is_over=is_over)
    thread.join()

    refusal = "cuCheckpointProcessRestore answers CUDA_ERROR_OUT_OF_MEMORY"
    assert staying == {no_room: refusal, hangs: "the driver has not answered"}


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "on its thread"])
def test_a_process_is_locked_and_then_saved(at_once):
    driver = Driver()

    assert moved(driver, True, at_once=at_once) == [""]
    assert driver.asked == SAVED


def test_what_cannot_be_saved_is_let_go_on():
    driver = Driver(Checkpoint=[801])

    assert moved(driver, True) == ["cuCheckpointProcessCheckpoint answers error 801"]
    assert driver.asked == [*SAVED, ("Unlock", PID)]


def test_what_can_neither_be_saved_nor_let_go_on_is_let_go_on_later():
    driver = Driver(Checkpoint=[801], Unlock=[999], state=1)

    assert moved(driver, True, False) == ["cuCheckpointProcessUnlock answers error 999", ""]
    unlock = ("Unlock", PID)
    assert driver.asked == [*SAVED[:1], *SAVED[2:], unlock, ("GetState", PID), unlock]


def test_what_cannot_be_locked_is_left_alone():
    driver = Driver(Lock=[600])

    assert moved(driver, True) == ["cuCheckpointProcessLock answers error 600"]
    assert driver.asked == SAVED[:2]


@pytest.mark.parametrize(("state", "calls"), [(1, SAVED[2:]), (2, [])], ids=["locked", "saved"])
def test_what_an_earlier_daemon_did_is_not_done_again(state, calls):
    driver = Driver(state=state)

    assert moved(driver, True) == [""]
    assert driver.asked == [*SAVED[:1], *calls]


@pytest.mark.parametrize(
    ("state", "calls"),
    [(0, []), (1, ["Unlock"]), (2, ["Restore", "Unlock"])],
    ids=["running", "locked", "saved"],
)
def test_only_what_was_saved_is_brought_back(state, calls):
    driver = Driver(state=state)

    assert moved(driver, False) == [""]
    assert driver.asked == [(name, PID) for name in ("GetState", *calls)]


def test_a_process_without_room_stays_saved():
    driver = Driver(state=2, Restore=[2])

    (problem,) = moved(driver, False)
    assert problem == "cuCheckpointProcessRestore answers CUDA_ERROR_OUT_OF_MEMORY"
    assert ("Unlock", PID) not in driver.asked


def test_a_process_that_the_driver_has_lost_is_said_to_be():
    lost = "the driver failed to move it, and says that the process is lost"

    assert moved(Driver(state=3), True, False) == [lost] * 2


def test_a_saved_process_is_not_said_to_be_back_before_it_is():
    driver = Driver(state=2, GetState=[0, 1, 0])

    told = moved(driver, True, False, False)
    assert told == ["", "cuCheckpointProcessGetState answers error 1", ""]
    assert driver.asked[-2:] == [("Restore", PID), ("Unlock", PID)]


def test_a_process_that_nobody_has_saved_need_not_be_known_to_the_driver():
    assert moved(Driver(GetState=[1, 1]), False) == [""]
    # The same holds for one that has been brought back.
    assert moved(Driver(state=2, GetState=[0, 0, 1]), True, False, False) == [""] * 3


@pytest.mark.parametrize("calls", range(4))
def test_no_other_process_is_taken_for_one_that_has_ended(calls):
    lives = iter([True] * calls)
    driver = Driver(Checkpoint=[801])

    (problem,) = moved(
        driver, True, target=Target(pid=PID, is_there=lambda: next(lives, False), uid=UID)
    )

    assert problem == "the process has ended"
    assert driver.asked == SAVED[:calls]


@pytest.mark.parametrize("by_pidfd", [True, False], ids=["pidfd", "start time"])
def test_a_connection_knows_for_good_whether_its_process_lives(by_pidfd):
    ours, theirs = socket.socketpair()
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as process:
        pid = process.pid
        known = {"pidfd": open_pidfd(pid)} if by_pidfd else {"started": start_time(pid)}
        peer = Peer(pid=pid, uid=0)
        connection = Connection(number=1, peer=peer, socket=ours, **known)
        assert connection.is_there()
    ours.close()
    theirs.close()

    assert not connection.is_there()


def test_a_driver_that_wants_to_be_initialised_is():
    driver = Driver(GetState=[3])

    assert moved(driver, True) == [""]
    assert driver.asked == [SAVED[0], "cuInit", *SAVED]


def test_without_the_calls_nothing_is_saved_and_nothing_needs_to_come_back():
    told = []

    def missing():
        raise OSError("libcuda.so.1: cannot open shared object file")

    checkpointer = Checkpointer(
        post=lambda errand: errand(), at_once=True, driver=CheckpointDriver(missing)
    )
    for away in (True, False):
        checkpointer.move(LIVES, away=away, tell=told.append)

    assert told == ["this driver does not support checkpoints; 570 and newer do", ""]


class Helping:
    """The daemon's side of a helper; it makes the calls itself."""

    def __init__(self, driver, *, is_there=True, problem=""):
        self._driver = CheckpointDriver(lambda: driver)
        self.is_there = is_there
        self.problem = problem
        self.asked = []

    def checkpoint(self, call, pidfd):
        self.asked.append((call, pidfd))
        if self.problem:
            raise StateError(self.problem)
        return self._driver.call(call, PID, is_there=lambda: True)


def moved_with(helper, driver, target):
    told = []
    checkpointer = Checkpointer(
        post=lambda errand: errand(),
        at_once=True,
        driver=CheckpointDriver(lambda: driver),
        helper=helper,
    )
    checkpointer.move(target, away=True, tell=told.append)
    return told


@pytest.fixture
def of_another():
    """A process of another user, as the daemon knows it."""
    return Target(pid=PID, is_there=lambda: True, uid=OTHER, pidfd=open_pidfd(os.getpid()))


def test_the_helper_makes_the_calls_for_processes_of_other_users(of_another):
    refusing, driver = Driver(GetState=[800]), Driver()
    helper = Helping(driver)

    assert moved_with(helper, refusing, of_another) == [""]

    assert (refusing.asked, driver.asked) == ([], SAVED)
    assert {pidfd for _, pidfd in helper.asked} == {of_another.pidfd.fileno()}


def test_for_its_own_users_the_daemon_makes_them_itself():
    driver, helper = Driver(), Helping(Driver())

    assert moved_with(helper, driver, LIVES) == [""]

    assert (driver.asked, helper.asked) == (SAVED, [])


def test_what_the_helper_says_is_why_it_could_not_be():
    target = Target(pid=PID, is_there=lambda: True, uid=OTHER, pidfd=open_pidfd(os.getpid()))

    assert moved_with(Helping(Driver(), problem="it is lost"), Driver(), target) == ["it is lost"]


def test_without_a_helper_the_reason_says_how_to_have_one(of_another):
    helper = Helping(Driver(), is_there=False)

    (problem,) = moved_with(helper, Driver(GetState=[800]), of_another)

    assert problem.startswith(
        "cuCheckpointProcessGetState answers error 800; the process belongs to"
    )
    assert "systemctl enable --now tandemd-helper.socket" in problem
    assert helper.asked == []
