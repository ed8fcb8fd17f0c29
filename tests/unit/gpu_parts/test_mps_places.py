"""Where the parts of `make gpu` run what is to be without MPS."""

from pathlib import Path

from bench.gpu.harness.mps import without_mps
from bench.gpu.harness.part import GPU, SOFTWARE, Bench

from tandem.demo.place import Place


def bench(tmp_path, kind, where):
    place = Place(
        name="a GPU",
        kind=kind,
        mode="mps",  # a control daemon runs already
        clock="real",
        image=Path("image"),
        base_env={"CUDA_MPS_PIPE_DIRECTORY": "/run/mps", "HOME": "/root"},
    )
    return Bench(where=where, place=place, folder=tmp_path, keep=tmp_path, work=None)


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
