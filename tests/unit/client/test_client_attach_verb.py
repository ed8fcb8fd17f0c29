"""`tandem attach` is always refused, each time with advice."""

import contextlib
import os
import subprocess
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from tandem import _paths
from tandem.cli import attach
from tandem.errors import NotFoundError, StateError, UnavailableError


@pytest.fixture
def jobs(monkeypatch):
    """The jobs that the daemon knows; [None]: there is no daemon."""
    known = []

    def open_client():
        if known == [None]:
            raise UnavailableError("no daemon answers")
        return contextlib.nullcontext(SimpleNamespace(jobs=lambda: known))

    monkeypatch.setattr(attach, "open_client", open_client)
    return known


@pytest.fixture
def process():
    """Starts processes that do nothing until the test ends, with this environment."""
    with contextlib.ExitStack() as running:

        def start(*words, **environ):
            child = subprocess.Popen(
                words, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            running.callback(child.communicate)
            child.stdin.write(b"up\n")
            child.stdin.flush()
            assert child.stdout.readline() == b"up\n"  # exec is done: it is the requested program
            return child.pid

        yield start


def refusal(pid):
    return CliRunner().invoke(attach.attach, [str(pid)]).exception


@pytest.mark.parametrize("known", [[], [None]], ids=["daemon", "no daemon"])
def test_a_process_that_runs_is_to_be_started_anew(jobs, process, known):
    jobs.extend(known)
    pid = process("/bin/cat", "-", "--", "-")

    error = refusal(pid)

    assert isinstance(error, StateError)
    assert f"process {pid} runs already" in str(error)
    assert str(error).endswith("end it, and start it with: tandem run -- /bin/cat - -- -")


def test_a_command_line_that_is_no_line_is_not_repeated(jobs, process):
    pid = process("/bin/sh", "-c", "exec cat\n")

    assert str(refusal(pid)).endswith("tandem run -- cat")

    pid = process("/bin/cat", "-", *["--", "-"] * 100)
    assert str(refusal(pid)).endswith("tandem run -- COMMAND")


def test_a_process_of_a_job_is_told_which(jobs, process):
    pid = process("/bin/cat")
    one = SimpleNamespace(name="j-7", display_name="train", processes=[SimpleNamespace(pid=pid)])
    jobs.append(one)

    assert f"process {pid} belongs to job j-7 'train' already" in str(refusal(pid))


@pytest.mark.parametrize(
    ("environ", "whose"), [({"TANDEM_JOB_ID": "j-7f3a"}, "job 'j-7f3a'"), ({}, "a job of its own")]
)
def test_one_that_has_the_library_and_has_not_used_the_gpu_is_told_so(
    jobs, process, environ, whose
):
    pid = process(
        "/bin/cat", LD_PRELOAD=str(_paths.SHIM), TANDEM_SOCKET="/nonexistent/attach.sock", **environ
    )

    error = refusal(pid)

    assert isinstance(error, StateError)
    assert f"it is {whose} from its first use of the GPU on" in str(error)


def test_what_is_no_process_is_not_found(jobs):
    with subprocess.Popen(["/bin/true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # a zombie keeps its pid
        error = refusal(ended.pid)

    assert isinstance(error, NotFoundError)
    assert str(error) == f"no process {ended.pid} on this machine; `tandem ps` lists the jobs"
    assert CliRunner().invoke(attach.attach, ["0"]).exit_code == 2
