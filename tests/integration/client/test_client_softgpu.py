"""A job on the software GPU, as the client, the doctor and the job itself see it."""

import json
import subprocess
import sys

import pytest

from tandem import softgpu

JOB = """
import sys, time
import tandem
from cuda.bindings import driver
(result,) = driver.cuInit(0)
result, device = driver.cuDeviceGet(0)
result, context = driver.cuDevicePrimaryCtxRetain(device)
driver.cuCtxSetCurrent(context)
result, address = driver.cuMemAlloc(1 << 20)
with tandem.phase("prefill"):
    driver.cuMemsetD8(address, 0, 1 << 20)
tandem.step(1)
while not tandem.is_managed():  # soon, if the daemon was late for its first call
    time.sleep(0.01)
print(tandem.is_managed(), result.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def environ(environ):
    return softgpu.environment(environ)


@pytest.fixture
def attached_job(daemon, environ):
    words = ["run", "--require", "-p", "latency", "-J", "probe"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tandem.cli.__main__", *words, "--", sys.executable, "-c", JOB],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    process.said = process.stdout.readline()
    yield process
    process.communicate()


def test_a_job_knows_that_it_is_managed(attached_job):
    assert attached_job.said == "True CUDA_SUCCESS\n"


def test_an_attached_process_is_shown_with_its_pid(client, attached_job):
    (job,) = client.jobs()

    assert [p.pid for p in job.processes] == [attached_job.pid]
    assert job.gpu == "0"
    assert job.state != "starting"


def test_the_gpu_says_that_it_is_software(client):
    (gpu,) = client.gpus()

    assert gpu.software
    assert gpu.product_name.startswith("Tandem Software GPU")
    assert gpu.memory_total_bytes > 0


def test_the_doctor_finds_nothing_wrong(tandem, attached_job):
    done = tandem("doctor", "--json")

    findings = json.loads(done.stdout)
    assert [f for f in findings if f["level"] != "ok"] == []
    assert done.returncode == 0
    assert len([f for f in findings if f["check"].startswith("look-up by ")]) == 3
    assert any("software GPU" in f["text"] for f in findings if f["check"] == "driver")
