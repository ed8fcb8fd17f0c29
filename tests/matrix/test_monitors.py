"""What nvitop and gpustat show of a job that runs beside them."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path

import pytest

from tandem import _paths, softgpu

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

JOB = Path(__file__).parent / "programs" / "hold.py"
JOB_MIB = 256 + 8  # its buffer, and what a context occupies


@pytest.fixture
def env(tmp_path):
    # People watch monitors, so they run on the real clock.
    return softgpu.environment(folder=tmp_path, clock="real", profile="tiny")


@contextlib.contextmanager
def job(clients, env):
    with subprocess.Popen(
        [clients.python, str(JOB)],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "holding\n"
        yield process
        process.stdin.close()
    assert process.returncode == 0


def ask(command, env) -> str:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_gpustat_shows_a_job(clients, env):
    with job(clients, env) as process:
        shown = json.loads(ask([clients.tool("gpustat"), "--json"], env))

    (gpu,) = shown["gpus"]
    assert gpu["name"] == "Tandem Software GPU (tiny)"
    assert (gpu["memory.used"], gpu["memory.total"]) == (JOB_MIB, 1024)
    (entry,) = gpu["processes"]
    assert (entry["pid"], entry["gpu_memory_usage"]) == (process.pid, JOB_MIB)
    assert entry["full_command"] == [clients.python, str(JOB)]


def test_nvitop_shows_a_job(clients, env):
    with job(clients, env) as process:
        shown = ask([clients.tool("nvitop"), "--once", "--ascii"], env)

    (gpu,) = [line for line in shown.splitlines() if f"{JOB_MIB}.0MiB / 1024MiB" in line]
    assert "Default" in gpu  # the compute mode
    (entry,) = [line for line in shown.splitlines() if f" {process.pid} C " in line]
    assert f"{JOB_MIB}.0MiB" in entry


# In a job with a memory limit, monitors show its share and its processes; see docs/interception.md.
QUOTA_MIB = 512


@contextlib.contextmanager
def job_and_another(clients, env):
    """A job with the environment `tandem run` makes, another job, and that environment."""
    inside = env | {
        "LD_PRELOAD": str(_paths.SHIM),
        "TANDEM_JOB_ID": "j-7",
        "TANDEM_MEMORY": f"{QUOTA_MIB}MiB",
        "TANDEM_RUNTIME_DIR": str(Path(env["TANDEM_SOFTGPU_DIR"]).parent),
    }
    with job(clients, inside) as process, job(clients, env):
        yield process, inside


def test_gpustat_in_a_job_shows_the_job_alone(clients, env):
    with job_and_another(clients, env) as (process, inside):
        shown = json.loads(ask([clients.tool("gpustat"), "--json"], inside))

    (gpu,) = shown["gpus"]
    assert (gpu["memory.used"], gpu["memory.total"]) == (JOB_MIB, QUOTA_MIB)
    assert [entry["pid"] for entry in gpu["processes"]] == [process.pid]


def test_nvitop_in_a_job_shows_the_job_alone(clients, env):
    with job_and_another(clients, env) as (process, inside):
        shown = ask([clients.tool("nvitop"), "--once", "--ascii"], inside)

    assert f"{JOB_MIB}.0MiB / {QUOTA_MIB}.0MiB" in shown
    held = f" {JOB_MIB}.0MiB "
    (entry,) = [line for line in shown.splitlines() if " C " in line and held in line]
    assert f" {process.pid} C " in entry
