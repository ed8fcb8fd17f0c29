"""The software GPU's control program against what NVIDIA's answered, scene by scene."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from mps import record

from tandem import softgpu

CONTROL = softgpu.DEVICE_PROGRAM.parent / "nvidia-cuda-mps-control"
LIKE = "555.58.02"  # the newest recorded version
WITHOUT_DEVICE = {"TANDEM_SOFTGPU_BIN": "/nowhere"}


def recorded(version):
    return json.loads((Path(record.__file__).parent / f"{version}.json").read_text())


def plays(scene, program, environment):
    """Return what was said as JSON has it, which has no tuples."""
    return json.loads(json.dumps(record.play(scene, program, environment)))


@pytest.fixture
def environment():
    folder = Path(tempfile.mkdtemp(prefix="gpu-"))
    yield softgpu.environment(folder=folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("scene", record.SCENES, ids=lambda scene: scene.__name__)
def test_it_answers_as_nvidias_program_does(scene, environment):
    if scene in record.OF_TWO_USERS and os.geteuid() != 0:
        pytest.skip("only root is another user, too")
    if scene is record.has_servers_that_fail:
        environment |= WITHOUT_DEVICE

    assert plays(scene, CONTROL, environment) == recorded(LIKE)[scene.__name__]
