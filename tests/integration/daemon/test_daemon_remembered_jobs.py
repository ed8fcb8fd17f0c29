"""What is kept of a job when it comes back to a restarted daemon."""

import json
import os
import signal
import sqlite3
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import fake_shim
import pytest
from fake_shim import BATCH, CLASS_OFFSET, LATENCY, NORMAL, PATIENCE_S
from google.protobuf.duration_pb2 import Duration
from running_daemon import until

from tandem._wire import tandem_pb2 as pb

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another uid")
NOBODY = 65534
STATE = "state.db"


def set_job(rpc, name, **spec):
    request = pb.UpdateJobRequest(job=pb.Job(name=name, spec=pb.JobSpec(**spec)))
    request.update_mask.paths.extend(spec)
    return rpc.call(rpc.job_service.UpdateJob, request)


def restarted(daemon, by=signal.SIGTERM):
    daemon.stop(by)
    return daemon.start()


def the_job(daemon):
    with daemon.rpc() as rpc:
        (job,) = rpc.jobs()
    return job


@pytest.fixture
def changed(daemon):
    """A job that was started as batch, and later set to normal and to less memory."""
    shim = daemon.start().shim(job_class=BATCH, name="train")
    with daemon.rpc() as rpc:
        set_job(rpc, the_job(daemon).name, **{"class": NORMAL, "memory_quota_bytes": 5 << 30})
    until(lambda: shim.word(CLASS_OFFSET) == NORMAL, what="it is of class normal")
    return shim


def test_what_was_set_for_a_job_is_so_again_whatever_its_process_asks_for(daemon, changed):
    restarted(daemon).shim(job_id=changed.job_id, job_class=LATENCY, name="another")

    job = the_job(daemon)

    assert (getattr(job.spec, "class"), job.spec.memory_quota_bytes) == (NORMAL, 5 << 30)
    assert job.display_name == "train"


def test_without_the_state_file_a_job_comes_back_as_it_was_started(daemon, changed):
    daemon.stop()
    (daemon.runtime / STATE).unlink()

    daemon.start().shim(job_id=changed.job_id, job_class=BATCH, name="train")

    assert getattr(the_job(daemon).spec, "class") == BATCH


def test_a_paused_job_is_paused_again(daemon):
    shim = daemon.start().shim(name="paused")
    with daemon.rpc() as rpc:
        request = pb.PauseJobRequest(name=the_job(daemon).name)
        rpc.call(rpc.job_service.PauseJob, request)

    again = restarted(daemon).shim(job_id=shim.job_id, name="paused")

    assert again.is_held  # before its process has heard anything else
    assert the_job(daemon).status.state == pb.STATE_PAUSED


def test_one_that_was_not_paused_goes_on(daemon, changed):
    again = restarted(daemon).shim(job_id=changed.job_id)

    assert not again.is_held
    assert the_job(daemon).status.state != pb.STATE_PAUSED


def test_its_command_line_is_known_however_often_the_daemon_is_started(daemon):
    launcher = daemon.start().connect()
    launcher.socket.send(fake_shim.register("train.py --fast"))
    _, body, _ = launcher.receive()
    (job_id,) = struct.unpack_from("=Q", body)

    for _ in range(3):
        shim = daemon.shim(job_id=job_id)
        assert the_job(daemon).command == "train.py --fast"
        restarted(daemon)
        shim.close()


def test_a_job_that_has_ended_is_not_known_again(daemon, changed):
    changed.socket.close()
    with daemon.rpc() as rpc:
        until(lambda: not rpc.jobs(), what="it has ended")

    restarted(daemon).shim(job_id=changed.job_id, job_class=BATCH)

    assert getattr(the_job(daemon).spec, "class") == BATCH


@as_root
def test_another_uid_cannot_take_the_number_of_a_job_that_was_there_before(daemon, changed):
    restarted(daemon)

    options = ("--uid", str(NOBODY), "--job", str(changed.job_id))
    with daemon.client(*options) as thief:
        thief.stdout.readline()
        again = daemon.shim(job_id=changed.job_id, job_class=BATCH)
        with daemon.rpc() as rpc:
            jobs = {job.uid: job for job in rpc.jobs()}

    assert again.job_id == changed.job_id
    assert getattr(jobs[0].spec, "class") == NORMAL
    assert jobs[NOBODY].name != jobs[0].name


def test_a_daemon_that_cannot_use_its_file_says_so_and_serves(daemon):
    daemon.runtime.mkdir(parents=True, exist_ok=True)
    (daemon.runtime / STATE).write_bytes(b"no database" * 100)

    daemon.start().shim(name="served")

    assert the_job(daemon).display_name == "served"
    assert daemon.log.read_text().count("state file cannot be used") == 1


def test_a_cancelled_job_that_comes_back_is_killed_when_its_grace_is_over(daemon):
    daemon.start()
    program = (
        "import signal, sys; signal.signal(15, signal.SIG_IGN); import fake_shim; fake_shim.main()"
    )
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    words = [sys.executable, "-c", program, str(daemon.attach_path)]
    with subprocess.Popen(words, env=env, **pipes) as first, daemon.rpc() as rpc:
        job_id = json.loads(first.stdout.readline())["job_id"]
        request = pb.CancelJobRequest(name=f"j-{job_id:x}", grace=Duration(seconds=3600))
        rpc.call(rpc.job_service.CancelJob, request)
        daemon.stop()
        with closing(sqlite3.connect(daemon.runtime / STATE)) as state, state:  # an hour later
            state.execute("UPDATE jobs SET job = json_set(job, '$.cancel.kill_at_ns', 1)")
        daemon.start()

        with subprocess.Popen([*words, "--job", str(job_id)], env=env, **pipes) as again:
            assert again.wait(PATIENCE_S) == -signal.SIGKILL
        first.kill()
