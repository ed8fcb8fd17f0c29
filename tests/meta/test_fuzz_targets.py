"""Each fuzz target can start: it has a program, and inputs to start from."""

import runpy
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[1] / "fuzz"
TARGETS = runpy.run_path(str(FUZZ / "run.py"))["TARGETS"]


@pytest.mark.parametrize("target", TARGETS)
def test_a_fuzz_target_has_a_program_and_inputs_to_start_from(target):
    assert (FUZZ / f"{target}_fuzzer.cpp").is_file()
    assert any((FUZZ / "corpus" / target).iterdir())
