"""NVIDIA's MPS control daemon answers as was recorded; no card is needed."""

import json
import os

import pytest
from mps import record


@pytest.mark.parametrize("scene", record.SCENES, ids=lambda scene: scene.__name__)
def test_it_answers_as_it_was_recorded(scene, libraries, version, bare):
    program = libraries / "nvidia-cuda-mps-control"
    recorded = record.HERE / f"{version}.json"
    if not program.exists():
        pytest.skip(f"no nvidia-cuda-mps-control in {libraries}")
    if not recorded.exists():
        pytest.skip(f"of {version} nothing is recorded")
    if scene in record.OF_TWO_USERS and os.geteuid() != 0:
        pytest.skip("only root is another user, too")
    # The control daemon looks for its server on the PATH.
    environment = {**bare, "PATH": f"{libraries}:{bare['PATH']}"}

    said = json.loads(json.dumps(record.play(scene, program, environment)))  # JSON has no tuples

    assert said == json.loads(recorded.read_text())[scene.__name__]
