"""Random lives of processes whose memory is moved, on a device that sometimes refuses memory."""

import json

import pytest
from swap_soak import run

pytest.importorskip("cuda.bindings")
pytestmark = pytest.mark.slow

SEQUENCES = 300  # 10,000 in `make soak`
FOUND = 3
HAPPENS = (
    *("reached", "no host room", "refused", "waited", "launches", "killed", "left"),
    *("filed", "too late for a file", "lost", "given back", "not given back"),
    *("opened", "used by another", "gone", "outlived", "openers killed"),
    *("graphs run", "freed beside a capture", "captured on the way back", "went after a capture"),
)


def test_every_byte_of_random_lives_is_what_a_model_says(tmp_path):
    child = run(tmp_path, SEQUENCES, 1)

    assert child.returncode == 0, child.stdout + child.stderr
    seen = json.loads(child.stdout)
    assert seen["sequences"] == SEQUENCES
    for what in HAPPENS:
        assert seen[what] > 0, f"nothing was {what}"


def test_one_byte_that_changes_on_the_host_is_found(tmp_path):
    child = run(tmp_path, 5, 1, "spoil")

    assert child.returncode == FOUND, child.stdout + child.stderr
