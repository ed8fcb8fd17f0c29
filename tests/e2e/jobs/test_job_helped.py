"""What takes root is done by the helper for a daemon that is not root's."""

import json
import os
import subprocess
import sys

import as_user
import pytest
from helped import DAEMON, USER, Machine
from running_job import DEADLINE_S

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
