"""Users end jobs that are real processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from fake_shim import PATIENCE_S, register
from google.protobuf.duration_pb2 import Duration
from running_daemon import until

from tandem._wire import tandem_pb2 as pb

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another uid")
NOBODY, OTHER = 65534, 12345
# Runs tandemd with another uid as systemd would, with CAP_KILL or without. It may also read every
# file, because this Python may live in a home directory.
PROGRAM = f"""
import ctypes, os, sys
from tandemd.__main__ import main
READ, KILL, (keep, ambient, is_raised) = 2, 5, (8, 47, 2)
libc, may_kill = ctypes.CDLL(None), sys.argv[1]
libc.prctl(keep, 1, 0, 0, 0)
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
capabilities = 1 << READ | (1 << KILL if may_kill else 0)
sets = (ctypes.c_uint32 * 6)(*[capabilities] * 3)
assert libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), sets) == 0
assert not may_kill or libc.prctl(ambient, is_raised, KILL, 0, 0) == 0
main(sys.argv[2:])
"""


def name_of(client):
    return f"j-{json.loads(client.stdout.readline())['job_id']:x}"


def cancel(rpc, name, **options):
    return rpc.call(rpc.job_service.CancelJob, pb.CancelJobRequest(name=name, **options))


def refused(rpc, name, **options):
    with pytest.raises(grpc.RpcError) as caught:
        cancel(rpc, name, **options)
    return caught.value.code(), caught.value.details()


def state_of(rpc, name):
    return rpc.call(rpc.job_service.GetJob, pb.GetJobRequest(name=name)).status.state


def test_a_job_that_is_cancelled_gets_sigterm_and_ends(daemon):
    with daemon.start().client() as client, daemon.rpc() as rpc:
        name = name_of(client)

        answer = cancel(rpc, name)

        assert client.wait(PATIENCE_S) == -signal.SIGTERM
        until(lambda: state_of(rpc, name) == pb.STATE_EXITED, what="the job has ended")
    assert "SIGTERM was sent, SIGKILL follows in 30 s" in answer.status.reason
    assert list(answer.warnings) == []


def test_a_job_that_ignores_its_signal_is_killed_after_the_grace(daemon):
    program = (
        "import signal, sys; signal.signal(15, signal.SIG_IGN); import fake_shim; fake_shim.main()"
    )
    words = [sys.executable, "-c", program, str(daemon.attach_path)]
    daemon.start()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen(words, env=env, **pipes) as client, daemon.rpc() as rpc:
        cancel(rpc, name_of(client), grace=Duration(nanos=50_000_000))

        assert client.wait(PATIENCE_S) == -signal.SIGKILL


def test_every_process_of_a_job_is_reached_and_who_joins_it_late(daemon):
    daemon.start()
    with daemon.client() as first, daemon.rpc() as rpc:
        name = name_of(first)
        job = str(int(name.removeprefix("j-"), 16))
        with daemon.client("--job", job) as second:
            name_of(second)
            first.send_signal(signal.SIGSTOP)  # a stopped process is signalled all the same

            cancel(rpc, name)

            assert first.wait(PATIENCE_S) == second.wait(PATIENCE_S) == -signal.SIGTERM
        with daemon.client("--job", job) as late:
            assert late.wait(PATIENCE_S) == -signal.SIGTERM


def test_a_job_that_has_not_used_the_gpu_yet_is_reached(daemon):
    program = (
        "import sys; sys.path.append(sys.argv[1]); import fake_shim;"
        "s = fake_shim.Shim(sys.argv[2]); s.socket.send(fake_shim.register(name='early'));"
        "s.receive(); s.socket.close();"
        "print(flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", program, str(Path(__file__).parent), str(daemon.attach_path)]
    daemon.start()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, **pipes) as launcher, daemon.rpc() as rpc:
        launcher.stdout.readline()

        cancel(rpc, "early", signal="SIGINT")

        assert launcher.wait(PATIENCE_S) == -signal.SIGINT
        until(lambda: state_of(rpc, "early") == pb.STATE_EXITED, what="the job has ended")


def test_a_job_that_has_ended_or_never_was_cannot_be_cancelled(daemon):
    daemon.start()
    shim = daemon.connect()
    shim.socket.send(register(name="short"))
    shim.receive()
    with daemon.client() as client, daemon.rpc() as rpc:
        name = name_of(client)
        client.kill()
        until(lambda: state_of(rpc, name) == pb.STATE_EXITED, what="the job has ended")

        ended, unknown = refused(rpc, name), refused(rpc, "nobody")

    assert ended == (grpc.StatusCode.FAILED_PRECONDITION, f"{name} has ended")
    assert unknown[0] is grpc.StatusCode.NOT_FOUND


def test_what_ends_no_program_is_refused(daemon):
    with daemon.start().client() as client, daemon.rpc() as rpc:
        name = name_of(client)
        for options, told in (
            (
                {"signal": "STOP"},
                "signal 'STOP' is not one of HUP, INT, QUIT, USR1, USR2, TERM, KILL",
            ),
            ({"grace": Duration(seconds=-1)}, "grace -1000000000 is negative"),
            ({"grace": Duration(seconds=86_401)}, "grace 86401s is more than 86400s"),
        ):
            assert refused(rpc, name, **options) == (grpc.StatusCode.INVALID_ARGUMENT, told)
        assert client.poll() is None


@pytest.fixture
def unprivileged(daemon):
    """Start a daemon with another uid, with CAP_KILL or without."""

    def start(may_kill):
        os.chown(daemon.base, NOBODY, NOBODY)
        words = [sys.executable, "-c", PROGRAM, may_kill, *daemon.arguments()]
        with daemon.log.open("w") as log, daemon.made_ready():
            options = {"env": daemon.environment(), "stderr": log, "cwd": daemon.base}
            daemon.process = subprocess.Popen(words, **options)

    return start


@as_root
def test_with_the_capability_of_its_unit_a_daemon_ends_jobs_of_others(daemon, unprivileged):
    unprivileged("may kill")
    with daemon.client("--uid", str(OTHER)) as client, daemon.rpc() as rpc:
        cancel(rpc, name_of(client))

        assert client.wait(PATIENCE_S) == -signal.SIGTERM
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    assert "CapEff:\t0000000000000024" in status
    assert "CapAmb:\t0000000000000000" in status  # the programs it starts have none


@as_root
def test_a_daemon_that_may_not_signal_a_job_says_so_and_leaves_it_as_it_is(daemon, unprivileged):
    unprivileged("")
    with daemon.client("--uid", str(OTHER)) as client, daemon.rpc() as rpc:
        name = name_of(client)
        rpc.call(rpc.job_service.PauseJob, pb.PauseJobRequest(name=name))

        code, details = refused(rpc, name)

        assert state_of(rpc, name) == pb.STATE_PAUSED
    why = f"pid {client.pid}: the daemon, of uid {NOBODY}, may not signal uid {OTHER}"
    assert (code, details) == (
        grpc.StatusCode.PERMISSION_DENIED,
        f"{name} cannot be signalled: {why}",
    )
