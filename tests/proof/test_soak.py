"""Random programs on the machine's own driver, and what is kept of one that differs there."""

import math
import random
import tempfile
import time
from contextlib import closing

import proof_stage
import pytest
import soak
from proof_generator import build, random_codes
from proof_program import program_of
from proof_stage import Stage, software_image

from tandem import _paths

HOW = {"tidily": True, "tame": True}


@pytest.fixture
def drawn():
    codes, _ = random_codes(random.Random("1-1"))
    return codes


@pytest.fixture
def always_differs(monkeypatch):
    monkeypatch.setattr(soak, "compare", lambda _stage, _program: ["step 1: 0 | 1"])


def reported(path, drawn, *, give_up):
    soak.report(None, path, drawn, HOW, ["step 9: 0 | 2"], give_up)
    return program_of(path.read_text()), path.with_suffix(".txt").read_text()


@pytest.mark.usefixtures("always_differs")
def test_it_is_kept_made_shorter(drawn, tmp_path):
    program, words = reported(tmp_path / "failed/1.json", drawn, give_up=math.inf)

    assert len(program.steps) < len(build(drawn, **HOW).steps)
    assert words == f"{program}\nstep 1: 0 | 1\n"


@pytest.mark.usefixtures("always_differs")
def test_it_is_kept_whole_where_no_time_is_left(drawn, tmp_path):
    program, _ = reported(tmp_path / "failed/1.json", drawn, give_up=time.monotonic())

    assert program.text() == build(drawn, **HOW).text()


def test_it_is_kept_before_it_is_made_shorter(drawn, tmp_path, monkeypatch):
    def interrupted(_stage, _program):
        raise KeyboardInterrupt

    monkeypatch.setattr(soak, "compare", interrupted)
    path = tmp_path / "failed/1.json"

    with pytest.raises(KeyboardInterrupt):
        reported(path, drawn, give_up=math.inf)

    assert program_of(path.read_text()).text() == build(drawn, **HOW).text()
    assert "step 9: 0 | 2" in path.with_suffix(".txt").read_text()


def test_on_the_machines_own_driver_and_clock_nothing_differs(made, monkeypatch):
    """As on a GPU, whose clock began long before the programs."""
    monkeypatch.setattr(proof_stage, "probe", lambda _env: {"capability": "90"})
    monkeypatch.setattr(
        proof_stage, "gpu_image", lambda folder, source, **_: software_image(folder, source)
    )
    driver = _paths.SHIM.parent / "softgpu" / "lib"
    with tempfile.TemporaryDirectory(prefix="tandem-") as folder:
        monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
        monkeypatch.setenv(
            "XDG_RUNTIME_DIR", folder
        )  # the device of a program without a daemon is there
        with closing(Stage(on_gpu=True, made=made)) as stage:
            for number in range(3):
                drawn, tidily = random_codes(random.Random(f"1-{number}"))
                program = build(drawn, tidily=tidily, tame=True)
                bare, managed = stage.bare(program), stage.managed(program)
                assert managed.watched.is_attached
                assert managed.watched.records
                assert soak.differences(program, bare, managed) == []
