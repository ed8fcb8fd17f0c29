"""Where the parts of `make gpu` run what is measured with and without MPS."""

import os
import shutil
import tempfile
import time
from pathlib import Path

from bench.gpu.harness.mps import control_daemon, without_mps
from bench.gpu.harness.part import GPU, SOFTWARE, Bench

from tandem import softgpu
from tandem.demo.place import Place


def bench(tmp_path, kind, where):
    place = Place(
        name="a GPU",
        kind=kind,
        mode="mps",  # a control daemon already runs
        clock="real",
        image=Path("image"),
        base_env={"CUDA_MPS_PIPE_DIRECTORY": "/run/mps", "HOME": "/root"},
    )
    return Bench(where=where, place=place, folder=tmp_path, keep=tmp_path, made=tmp_path)


def test_a_program_without_mps_does_not_find_the_one_that_runs(tmp_path):
    place = without_mps(bench(tmp_path, "nvidia", GPU)).place

    pipes = place.env(tmp_path)["CUDA_MPS_PIPE_DIRECTORY"]
    assert place.mode == "time"
    assert not Path(pipes).exists()
    assert place.env(tmp_path)["HOME"] == "/root"


def test_the_software_gpu_takes_turns_there(tmp_path):
    place = without_mps(bench(tmp_path, "software", SOFTWARE)).place

    assert place.mode == "time"
    assert place.env(tmp_path)["TANDEM_SOFTGPU_MODE"] == "time"


def test_a_control_daemon_of_our_own_is_ended_with_the_block(tmp_path):
    folder = Path(tempfile.mkdtemp(prefix="mps-"))  # pytest's names are too long for a socket
    software = softgpu.environment(os.environ, folder=folder / "gpu", profile="h200")

    with control_daemon(folder, software) as (found, why):
        assert why == ""
        assert found.control().servers() == []
    end = time.monotonic() + 20
    while found.control().servers() is not None:  # it confirms, and then exits
        assert time.monotonic() < end
    shutil.rmtree(folder)


def test_without_its_program_there_is_no_mps_and_a_reason(tmp_path):
    with control_daemon(tmp_path, {"PATH": str(tmp_path)}) as (found, why):
        assert found is None
        assert "is not installed" in why
