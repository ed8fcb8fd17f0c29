"""The main job on a real GPU; `make gpu` measures its speed, here it must only be right."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def report():
    command = [sys.executable, "-m", "tandem.cli", "demo", "--json", "--seconds", "4"]
    child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=300)
    assert child.returncode == 0
    return json.loads(child.stdout)


def test_the_demo_takes_the_gpu(report):
    assert report["device"]["kind"] == "nvidia"
    assert report["device"]["clock"] == "real"


@pytest.mark.parametrize("scenario", ["alone", "unmanaged", "tandem"])
def test_every_result_is_right_on_the_gpu(report, scenario):
    figures = report["scenarios"][scenario]

    assert figures["server"]["errors"] == 0
    assert figures["server"]["requests"] > 10
    assert all(trainer["checksum_ok"] for trainer in figures["trainers"])
