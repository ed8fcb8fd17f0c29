"""`tandem softgpu`, as a person types it."""

import json
import subprocess
import sys

import pytest

from tandem import softgpu

CLI = [sys.executable, "-m", "tandem.cli", "softgpu"]


@pytest.fixture
def tandem(gpu):
    def run(*words):
        env = {k: v for k, v in gpu.env().items() if not k.startswith("TANDEM_SOFTGPU_")}
        del env["LD_LIBRARY_PATH"]
        env["PYTHONPATH"] = str(softgpu.LIBRARIES.parents[2])  # works where it is not installed too
        return subprocess.run(
            [*CLI, *words], env=env, capture_output=True, text=True, timeout=60, check=False
        )

    return run


def test_run_puts_a_command_on_the_software_gpu(tandem, tmp_path):
    program = (
        "from cuda.bindings import driver as cu; cu.cuInit(0); print(cu.cuDeviceGetName(9, 0))"
    )
    done = tandem("run", "--dir", str(tmp_path), "--", sys.executable, "-c", program)

    assert (done.returncode, done.stderr) == (0, "")
    assert "Tandem S" in done.stdout


def test_run_keeps_the_exit_code_and_says_when_there_is_no_program(tandem):
    assert tandem("run", "--", "sh", "-c", "exit 7").returncode == 7
    missing = tandem("run", "--", "no-such-program")
    assert missing.returncode == 127
    assert "no program 'no-such-program' on the PATH" in missing.stderr


def test_env_prints_what_a_shell_can_read(tandem, tmp_path):
    out = tandem("env", "--clock", "virtual", "--dir", str(tmp_path)).stdout

    assert "export TANDEM_SOFTGPU_CLOCK=virtual" in out
    assert f"export TANDEM_SOFTGPU_DIR={tmp_path}" in out


def test_status_shows_the_programs(tandem, gpu):
    child = gpu.start("gpu = Gpu(); print('ready', flush=True)\nwith outside(): sys.stdin.read()")
    assert child.stdout.readline() == "ready\n"

    plain = tandem("status", "--dir", str(gpu.folder)).stdout
    found = json.loads(tandem("status", "--json", "--dir", str(gpu.folder)).stdout)

    child.communicate("")
    assert f"pid {child.pid}" in plain
    assert [c["pid"] for c in found["clients"] if c["role"] == "worker"] == [child.pid]


def test_status_without_a_device_is_an_error_that_helps(tandem, tmp_path):
    done = tandem("status", "--dir", str(tmp_path / "empty"))

    assert done.returncode == 7
    assert "no software GPU runs in" in done.stderr


def test_an_unknown_profile_is_refused(tandem):
    done = tandem("run", "--profile", "h2000", "--", "true")

    assert done.returncode == 2
    assert "known are h200, a100, rtx4090, tiny" in done.stderr


def test_the_compiler_may_be_named_with_arguments(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "env g++")
    source = tmp_path / "nothing.cu"
    source.write_text("__global__ void nothing() {}\n")

    softgpu.compile_kernels(source, tmp_path / "nothing.so")

    assert (tmp_path / "nothing.so").is_file()
