"""MPS run by the helper, and the daemon's side of it; the program is the software GPU's."""

import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from mps.record import end_daemons
from mps_client import PATIENCE_S, client_of
from running_daemon import until
from structlog.testing import capture_logs

from tandem import _mps, softgpu
from tandem._mps import PIPES
from tandem.errors import NotFoundError, StateError, UnavailableError
from tandemd.edges.mps import LeftMps, MpsControl
from tandemd.edges.mps_helped import HelpedMps
from tandemd.edges.mps_own import LOG_FOLDER, SAID
from tandemd.helper.root_mps import RootMps
from tandemd.helper.verbs import Verbs
from tandemd.helper.wire import StartMps

UUID = "GPU-5f9b8cd0-1111-2222-3333-444455556666"


@pytest.fixture
def folder():
    made = Path(tempfile.mkdtemp(prefix="mps-"))  # pytest's names are too long for a socket
    (made / "gpu").mkdir()
    yield made
    end_daemons(made)
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def environment(folder):
    found = softgpu.environment(folder=folder / "gpu")
    return {name: value for name, value in found.items() if name != PIPES}


@pytest.fixture(autouse=True)
def _nobody_elses(monkeypatch, folder):
    """Make sure that no MPS runs where programs look for it by default."""
    monkeypatch.setattr(_mps, "USUAL_PIPES", folder / "usual")


@pytest.fixture
def root(folder, environment):
    made = RootMps(folder / "helper" / "mps", environment)
    yield made
    if made._started is not None and (child := made._started._own._child) is not None:
        child.kill()
        child.wait(PATIENCE_S)  # else it stays as an unreaped process


def asking(place, environment):
    return _mps.Control(place, environment=environment, timeout_s=PATIENCE_S)


def gone(place, environment):
    """Wait until the control daemon knows that the last client has gone."""
    control = asking(place, environment)
    clients_of = control.clients
    until(lambda: not any(map(clients_of, control.servers())), what="no client is left")


def test_one_is_started_once_kept_and_ended_with_all_that_it_left(root, folder):
    assert not root.look()

    place = root.start(())
    pid = _mps.control_pid(place)

    assert place == folder / "helper" / "mps"
    assert (root.start((UUID,)), _mps.control_pid(place)) == (place, pid)
    assert root.look()
    assert place.stat().st_mode & 0o777 == 0o755  # its clients are other users
    root.end()
    assert not root.look()
    assert not place.exists()
    root.end()  # ending what is not there does nothing


def test_what_has_clients_is_not_ended_and_the_next_helper_finds_it(root, folder, environment):
    place = root.start(())
    following = RootMps(folder / "helper" / "mps", environment)
    with client_of(place):
        with pytest.raises(StateError, match="mps keeps running: it has clients"):
            root.end()

        assert following.look()
        assert following.start(()) == place
        with pytest.raises(StateError, match="it has clients"):
            following.end()
    gone(place, environment)

    following.end()

    assert not following.look()


def test_servers_that_nobody_uses_are_ended_and_others_stay(root, environment):
    place = root.start(())
    control = asking(place, environment)
    with client_of(place):
        root.trim()
        assert len(control.servers()) == 1
    gone(place, environment)

    root.trim()

    assert control.servers() == []


def test_what_does_not_start_is_refused(folder, environment):
    root = RootMps(folder / "mps", environment | {"PATH": "/nowhere"})

    with capture_logs() as said, pytest.raises(StateError, match="the log of tandemd-helper"):
        root.start(())

    assert any("cannot be started" in line["event"] for line in said)


def test_what_it_says_is_cut_off_before_it_fills_the_memory(root, monkeypatch):
    said = root.start(()) / LOG_FOLDER / SAID
    assert said.stat().st_size
    monkeypatch.setattr("tandemd.helper.root_mps.MOST_SAID_BYTES", 1)

    assert root.look()

    assert said.stat().st_size == 0


def test_a_gpu_that_nvml_does_not_know_starts_nothing(root, monkeypatch):
    def refuse(_layouts, layout):
        raise NotFoundError(f"there is no gpu '{layout.gpu}'")

    monkeypatch.setattr("tandemd.helper.verbs.MigLayouts.__init__", lambda _self: None)
    monkeypatch.setattr("tandemd.helper.verbs.MigLayouts.uuid", refuse)

    with pytest.raises(NotFoundError, match=UUID):
        Verbs(None, root).do(StartMps(gpus=(UUID,)), ())

    assert not root.look()


class Asked:
    """The daemon's side of a helper, without a socket in between."""

    def __init__(self, root):
        self.is_there = True
        self.pipes = root._own.directory
        self.asked = []
        self._root = root

    def start_mps(self, gpus):
        self.asked.append(("start", *gpus))
        return self._root.start(())

    def trim_mps(self):
        self.asked.append(("trim",))
        self._root.trim()

    def end_mps(self):
        self.asked.append(("end",))
        self._root.end()


@pytest.fixture
def asked(root):
    return Asked(root)


@pytest.fixture
def daemon(folder, environment, asked):
    """The watcher of MPS in a daemon, and what it told jobs."""
    told = []
    control = MpsControl(
        own=folder / "own",
        environment=environment,
        gpus=(UUID,),
        tell=lambda what, _: told.append(what),
        uid=1000,
        look_s=0.02,
    )
    control.helped = HelpedMps(asked, environment)
    yield SimpleNamespace(control=control, told=told)
    control.stop()


def test_one_of_the_helper_goes_before_one_of_the_daemons_own(daemon, asked, folder):
    assert daemon.control.open()

    assert asked.asked == [("start", UUID)]
    assert (daemon.control.is_helped, daemon.control.is_own) == (True, False)
    assert daemon.control.variables() == {PIPES: str(asked.pipes)}
    assert not (folder / "own").exists()
    daemon.control.stop()
    assert asked.asked[1:] == [("end",)]
    assert not asked.pipes.exists()


def test_its_idle_servers_are_ended_by_the_helper(daemon, asked, environment):
    assert daemon.control.open()
    client_of(asked.pipes).close()
    gone(asked.pipes, environment)

    daemon.control.end_servers(idle := daemon.control.idle_servers())

    assert len(idle) == 1
    assert daemon.control.idle_servers() == frozenset()
    assert asked.asked[1:] == [("trim",)]


def test_what_happens_in_it_is_told_to_jobs(daemon, asked, environment):
    assert daemon.control.open()
    with client_of(asked.pipes):
        (server,) = asking(asked.pipes, environment).servers()
        assert daemon.control._look()
        os.kill(server.pid, 9)
        until(lambda: server.pid not in servers_of(asked.pipes, environment), what="it is gone")
        assert daemon.control._look()

    assert [one.partition(" has ended")[0] for one in daemon.told] == [
        f"the mps server {server.pid}"
    ]


def servers_of(place, environment):
    return [server.pid for server in asking(place, environment).servers()]


def test_one_of_the_helper_that_was_killed_is_had_anew(daemon, asked):
    assert daemon.control.open()
    pid = _mps.control_pid(asked.pipes)

    os.kill(pid, 9)
    until(lambda: not _mps.is_running(pid), what="it has ended")
    assert daemon.control._look()

    assert daemon.control.is_helped
    assert _mps.control_pid(asked.pipes) != pid
    assert daemon.told[-1].startswith("mps runs again")


def test_one_that_somebody_started_where_programs_look_is_used_and_is_not_the_helpers(
    daemon, asked, folder, environment
):
    theirs = RootMps(folder / "usual", environment)
    asked.start_mps = theirs.start  # started after the daemon looks and before the helper does

    assert daemon.control.open()

    assert daemon.control.variables() == {PIPES: str(folder / "usual")}
    assert not daemon.control.is_helped
    daemon.control.stop()
    assert theirs.look()
    theirs.end()
    assert not theirs.look()


@pytest.mark.parametrize("how", ["absent", "refuses"])
def test_without_the_helper_it_is_the_daemons_own(daemon, asked, folder, how, monkeypatch):
    if how == "absent":
        asked.is_there = False
    else:

        def refuse(_gpus):
            raise UnavailableError("it has ended")

        asked.start_mps = refuse

    with capture_logs() as said:
        assert daemon.control.open()

    assert daemon.control.is_own
    assert daemon.control.directory == folder / "own"
    first = said[0]
    assert "systemctl enable" in first["remedy"] if how == "absent" else first["reason"]


def test_what_has_clients_is_left_without_asking_and_ended_after_them(
    daemon, asked, folder, environment
):
    assert daemon.control.open()
    with client_of(asked.pipes):
        with capture_logs() as said:
            daemon.control.stop()
        assert [line["reason"] for line in said] == ["it has clients"]
        assert ("end",) not in asked.asked
    left = LeftMps(folder / "own", environment, helped=HelpedMps(asked, environment), look_s=0.02)
    assert left.is_there

    left.run()  # returns at once or after some looks

    assert not left.is_there
    assert not asked.pipes.exists()
