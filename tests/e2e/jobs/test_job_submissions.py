"""All work a program can give the GPU: held by a closed gate, left unchanged by an open one."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from running_job import DEADLINE_S, WAITING, Place, until

HERE = Path(__file__).parent
SOURCE = (HERE / "submitter.py").read_text()
NAMES = re.findall(r'^            "(\w+)": ', SOURCE, re.M)
HELD = NAMES[: NAMES.index("write_value")]
FREE = NAMES[NAMES.index("write_value") :]
START = f"sys.path.insert(0, {str(HERE)!r})"
IMPORT = "exec('from submitter import Submitter; submitter = Submitter()', globals())"
ALL = f"""
import sys
{START}
from submitter import Submitter
submitter = Submitter()
assert [*submitter.calls, *submitter.free] == {NAMES!r}
for name in {NAMES!r}:
    submitter.make(name)
"""


@pytest.fixture(scope="module")
def folder():
    # The names of pytest's own folders are too long for a socket.
    made = Path(tempfile.mkdtemp(prefix="tandem-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def held(image, folder):
    """A job that submits what it is told to, and a client that can hold it."""
    (folder / "held").mkdir()
    place = Place(folder / "held", image, clock="virtual")
    try:
        place.start_daemon()
        job = place.job("submitter")
        job.do(START)
        job.do(IMPORT)
        with place.client() as client:
            yield place, job, client
    finally:
        place.close()


@pytest.mark.parametrize("name", HELD)
def test_a_paused_job_submits_nothing(name, held):
    place, job, client = held
    client.pause("submitter")
    before = place.ran(job.pid)

    job.start(f"submitter.make({name!r})")
    until(lambda: WAITING in client.explain("submitter").lines, what="it waits at its gate")

    assert place.ran(job.pid) == before
    client.resume("submitter")
    assert job.result() is None


@pytest.mark.parametrize("name", FREE)
def test_what_others_may_wait_for_passes_a_closed_gate(name, held):
    _, job, client = held
    client.pause("submitter")

    assert job.do(f"submitter.make({name!r})") is None

    client.resume("submitter")


def _timeline(place, *launcher):
    """Return, in order, what the GPU did for a program that makes every call."""
    command = [*launcher, sys.executable, "-c", ALL]
    program = subprocess.Popen(command, env=place.env)
    assert program.wait(DEADLINE_S) == 0
    return [(one["kind"], one["name"], one["bytes"]) for one in place.ran(program.pid)]


@pytest.mark.slow
def test_an_open_gate_changes_neither_work_nor_order(image, folder):
    found = {}
    for how in ("bare", "managed"):
        (folder / how).mkdir()
        place = Place(folder / how, image, clock="virtual")
        try:
            if how == "managed":
                place.start_daemon()
            tandem = (sys.executable, "-m", "tandem.cli", "run", "--require", "--")
            found[how] = _timeline(place, *(tandem if how == "managed" else ()))
        finally:
            place.close()

    kinds = {kind for kind, _, _ in found["bare"]}
    assert kinds == {"kernel", "copy_htod", "copy_dtoh", "copy_dtod", "memset"}
    assert found["managed"] == found["bare"]
