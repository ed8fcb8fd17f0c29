"""`tandem softgpu`, as a user types it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tandem import softgpu
from tandem.errors import UsageError
from tandem.softgpu._device import pid_of

CLI = [sys.executable, "-m", "tandem.cli", "softgpu"]


def own_env(gpu):
    env = {k: v for k, v in gpu.env().items() if not k.startswith("TANDEM_SOFTGPU_")}
    del env["LD_LIBRARY_PATH"]
    env["PYTHONPATH"] = str(softgpu.LIBRARIES.parents[2])  # also works if it is not installed
    return env


def tandem_start(gpu, *words):
    pipe = subprocess.PIPE
    return subprocess.Popen([*CLI, *words], env=own_env(gpu), stdout=pipe, stderr=pipe, text=True)


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
    assert "command 'no-such-program' not found" in missing.stderr


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
    child = gpu.start(program, TANDEM_SOFTGPU_LINGER_MS="3600000")
    assert child.stdout.readline() == "ready\n"
    words = ["status", "--watch", "0.1", "--dir", str(gpu.folder)]
    watch = tandem_start(gpu, *words)
    lines = [watch.stdout.readline() for _ in range(12)]

    child.communicate("")
    assert any("no programs" in line for line in watch.stdout)  # read up to the first such line
    os.kill(pid_of(gpu.folder), signal.SIGUSR1)  # to stop lingering
    _, error = watch.communicate(timeout=30)

    assert sum(line.startswith("tiny, virtual clock") for line in lines) >= 2
    assert any(line.split()[:1] == [str(child.pid)] for line in lines)
    assert (watch.returncode, error) == (0, "the device process has ended\n")


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
    asked = ("--profile", "a100", "--devices", "2", "--mig", "1g.10gb", "--faults", "oom@1")
    other = tandem("run", *asked, "--timeline", "t", "--dir", str(gpu.folder), "--", "true")
    shell = tandem("env", "--profile", "a100", "--dir", str(gpu.folder))

    child.communicate("")
    assert (same.returncode, same.stderr) == (0, "")
    assert other.returncode == 0
    assert "warning: joining the device" in other.stderr
    for difference in ("profile tiny, not a100", "devices 1, not 2", "mig none, not 1g.10gb"):
        assert difference in other.stderr
    assert "faults none, not oom@1" in other.stderr
    assert f"timeline {gpu.folder}/timeline.jsonl, not {Path.cwd()}/t" in other.stderr
    assert other.stderr.count("\n") == 1
    assert "export TANDEM_SOFTGPU_PROFILE=a100\n" in shell.stdout
    assert "(profile tiny, not a100)" in shell.stderr


def test_a_device_without_clients_makes_room_for_other_settings(tandem, tmp_path):
    program = (sys.executable, "-c", "from cuda.bindings import driver as cu; cu.cuInit(0)")
    place = ("run", "--dir", str(tmp_path / "d"))
    timeline = tmp_path / "t.jsonl"
    assert tandem(*place, "--profile", "tiny", "--", *program).returncode == 0

    done = tandem(*place, "--profile", "a100", "--timeline", str(timeline), "--", *program)

    assert (done.returncode, done.stderr) == (0, "")
    assert timeline.exists()
    status = json.loads(tandem("status", "--json", "--dir", str(tmp_path / "d")).stdout)
    assert (status["profile"], status["timeline"]) == ("a100", "complete")


def test_faults_of_an_earlier_run_are_not_those_of_the_next(tandem, tmp_path):
    ask = (
        "from cuda.bindings import driver as cu; cu.cuInit(0);"
        "cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1]); print(int(cu.cuMemAlloc(16)[0]))"
    )
    words = ("--dir", str(tmp_path), "--profile", "tiny", "--faults", "oom@1")

    seen = [tandem("run", *words, "--", sys.executable, "-c", ask).stdout for _ in range(2)]

    assert seen == ["2\n", "2\n"]


@pytest.mark.parametrize("verb", ["run", "env"])
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--faults", "bogus@1"), "--faults: unknown fault 'bogus@1'; known are oom, "),
        (("--profile", "h200", "--mig", "9g"), "--mig: '9g' is not a MIG profile of h200"),
        (("--profile", "tiny", "--mig", "1g.18gb"), "--mig: '1g.18gb' for profile tiny"),
        (("--timeline", "/none/t"), "cannot write the timeline '/none/t': there is no directory"),
    ],
)
def test_wrong_values_are_refused_before_the_program_runs(tandem, verb, words, complaint):
    command = ("--", "echo", "ran") if verb == "run" else ()

    done = tandem(verb, *words, *command)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {complaint}")
    assert done.stderr.count("\n") == 1


def test_a_timeline_that_could_not_be_written_to_its_end_is_said_at_the_end(gpu, tmp_path):
    program = (
        "from cuda.bindings import driver as cu; cu.cuInit(0);"
        "cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1]); x = cu.cuMemAlloc(16)[1]\n"
        "for _ in range(40): cu.cuMemsetD8(x, 0, 16)\n"
        "cu.cuCtxSynchronize(); raise SystemExit(7)"
    )
    timeline = tmp_path / "t.jsonl"
    words = ["run", "--dir", str(tmp_path / "d"), "--clock", "virtual", "--timeline", str(timeline)]
    limit = ["prlimit", "--fsize=4000:unlimited"]

    done = subprocess.run(
        [*limit, *CLI, *words, "--", sys.executable, "-c", program],
        env=own_env(gpu),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 7
    assert done.stderr == (
        f"warning: the timeline '{timeline}' ends early: its disk is full, or it may not grow\n"
    )


def test_the_status_of_a_lost_device_says_so(tandem, gpu):
    gpu.options["faults"] = "lost:affine@1"
    child = gpu.start(
        "gpu = Gpu(); gpu.affine(gpu.word(1), 2, 1); refused(cu.cuCtxSynchronize())\n"
        "print('lost', flush=True)\nwith outside(): sys.stdin.read()"
    )
    assert child.stdout.readline() == "lost\n"

    plain = tandem("status", "--dir", str(gpu.folder)).stdout

    child.communicate("")
    assert "gpu 0: Tandem Software GPU (tiny), " in plain
    assert "LOST: every call fails" in plain


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
    known = ", ".join(softgpu.PROFILES)
    assert f"must be one of {known} (did you mean 'h200'?)" in done.stderr


def test_the_compiler_may_be_named_with_arguments(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "env g++")
    source = tmp_path / "nothing.cu"
    source.write_text("__global__ void nothing() {}\nTANDEM_KERNEL(nothing, 0, 0)\n")

    softgpu.compile_kernels(source, tmp_path / "nothing.so")

    assert (tmp_path / "nothing.so").is_file()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("no C++", "does not compile: g++ ended with exit code 1"),
        ("__global__ void nothing() {}", "has no kernel that can be loaded: write a line TANDEM_K"),
    ],
)
def test_a_source_without_kernels_is_refused_by_name(text, complaint, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "g++")
    source = tmp_path / "scale.cu"
    source.write_text(text + "\n")

    with pytest.raises(UsageError) as error:
        softgpu.compile_kernels(source)

    assert str(error.value).startswith(f"'{source}' {complaint}")
