"""`tandem attach`: explains why the command that people look for cannot exist."""

import os
import shlex
from pathlib import Path

import click

from tandem import _paths
from tandem._text import printable
from tandem.cli._output import open_client
from tandem.errors import NotFoundError, StateError, TandemError

_JOB = "TANDEM_JOB_ID"
_MOST_SHOWN = 200  # characters of a command line


@click.command()
@click.argument("pid", type=click.IntRange(min=1))
def attach(pid: int) -> None:
    """Explain why a running process cannot be made to share the GPU, and what to do instead.

    Tandem sees a program's calls through a library that must be loaded when the program starts:
    nobody would know what it had allocated and submitted before. So this command always fails: with
    exit code 3 if there is no such process, else with 4. If the process belongs to a job already,
    it says to which.

    \b
    Examples:
      tandem attach 4711
    """
    words = _command_of(pid)
    if words is None:
        raise NotFoundError(f"no process {pid} on this machine; `tandem ps` lists the jobs")
    if known := _job_by_daemon(pid):
        raise StateError(f"process {pid} belongs to {known}; use `tandem set` and `tandem pause`")
    if _has_library(pid):
        job = _environment_of(pid).get(_JOB)
        whose = f"job '{printable(job)}'" if job else "a job of its own"
        raise StateError(
            f"process {pid} was started under Tandem: it is {whose} from its first use of the GPU "
            "on, if a daemon admits it; `tandem doctor` says what prevents that"
        )
    again = shlex.join(words)
    if not (0 < len(again) <= _MOST_SHOWN and again.isprintable()):
        again = "COMMAND"
    raise StateError(
        f"process {pid} runs already, and the library that lets a program share the GPU can be "
        f"loaded only when it starts; end it, and start it with: tandem run -- {again}"
    )


def _command_of(pid: int) -> list[str] | None:
    """Return the command line, empty for a kernel thread, or None if there is no such process."""
    try:
        facts = (Path("/proc") / str(pid) / "stat").read_text(errors="replace")
        text = (Path("/proc") / str(pid) / "cmdline").read_bytes()
    except OSError:
        return None
    has_ended = facts.rpartition(")")[2].split()[0] in "ZX"  # not reaped yet
    return None if has_ended else [os.fsdecode(word) for word in text.split(b"\0")[:-1]]


def _job_by_daemon(pid: int) -> str:
    """Name the job that the process belongs to; empty if none is known."""
    try:
        with open_client() as client:
            jobs = client.jobs()
    except TandemError:  # no daemon or no client libraries: the refusal is the same
        return ""
    for job in jobs:
        if any(process.pid == pid for process in job.processes):
            named = f" '{printable(job.display_name)}'" if job.display_name else ""
            return f"job {job.name}{named} already"
    return ""


def _has_library(pid: int) -> bool:
    """Tell whether the process has loaded our library, as far as we may see that."""
    try:
        return f"/{_paths.SHIM.name}\n" in Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return False


def _environment_of(pid: int) -> dict[str, str]:
    try:
        text = os.fsdecode(Path(f"/proc/{pid}/environ").read_bytes())
    except OSError:
        return {}
    return dict(word.split("=", 1) for word in text.split("\0") if "=" in word)
