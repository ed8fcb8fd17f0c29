"""The control program of the software GPU against what NVIDIA's said, scene by scene."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from mps import record

from tandem import softgpu

CONTROL = softgpu.DEVICE_PROGRAM.parent / "nvidia-cuda-mps-control"
LIKE = "555.58.02"  # the newest one that was recorded
WITHOUT_DEVICE = {"TANDEM_SOFTGPU_BIN": "/nowhere"}
REAL = "TANDEM_NVIDIA_MPS"  # names NVIDIA's program


def recorded(version):
    return json.loads((Path(record.__file__).parent / f"{version}.json").read_text())


def plays(scene, program, environment):
    """As JSON, which knows no tuples."""
    return json.loads(json.dumps(record.play(scene, program, environment)))


@pytest.fixture
def environment():
    folder = Path(tempfile.mkdtemp(prefix="gpu-"))
    yield softgpu.environment(folder=folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("scene", record.SCENES, ids=lambda scene: scene.__name__)
def test_it_answers_as_nvidias_program_does(scene, environment):
    if scene is record.answers_others and os.geteuid() != 0:
        pytest.skip("only root is another user, too")
    if scene is record.has_servers_that_fail:
        environment |= WITHOUT_DEVICE

    assert plays(scene, CONTROL, environment) == recorded(LIKE)[scene.__name__]


@pytest.mark.skipif(REAL not in os.environ, reason=f"{REAL} names no program of NVIDIA's")
@pytest.mark.parametrize("scene", record.SCENES, ids=lambda scene: scene.__name__)
def test_nvidias_program_answers_as_it_was_recorded(scene):
    said = plays(scene, Path(os.environ[REAL]), os.environ)

    assert said in [recorded(path.stem)[scene.__name__] for path in sorted(here().glob("*.json"))]


def here():
    return Path(record.__file__).parent
