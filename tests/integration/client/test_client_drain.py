"""A draining GPU, on which no job is started: the client, the commands and a daemon."""

import subprocess
import sys

import pytest

from tandem import softgpu
from tandem.errors import NotFoundError

JOB = """
import sys, time
import tandem
from cuda.bindings import driver
driver.cuInit(0)
result, device = driver.cuDeviceGet(0)
result, context = driver.cuDevicePrimaryCtxRetain(device)
driver.cuCtxSetCurrent(context)
driver.cuMemAlloc(1 << 20)
while not tandem.is_managed():  # soon, if the daemon was late for its first call
    time.sleep(0.01)
print("managed", flush=True)
sys.stdin.read()
"""
REFUSED = (
    "not started: gpu 0: an admin's `tandem drain` lets no job start there; name another gpu with "
    "--gpu, or try again later"
)


@pytest.fixture
def environ(environ):
    return softgpu.environment(environ)


def test_no_job_is_started_there_until_that_is_undone(client, tandem):
    assert client.drain_gpu("0").draining

    refused = tandem("run", "-i", "0", "--", "true")
    at_once = tandem("run", "--no-wait", "--", "true")  # there is no other GPU
    assert (refused.returncode, REFUSED in refused.stderr) == (125, True)
    assert (at_once.returncode, "gpu 0: an admin's `tandem drain`" in at_once.stderr) == (75, True)

    undone = tandem("drain", "--undo", "0")
    assert undone.stdout == "gpu 0: jobs are started there\n"
    assert tandem("run", "--require", "-i", "0", "--", "true").returncode == 0


@pytest.fixture
def attached_job(daemon, environ):
    words = ["run", "--require", "-J", "probe", "--", sys.executable, "-c", JOB]
    process = subprocess.Popen(
        [sys.executable, "-m", "tandem.cli.__main__", *words],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "managed\n"
    yield process
    process.communicate()


def test_what_runs_there_goes_on_and_is_told(client, attached_job):
    client.drain_gpu("0")

    told = "gpu 0 is draining: this job continues there, but no other is started"
    assert told in client.explain("probe").lines
    attached_job.communicate()
    assert attached_job.returncode == 0


def test_it_is_so_after_a_restart_and_shown(client, daemon, tandem):
    (uuid,) = [gpu.uuid for gpu in client.gpus()]
    assert tandem("drain", uuid).stdout == "gpu 0: draining, no job is started there\n"

    daemon.stop()
    daemon.start()

    assert "gpu 0: draining, no job is started there" in tandem("gpus").stdout
    assert "draining: no job is started there" in tandem("doctor").stdout
    assert tandem("run", "--", "true").returncode == 125


def test_a_gpu_that_is_not_there_is_told_with_those_that_are(client):
    with pytest.raises(NotFoundError, match="no gpu is called '7'; there are '0'"):
        client.drain_gpu("7")
