"""For a daemon that does not run as root, the helper does what takes root."""

import json
import os
import signal
import subprocess
import sys

import as_user
import pytest
from helped import DAEMON, OTHER, USER, Machine
from running_job import DEADLINE_S, until

from tandem import _mps

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes processes of others")


@pytest.fixture
def machine(image):
    machine = Machine(image)
    try:
        yield machine
    finally:
        machine.close()


def cut(machine, layout, how="--yes", uid=DAEMON):
    words = [sys.executable, "-m", "tandem.cli", "partition", "apply", how, "--mig", layout]
    done = subprocess.run(
        as_user.words(uid, *words),
        env=machine.place.env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def names(machine):
    return [gpu["name"] for gpu in json.loads(machine.place.tandem("gpus", "--json"))]


def test_a_gpu_is_cut_by_the_helper_and_without_it_the_reason_names_it(machine):
    machine.place.env["TANDEM_SOFTGPU_PROFILE"] = "h200"
    machine.start()

    without = cut(machine, "0=3g.71gb")
    machine.start_helper()
    with_it = cut(machine, "0=3g.71gb,2g.35gb")

    assert without[0] == 6
    assert "the driver lets only root do it" in without[1]
    assert "systemctl enable --now tandemd-helper.socket" in without[1]
    assert with_it[0] == 0, with_it[1]
    assert names(machine) == ["0:1", "0:2"]
    done = next(line for line in machine.said().splitlines() if "event=done" in line)
    assert "verb=cut-gpu" in done
    assert "profiles=3g.71gb,2g.35gb" in done
    assert f"uid={DAEMON}" in done


def test_what_the_driver_does_not_do_is_refused_as_without_a_helper(machine):
    machine.place.env["TANDEM_SOFTGPU_PROFILE"] = "h200"
    machine.start()
    machine.start_helper()
    job = machine.place.job("busy", uid=USER)

    refused = cut(machine, "0=3g.71gb")
    too_much = cut(machine, "0=7g.141gb,1g.18gb")

    assert refused[0] == 4
    assert f"is used by pid {job.pid} (job j-" in refused[1]
    assert too_much[0] == 5
    assert names(machine) == ["0"]


PIPES = "CUDA_MPS_PIPE_DIRECTORY"


def started_in_mode_mps(machine):
    config = machine.folder / "config.toml"
    config.write_text('[gpu."*"]\nmode = "mps"\n')
    machine.place.env["TANDEM_SOFTGPU_PROFILE"] = "h200"  # a profile that can be cut
    return machine.start("--config", str(config))


def control_of(machine):
    pipes = machine.helper_folder / "mps"
    return _mps.Control(pipes, environment=machine.place.env, timeout_s=DEADLINE_S)


def servers(machine):
    """Return the users of the MPS servers in the helper's folder, by pid; None without MPS."""
    found = control_of(machine).servers()
    return None if found is None else {server.pid: server.owner for server in found}


def clients(machine):
    control = control_of(machine)
    return {pid for server in control.servers() for pid in control.clients(server)}


def test_jobs_of_other_users_are_clients_of_mps_that_the_helper_runs(machine):
    machine.start_helper()
    started_in_mode_mps(machine)

    one = machine.place.job("one", "--sm", "25%", "--isolation", "mps", uid=USER)
    two = machine.place.job("two", "--isolation", "mps", uid=USER)

    assert one.do(f"os.environ['{PIPES}']") == str(machine.helper_folder / "mps")
    assert set(servers(machine).values()) == {USER}
    assert (one.do("compute()"), two.do("compute()")) == ([15], [15])
    assert clients(machine) == {one.pid, two.pid}
    other = machine.place.starting("other", uid=OTHER)  # in line behind the other user
    one.end(), two.end()
    assert other.ready().do("compute()") == [15]
    assert set(servers(machine).values()) == {OTHER}


def test_without_the_helper_mps_is_the_daemons_own_affair_and_the_log_says_how_to_have_it(machine):
    started_in_mode_mps(machine)

    said = (machine.folder / "log").read_text()
    assert "the daemon's own mps does not serve other users" in said
    assert "systemctl enable --now tandemd-helper.socket" in said
    assert servers(machine) is None


def test_mps_of_the_helper_ends_with_the_daemon_and_its_idle_servers_before_a_cut(machine):
    machine.start_helper()
    started_in_mode_mps(machine)
    job = machine.place.job("before", uid=USER)
    job.end()
    until(lambda: "in the way" not in cut(machine, "0=3g.71gb", "--dry-run")[1], what="it ended")

    done = cut(machine, "0=3g.71gb")
    assert done[0] == 0, done[1]
    assert servers(machine) == {}
    machine.place.stop_daemon()

    assert servers(machine) is None
    assert not (machine.helper_folder / "mps").exists()


def test_mps_with_clients_outlives_daemon_and_helper_and_the_next_ones_go_on_with_it(machine):
    machine.start_helper()
    started_in_mode_mps(machine)
    job = machine.place.job("stays", uid=USER)
    before = servers(machine)

    machine.place.stop_daemon()
    assert "leaving mps running" in (machine.folder / "log").read_text()
    machine.stop_helper()
    machine.start_helper()
    machine.place.start_daemon("--config", str(machine.folder / "config.toml"), uid=DAEMON)
    assert (servers(machine), job.do("compute()")) == (before, [15])
    job.end()
    until(lambda: not clients(machine), what="its client has gone")
    machine.stop_helper()

    assert servers(machine) is None


MIB = 1 << 20
SIZES = (10 * MIB, 33 * MIB)


def kept(machine):
    """A job that asks to be saved, of another user than the daemon's, and its addresses."""
    job = machine.place.job("kept", "--checkpoint", uid=USER)
    job.do("exec('import swapping', globals())")
    return job, job.do(f"swapping.keep(*{SIZES})")


def test_a_paused_job_of_another_user_is_saved_by_the_helper_and_comes_back(machine):
    machine.start()
    machine.start_helper()
    job, addresses = kept(machine)
    held = machine.place.used_bytes()
    with machine.place.client() as client:
        machine.place.tandem("pause", "kept")
        until(lambda: client.job("kept").state == "swapped", what="it was saved")
        assert held - machine.place.used_bytes() >= sum(SIZES)

        machine.place.tandem("resume", "kept")
        assert job.do(f"swapping.kept({addresses}, {SIZES})") == [True] * 2

    said = [line for line in machine.said().splitlines() if "verb=checkpoint" in line]
    calls = [line.partition("call=")[2].split()[0] for line in said]
    assert [call for call in calls if call != "GetState"] == [
        "Lock",
        "Checkpoint",
        "Restore",
        "Unlock",
    ]
    assert all(f"process={job.pid}" in line for line in said)


def test_a_helper_that_hangs_holds_nobody_up_but_what_is_asked_of_it(machine):
    machine.start()
    machine.start_helper()
    kept(machine)
    machine.helper.send_signal(signal.SIGSTOP)
    machine.place.tandem("pause", "kept")

    other = machine.place.job("other", uid=OTHER)
    assert other.do("compute()") == [15]
    assert "paused" in machine.place.tandem("ps")

    machine.helper.send_signal(signal.SIGCONT)
    with machine.place.client() as client:
        until(lambda: client.job("kept").state == "swapped", what="it was saved")


def test_without_the_helper_it_is_not_saved_and_with_one_it_is_and_outlives_the_daemon(machine):
    machine.start()
    job, addresses = kept(machine)
    machine.place.tandem("pause", "kept")

    told = "systemctl enable --now tandemd-helper.socket"
    until(lambda: told in machine.place.explain("kept"), what="it says what is missing")
    assert "CUDA_ERROR_NOT_PERMITTED" in machine.place.explain("kept")
    machine.place.tandem("resume", "kept")
    machine.start_helper()
    with machine.place.client() as client:
        machine.place.tandem("pause", "kept")
        until(lambda: client.job("kept").state == "swapped", what="it was saved")

    machine.place.stop_daemon()  # brings the job back

    assert job.do(f"swapping.kept({addresses}, {SIZES})") == [True] * 2
