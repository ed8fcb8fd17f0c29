"""How the daemon handles MPS being away for a moment: its wiring, with simulated edges."""

import os
from types import SimpleNamespace

import pytest

from tandem import _mps
from tandem._mps import PROGRAM
from tandem._set_probe import CONTROL
from tandemd.config.config import Config, load
from tandemd.core.model import Split
from tandemd.core.scheduler import Scheduler
from tandemd.daemon import Daemon
from tandemd.edges.gpus import Gpu
from tandemd.edges.mps_own import STARTED
from tandemd.edges.set_proof import Proof
from tandemd.remembered import Remembered

GPU = Gpu(index=0, uuid=bytes(16), product_name="NVIDIA H200", sm_count=132)
SETS = Split(groups=16, group_sms=8)


class Mps:
    """MPS, whose control daemon is there or not."""

    def __init__(self, place):
        self.directory = self.place = place

    def variables(self):
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.directory)} if self.directory else {}

    def goes(self):
        self.directory = None

    def comes_back(self):
        self.directory = self.place


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "nothing-here"))
    config = tmp_path / "config.toml"
    config.write_text('[gpu."*"]\nmode = "mps+green"\n')
    made = Daemon(config=load(config), directory=None, soft_clock=False)
    made._inventory = SimpleNamespace(gpus=lambda: [GPU])
    made._why_not = {}
    made._mps = Mps(tmp_path)
    made._remembered = Remembered(tmp_path / "state.db", at_once=True)
    made._proofs = SimpleNamespace(
        want=lambda gpus, again: None, of=lambda gpus: {gpu.index: Proof(SETS) for gpu in gpus}
    )
    scheduler = Scheduler(made._with_sets(made._options(made._config)))
    made._loop = SimpleNamespace(
        scheduler=scheduler,
        clock=SimpleNamespace(now_ns=lambda: 1),
        handle=scheduler.handle,
        perform=lambda action: None,
        post=lambda errand: errand(),
    )
    return made


def test_sets_are_back_with_mps(daemon):
    core = daemon._loop.scheduler
    assert core.options.splits == {0: SETS}
    daemon._mps.goes()
    daemon._tell_of_sets()  # the proof of another GPU has finished
    assert core.options.splits == {}

    daemon._mps.comes_back()
    daemon._tell_of_mps("mps runs again", 0.0)

    assert core.options.splits == {0: SETS}


def control_says(place, servers, monkeypatch, clients=None):
    """Installs a control daemon that lists these servers, and their clients unless None."""
    told = "exit 1" if clients is None else f"echo {clients}"
    (place / PROGRAM).write_text(
        f"#!/bin/sh\nwhile read -r command; do case $command in\n"
        f"get_server_list) echo {servers};;\nget_client_list*) {told};;\n"
        "get_default_active_thread_percentage) echo 100.0;;\nesac; done\n"
    )
    (place / PROGRAM).chmod(0o755)
    os.mkfifo(place / "control")
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")


def test_a_proof_has_mps_or_none_is_made(daemon, monkeypatch):
    place = str(daemon._mps.directory)
    control_says(daemon._mps.directory, "", monkeypatch)
    environment = daemon._environment_of_proof(GPU)
    assert (environment["CUDA_MPS_PIPE_DIRECTORY"], environment[CONTROL]) == (place, place)

    daemon._mps.goes()

    assert daemon._environment_of_proof(GPU) == "mps is not ready"


@pytest.mark.parametrize("clients", ["77", "", None])
def test_while_others_have_work_in_mps_no_proof_is_made(daemon, monkeypatch, clients):
    monkeypatch.setattr(_mps.Server, "owner", 1001)
    control_says(daemon._mps.directory, "4711", monkeypatch, clients=clients)
    if clients is None:
        monkeypatch.setattr("tandemd.daemon.PROOF_ANSWER_S", 0.5)

    found = daemon._environment_of_proof(GPU)

    assert (found == "the running mps serves uid 1001 now") is (clients != "")


def test_a_proof_is_kept_for_the_next_daemon(daemon, tmp_path):
    after = Remembered(tmp_path / "state.db", at_once=True)

    assert after.split_of(GPU) == SETS


OTHER = Gpu(index=1, uuid=bytes([1] * 16), product_name="NVIDIA H200", sm_count=132)


def test_one_that_comes_beside_ours_where_programs_look_is_that_of_gpus_in_mode_auto(
    daemon, tmp_path, monkeypatch
):
    daemon._inventory = SimpleNamespace(gpus=lambda: [GPU, OTHER])
    path = tmp_path / "config.toml"
    path.write_text('[gpu.0]\nmode = "mps"\n')
    daemon._config = config = load(path)
    ours = daemon._mps.variables()

    def surroundings():
        daemon._loop.scheduler.change_options(daemon._options(config), now_ns=1)
        return [daemon._surroundings(os.geteuid(), frozenset({gpu})) for gpu in (0, 1)]

    assert daemon._mps_gpus(config) == {0}
    assert surroundings() == [ours, {}]
    (tmp_path / "nothing-here").mkdir()
    os.mkfifo(tmp_path / "nothing-here" / "control")
    (tmp_path / PROGRAM).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert daemon._mps_gpus(config) == {0, 1}
    assert surroundings() == [ours, {}]  # the programs of GPU 1 find it by themselves
    assert daemon._watched_gpus() == {0}
    daemon._mps.goes()
    assert daemon._mps_gpus(config) == {1}
    assert daemon._watched_gpus() == {0}


@pytest.mark.parametrize("named", [True, False])
def test_one_that_was_left_is_ended_where_another_one_is_used(daemon, tmp_path, monkeypatch, named):
    used = daemon._mps.directory
    control_says(used, "", monkeypatch)
    monkeypatch.setattr(_mps, "USUAL_PIPES", used)
    monkeypatch.delenv(_mps.PIPES)
    ours = tmp_path / "mps"
    ours.mkdir()
    if named:
        monkeypatch.setenv(_mps.PIPES, str(used))
    for place in (ours, used):
        (place / STARTED).write_text("4711")
    monkeypatch.setattr("tandemd.edges.mps_own.is_running", lambda pid: pid == 4711)
    daemon._config, spawned = Config(), []
    daemon._directory = SimpleNamespace(path=tmp_path)
    daemon._spawn = lambda name, target: spawned.append(name)

    assert daemon._open_mps().directory == used

    assert spawned == ([] if named else ["left mps"])  # the named one is the one in use


def test_jobs_of_a_user_whom_mps_does_not_serve_have_none_of_its_variables(daemon, monkeypatch):
    os.mkfifo(daemon._mps.directory / "control")
    monkeypatch.setattr(_mps, "owner_of", lambda place: 1001)

    for_its_user, for_another = (daemon._surroundings(uid, frozenset({0})) for uid in (1001, 1002))

    assert for_its_user == daemon._mps.variables()
    assert for_another == {}
    assert daemon._unserved(1001, frozenset({0})) == ""
    assert daemon._unserved(1002, frozenset({0})) == (
        "the running mps is of uid 1001 and serves no other: the job takes turns with it"
    )
