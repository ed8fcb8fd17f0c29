"""What takes root is done by the helper for a daemon that is not root's."""

import json
import os
import subprocess
import sys

import as_user
import pytest
from helped import DAEMON, USER, Machine
from running_job import DEADLINE_S, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes processes of others")


@pytest.fixture
def machine(image):
    machine = Machine(image)
    try:
        yield machine
    finally:
        machine.close()


def cut(machine, layout, uid=DAEMON):
    words = [sys.executable, "-m", "tandem.cli", "partition", "apply", "--yes", "--mig", layout]
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
    assert "the driver lets root alone do it" in without[1]
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


MIB = 1 << 20
SIZES = (10 * MIB, 33 * MIB)


def kept(machine):
    """A job of another user than the daemon's that asks to be saved, and where its memory is."""
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

    machine.place.stop_daemon()  # which brings it back

    assert job.do(f"swapping.kept({addresses}, {SIZES})") == [True] * 2
