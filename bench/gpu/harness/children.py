"""Processes that a part starts: it runs some to their end and talks with others."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.gpu.harness.part import Bench, progress
from tandem.demo.place import Place
from tandem.demo.process import Message, Worker, WorkerError

PATIENCE_S, LEAST_PATIENCE_S = 90.0, 5.0  # to wait for a program's next message
FAREWELL_S = 2.0  # for a program to end by itself: killing an MPS client may take down its server
_numbers = itertools.count(1)  # for distinct log names


def run(command: Sequence[str], env: Mapping[str, str], *, deadline_s: float) -> str:
    """Run a command; return its stdout. Its children are ended with it.

    Raises:
        WorkerError: it failed, or was not done by the deadline.
    """
    with running(command, env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        try:
            said, errors = child.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            raise WorkerError(f"it was not done after {deadline_s:g} s") from None
    if child.returncode != 0:
        raise WorkerError(f"it ended with {child.returncode}\n{errors[-600:]}".rstrip())
    return said


@contextmanager
def running(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    stdout: int | None = None,
    stderr: int | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Run a program in a session of its own; kill the whole process group at the end."""
    with subprocess.Popen(
        command,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as child:
        try:
            yield child
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)


def ask(command: Sequence[str], env: Mapping[str, str], *, deadline_s: float) -> Message:
    """Run a program to its end; return the JSON object in its last line.

    Raises:
        WorkerError: it failed, said nothing, or was not done by the deadline.
    """
    lines = run(command, env, deadline_s=deadline_s).splitlines()
    if not lines:
        raise WorkerError("it said nothing")
    answer: Message = json.loads(lines[-1])
    return answer


def environment(bench: Bench, place: Place) -> dict[str, str]:
    """A program's environment, on the device that the part's other programs use, too."""
    return place.env(bench.folder / f"gpu-{place.mode}")


@contextmanager
def talking(
    bench: Bench, command: Sequence[str], env: Mapping[str, str], *, role: str = ""
) -> Iterator[Worker]:
    """Start a program that speaks JSON lines with an `event` each, like tandem.demo.worker."""
    logs = bench.folder / "logs"
    logs.mkdir(exist_ok=True)
    role = f"{role or Path(command[0]).name}-{next(_numbers)}"
    worker = Worker(role, command, env=env, log=logs / f"{role}.log")
    try:
        yield worker
    finally:
        worker.close(farewell_s=FAREWELL_S)


@contextmanager
def ready(
    bench: Bench,
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    role: str = "",
    most_s: float = PATIENCE_S,
) -> Iterator[tuple[Worker, Message]]:
    """Like `talking`, and wait for its message `ready`, at most `most_s`; yield that, too."""
    with talking(bench, command, env, role=role) as worker:
        yield worker, heard(worker, "ready", most_s=most_s)


def told(worker: Worker, event: str) -> Message:
    """Let the program go on; return its next message of that kind.

    Raises:
        WorkerError: it ended, or sent no such message in time.
    """
    worker.go()
    return heard(worker, event)


def heard(worker: Worker, event: str, *, most_s: float = PATIENCE_S) -> Message:
    """Wait for the program's next message of that kind, at most half of the part's remaining time.

    Raises:
        WorkerError: it ended, or sent no such message in time.
    """
    left_s = progress.end_s(reserve_s=0) - time.monotonic()
    deadline_s = round(min(most_s, max(LEAST_PATIENCE_S, left_s / 2)), 1)
    return without_event(worker.wait_for(event, deadline_s=deadline_s))


def without_event(message: Message) -> Message:
    """The message without its event name."""
    return {name: value for name, value in message.items() if name != "event"}


def last_line(failure: Exception) -> str:
    """What happened, and the last line that the process wrote."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    return lines[0] if len(lines) == 1 else f"{lines[0]}: {lines[-1]}"
