"""Torch computes the same with and without Tandem; on a GPU, only what `workloads` leaves out."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 200

pytestmark = [
    pytest.mark.timeout(2 * DEADLINE_S + 40),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]


def run(name, device, *, environ, prefix=(), **more):
    command = [*prefix, sys.executable, "-m", "bench.gpu.programs", name, device]
    child = subprocess.run(
        command,
        cwd=ROOT,
        env=environ | more,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout
    return child


def assert_same_under_tandem(name, device, daemon, **more):
    tandem = [sys.executable, "-m", "tandem.cli", "run", "--require", "--"]

    bare = run(name, device, environ=daemon, **more)
    managed = run(name, device, environ=daemon, prefix=tandem, **more)

    assert managed.stdout == bare.stdout
    assert "managed: False" in bare.stderr
    # Without driver calls there is nothing to manage.
    assert f"managed: {device == 'cuda'}" in managed.stderr


@pytest.mark.gpu
def test_streams_compute_the_same_on_the_gpu(daemon):
    assert_same_under_tandem("streams", "cuda", daemon)


@pytest.mark.gpu
@pytest.mark.parametrize("setting", ["", "expandable_segments:True", "backend:cudaMallocAsync"])
def test_every_allocator_works_on_the_gpu(setting, daemon):
    settings = {"PYTORCH_ALLOC_CONF": setting, "PYTORCH_CUDA_ALLOC_CONF": setting}
    assert_same_under_tandem("out_of_memory", "cuda", daemon, **settings)


@pytest.mark.gpu
def test_one_launch_at_a_time_works_on_the_gpu(daemon):
    assert_same_under_tandem("eager", "cuda", daemon, CUDA_LAUNCH_BLOCKING="1")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["eager", "loader_fork", "loader_spawn", "between_processes"],
)
def test_a_program_computes_the_same_on_the_cpu(name, daemon):
    assert_same_under_tandem(name, "cpu", daemon)


@pytest.mark.slow
def test_the_shim_alone_prints_nothing_and_changes_nothing(daemon):
    from tandem import _launch

    shim = Path(_launch.__file__).with_name("libtandem.so")
    environ = {k: v for k, v in os.environ.items() if not k.startswith("TANDEM_")}
    environ["PYTHONPATH"] = daemon["PYTHONPATH"]

    bare = run("loader_fork", "cpu", environ=environ)
    shimmed = run("loader_fork", "cpu", environ=environ, LD_PRELOAD=str(shim))

    assert (shimmed.stdout, shimmed.stderr) == (bare.stdout, bare.stderr)
