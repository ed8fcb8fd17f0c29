"""The client and the commands end jobs and wait for them, with a real daemon."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tandem import _client, _doctor
from tandem._client import Client
from tandem._paths import RuntimeDir
from tandem.errors import DeadlineError, NotFoundError, StateError, UnavailableError, UsageError

IGNORING = "import os, signal, sys; signal.signal(15, signal.SIG_IGN);"


@pytest.fixture
def in_background():
    """Call a function in another thread; `.result()` of what is returned gives its answer."""
    with ThreadPoolExecutor() as pool:
        yield pool.submit


@pytest.fixture
def told(client):
    """Set once a waiting client knows the state of its jobs; from then on it hears of changes."""
    told, job = threading.Event(), client.job

    def ask(name):
        answer = job(name)
        told.set()
        return answer

    client.job = ask
    return told


@pytest.fixture
def start(environ):
    """Start `tandem WORDS...` in the background."""
    begun = []

    def start(*words, **options):
        command = [sys.executable, "-m", "tandem.cli.__main__", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        begun.append(subprocess.Popen(command, env=environ, text=True, **(pipes | options)))
        return begun[-1]

    yield start
    for process in begun:
        with process:
            process.kill()


def test_a_cancelled_job_is_waited_for(client, job):
    cancelled = client.cancel(job, signal="INT", grace_s=600)

    (ended,) = client.wait(job, deadline_s=20)

    assert cancelled.name == ended.name == job
    assert "SIGINT was sent" in cancelled.reason
    assert (ended.state, ended.reason) == ("exited", "ended: it was cancelled")
    assert client.wait(job, deadline_s=20) == [ended]  # even though it has ended already


def test_a_job_that_is_named_twice_is_waited_for_once(client, job):
    client.pause(job)

    assert [one.name for one in client.wait(job, "sleeper", until="paused")] == [job]


def test_a_change_is_waited_for(client, job, in_background, told):
    paused = in_background(client.wait, job, until="paused", deadline_s=20)
    told.wait()

    client.pause(job)

    assert [one.name for one in paused.result()] == [job]


def test_waiting_ends_with_its_deadline(client, job):
    client.job(job)  # connects first, which may take longer than the deadline
    with pytest.raises(DeadlineError, match=rf"^{job} not paused within 0\.2 s$"):
        client.wait(job, until="paused", deadline_s=0.2)


def test_waiting_in_vain_is_refused(client, job):
    with pytest.raises(NotFoundError, match="no job is named 'nobody'"):
        client.wait(job, "nobody")
    with pytest.raises(UsageError, match="until 'asleep' is not one of ended, running"):
        client.wait(job, until="asleep")

    client.cancel(job, grace_s=0)
    with pytest.raises(StateError, match=f"{job} has ended, and will not be paused"):
        client.wait(job, until="paused", deadline_s=20)


def test_who_waits_is_told_that_the_daemon_went_away(client, daemon, job, in_background, told):
    waiting = in_background(client.wait, job)
    told.wait()

    daemon.kill()

    with pytest.raises(UnavailableError, match=f"{job} may go on, but no daemon answers in "):
        waiting.result()


def test_who_waits_is_told_that_the_daemon_hangs(
    client, daemon, job, in_background, told, monkeypatch
):
    monkeypatch.setattr(_client, "BEAT_S", 0.05)
    waiting = in_background(client.wait, job, deadline_s=30)
    told.wait()

    os.kill(daemon.pid, signal.SIGSTOP)
    monkeypatch.setattr(_client, "DEADLINE_S", 0.2)

    try:
        with pytest.raises(UnavailableError, match=f"{job} may go on, but the daemon in .* does"):
            waiting.result()
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


@pytest.fixture
def hung(runtime_dir, monkeypatch):
    """A client, with a very short deadline, of a daemon that never answers."""
    monkeypatch.setattr(_client, "DEADLINE_S", 0.1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mute:
        mute.bind(str(runtime_dir / "login.sock"))
        mute.listen()
        with Client(directory=str(runtime_dir)) as client:
            yield client


def test_a_daemon_that_hangs_from_the_start_is_no_deadline_of_a_wait(hung):
    with pytest.raises(UnavailableError, match="not answer: no token within"):
        hung.wait("train")
    with pytest.raises(DeadlineError, match=r"^train not ended within 0\.05 s$"):
        hung.wait("train", deadline_s=0.05)


def test_a_call_that_may_take_long_does_not_wait_as_long_for_its_token(hung):
    with pytest.raises(DeadlineError, match=r"no token within 0\.1 s"):
        hung.cut_gpu("0=off")


def test_the_doctor_does_not_have_a_second_daemon_started_beside_one_that_hangs(hung, runtime_dir):
    place = RuntimeDir(path=runtime_dir, origin="here")
    machine = _doctor.Machine(place=place, shim=runtime_dir, probe=None, probe_error="")

    (found,) = _doctor.check_daemon(machine)

    assert (found.level, found.remedy) == (_doctor.FAIL, "kill it and start another")


@pytest.mark.parametrize(("seen", "levels"), [(["A GPU"], [_doctor.WARN]), ([], [])])
def test_the_doctor_tells_a_daemon_that_misses_the_gpus_of_this_shell(
    client, runtime_dir, seen, levels
):
    assert client.gpus() == []
    place = RuntimeDir(path=runtime_dir, origin="here")
    machine = _doctor.Machine(place=place, shim=runtime_dir, probe={"gpus": seen}, probe_error="")

    found = [one for one in _doctor.check_daemon(machine) if one.check == "daemon's gpus"]

    assert [one.level for one in found] == levels


@pytest.mark.parametrize("grace_s", [-1, float("nan"), float("inf")])
def test_what_is_no_grace_is_refused(client, job, grace_s):
    with pytest.raises(UsageError, match="grace_s is"):
        client.cancel(job, grace_s=grace_s)


def test_cancel_ends_jobs_and_says_so(tandem, job):
    done = tandem("cancel", "--grace", "10min", "sleeper")

    assert (done.returncode, done.stderr) == (0, "")
    first, last = done.stdout.splitlines()
    assert first.startswith(f"{job} is being ended: SIGTERM was sent, SIGKILL follows in ")
    assert last == f"{job} has ended"


def test_cancel_prints_jobs_as_json_once_they_have_ended(tandem, job):
    (ended,) = json.loads(tandem("cancel", "--json", "--signal", "kill", job).stdout)

    assert (ended["name"], ended["state"]) == (job, "exited")


def test_cancel_shows_what_was_done_before_it_fails(tandem, client, job):
    done = tandem("cancel", "--json", job, "nobody")

    assert done.returncode == 3
    assert [one["name"] for one in json.loads(done.stdout)] == [job]
    client.wait(job, deadline_s=20)
    assert tandem("cancel", job).returncode == 4  # it has ended


def test_who_does_not_wait_has_an_answer_at_once(environ, start, tandem, client):
    stubborn = f"{IGNORING} print(os.environ['TANDEM_JOB_ID'], flush=True); sys.stdin.read()"
    job = start("run", "--require", "--", sys.executable, "-c", stubborn, stdin=subprocess.PIPE)
    name = job.stdout.readline().strip()

    assert tandem("cancel", "--no-wait", "--grace", "1d", name).returncode == 0

    assert "SIGKILL follows" in client.job(name).reason
    assert tandem("cancel", "--no-wait", "--grace", "0s", name).returncode == 0
    assert job.wait(20) == -signal.SIGKILL


def test_who_waits_for_the_end_of_a_grace_hears_that_the_daemon_went_away(
    start, daemon, client, job, in_background
):
    stubborn = f"{IGNORING} print(flush=True); sys.stdin.read()"
    words = ["run", "--require", "-J", "ignoring", "--", sys.executable, "-c", stubborn]
    ignoring = start(*words, stdin=-1)
    ignoring.stdout.readline()
    cancelling = start("cancel", "ignoring", "sleeper")
    said = [cancelling.stdout.readline() for _ in range(3)]
    assert said[2] == f"{job} has ended\n"  # it hears of the end

    daemon.kill()

    _, err = cancelling.communicate(timeout=20)
    assert cancelling.returncode == 7
    assert "may go on" in err
    assert "nobody sends SIGKILL now, but the next daemon does to what attaches" in err


def test_wait_says_what_has_become_of_jobs(tandem, client, job):
    client.pause(job)
    assert tandem("wait", "--for", "paused", job).stdout == f"{job} is paused\n"
    assert tandem("wait", "--for", "paused", "--timeout", "99999d", job).returncode == 0

    late = tandem("wait", "--timeout", "3s", job)  # part of that it needs to connect
    assert (late.returncode, late.stdout) == (8, "")
    assert late.stderr == f"error: {job} not ended within 3 s\n"

    client.cancel(job)
    done = tandem("wait", "--json", "sleeper")
    assert [one["state"] for one in json.loads(done.stdout)] == ["exited"]


def test_wait_without_a_daemon_says_what_to_do(tandem, runtime_dir):
    done = tandem("wait", "train")

    assert done.returncode == 7
    assert "start one with `tandemd`" in done.stderr


def last_words(terminal):
    """Read all that is left on the terminal: text written in two pieces arrives in two pieces."""
    said = b""
    with suppress(OSError):  # until the end
        while part := os.read(terminal, 100):
            said += part
    return said


def test_an_interrupted_wait_says_nothing_more_and_leaves_the_terminal_clean(start, client, job):
    terminal, stderr = pty.openpty()
    waiting = start("wait", job, stderr=stderr)
    os.close(stderr)
    shown = os.read(terminal, 100)

    waiting.send_signal(signal.SIGINT)

    out, _ = waiting.communicate(timeout=20)
    shown += last_words(terminal)
    os.close(terminal)
    assert (waiting.returncode, out) == (130, "")
    assert shown == f"\r\x1b[Kwaiting: {job}\r\x1b[K\r\n".encode()
    assert client.job(job).state == "starting"


# Ctrl-C after gRPC has begun a stream, but before it starts the thread that is told of its end.
CUT = """
import signal
import grpc._channel as channel
from tandem import Client

begin_thread = channel._run_channel_spin_thread

def cut(*arguments):
    signal.raise_signal(signal.SIGINT)
    begin_thread(*arguments)

channel._run_channel_spin_thread = cut
try:
    with Client() as client:
        WATCHES
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("watches", ["next(client.watch())", "client.windows('sleeper')"])
def test_an_interrupt_at_the_begin_of_a_stream_hangs_nobody(environ, job, watches):
    command = [sys.executable, "-c", CUT.replace("WATCHES", watches)]

    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")
