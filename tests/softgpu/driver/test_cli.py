"""`tandem softgpu`, as a person types it."""

import json
import signal
import subprocess
import sys

import pytest

from tandem import softgpu

CLI = [sys.executable, "-m", "tandem.cli", "softgpu"]


def own_env(gpu):
    env = {k: v for k, v in gpu.env().items() if not k.startswith("TANDEM_SOFTGPU_")}
    del env["LD_LIBRARY_PATH"]
    env["PYTHONPATH"] = str(softgpu.LIBRARIES.parents[2])  # works where it is not installed too
    return env


def tandem_start(gpu, *words):
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*CLI, *words],
        env=own_env(gpu),
        stdout=pipe,
        stderr=pipe,
        text=True,
        # A shell's background jobs ignore Ctrl-C, and what they start inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.fixture
def tandem(gpu):
    def run(*words):
        return subprocess.run(
            [*CLI, *words],
            env=own_env(gpu),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
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
    assert any(line.split()[:1] == [str(child.pid)] for line in plain.splitlines())
    assert [c["pid"] for c in found["clients"] if c["role"] == "worker"] == [child.pid]


@pytest.mark.slow
def test_watching_the_status_prints_a_block_a_round_and_ends_with_the_device(gpu):
    program = "gpu = Gpu(); print('ready', flush=True)\nwith outside(): sys.stdin.read()"
    child = gpu.start(program, TANDEM_SOFTGPU_LINGER_MS="300")
    assert child.stdout.readline() == "ready\n"
    words = ["status", "--watch", "0.1", "--dir", str(gpu.folder)]
    watch = tandem_start(gpu, *words)
    lines = [watch.stdout.readline() for _ in range(12)]

    child.communicate("")
    rest, error = watch.communicate(timeout=30)

    assert sum(line.startswith("tiny, virtual clock") for line in lines) >= 2
    assert any(line.split()[:1] == [str(child.pid)] for line in lines)
    assert (watch.returncode, error) == (0, "the device process has ended\n")
    assert "no programs" in rest


def test_an_interrupted_watch_ends_quietly(gpu):
    child = gpu.start("gpu = Gpu(); print('ready', flush=True)\nwith outside(): sys.stdin.read()")
    assert child.stdout.readline() == "ready\n"
    watch = tandem_start(gpu, "status", "--watch", "--json", "--dir", str(gpu.folder))
    assert json.loads(watch.stdout.readline())["profile"] == "tiny"

    watch.send_signal(signal.SIGINT)
    _, error = watch.communicate(timeout=30)

    child.communicate("")
    assert (watch.returncode, error.strip()) == (130, "")


def test_joining_a_device_that_is_not_as_asked_for_is_said(tandem, gpu):
    child = gpu.start("gpu = Gpu(); print('ready', flush=True)\nwith outside(): sys.stdin.read()")
    assert child.stdout.readline() == "ready\n"

    same = tandem("run", "--profile", "tiny", "--dir", str(gpu.folder), "--", "true")
    other = tandem("run", "--profile", "a100", "--dir", str(gpu.folder), "--", "true")

    child.communicate("")
    assert (same.returncode, same.stderr) == (0, "")
    assert other.returncode == 0
    assert "warning: joining the device" in other.stderr
    assert "profile tiny, not a100" in other.stderr
    assert other.stderr.count("\n") == 1


def test_a_misspelt_option_of_run_is_no_command(tandem):
    done = tandem("run", "--profil", "tiny", "--", "true")

    assert done.returncode == 2
    assert "error: No such option '--profil'. Did you mean '--profile'?" in done.stderr


def test_a_run_becomes_a_report(tandem, gpu, tmp_path):
    gpu.run("gpu = Gpu(); ok(cu.cuMemFree(ok(cu.cuMemAlloc(1 << 20))))")

    done = tandem("report", str(gpu.folder), str(tmp_path / "r.html"), "--json")

    assert done.returncode == 0
    assert json.loads(done.stdout)["output"].endswith("r.html")
    assert "Tandem Software GPU (tiny), 8 SMs, 1 GiB" in (tmp_path / "r.html").read_text()


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
