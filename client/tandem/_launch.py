"""Run a command under the shim: set up the environment, then exec.

The process becomes the command, so the pid, the signals and the exit code are the command's.
Nothing here keeps a job from running unless the caller asked for that. Without a daemon the command
runs unshared, but with the shim loaded, which attaches as soon as a daemon is there. A job that the
daemon refuses runs as if there were no Tandem.
"""

import errno
import os
import shlex
import signal
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from tandem import _attach, _environment, _paths
from tandem._attach import Refused, Registered, Request, SilentError, UntrustedError
from tandem._environment import SHOWN, is_instance
from tandem._text import printable
from tandem.errors import StateError, TandemError, UnavailableError

EXIT_FAILED = 125
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
EXIT_NO_ROOM = 75

ANSWER_S = 1.0  # how long the daemon may take to answer; after that the job runs unshared
REQUIRED_ANSWER_S = 20.0  # with --require: a daemon that is merely busy must not fail the job
ASK_AGAIN_S = 0.1
PATIENCE_S = 90.0  # while the daemon examines GPUs, one after the other, at most 20 s each

_DIRECTORY = "is a directory"


class LaunchError(TandemError):
    """The command was not started; carries the exit code that env(1) and timeout(1) use.

    Not raised once the command runs: from then on the exit code is the command's.
    """

    def __init__(self, text: str, *, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command and what it asks for."""

    command: Sequence[str]
    request: Request
    gpu: str | None = None  # index in PCI order, UUID, or a MIG instance as GPU:INSTANCE
    extra: Mapping[str, str]  # additional variables of the job
    require: bool = False  # refuse to run without a daemon
    return_memory: bool = False  # have PyTorch return freed memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All decisions about a launch, before anything is done."""

    program: str
    argv: list[str]
    environ: Mapping[str, str]
    socket: Path
    register: bool


def plan(launch: Launch, environ: Mapping[str, str], *, uid: int) -> Plan:
    """Decide what to run and with which environment.

    Raises:
        LaunchError: the command does not exist (127) or cannot be executed (126).
        StateError: there is no usable shim.
        UsageError: the request contradicts itself.
    """
    _environment.check_request(launch.request)
    job = {**environ, **launch.extra}
    program = find_program(launch.command[0], path=job.get("PATH", os.defpath))
    socket = _paths.attach_socket(job, uid=uid)
    managed = job.get("TANDEM_DISABLE") != "1"
    if managed:
        job |= _environment.job_environment(
            launch.request, job, gpu=launch.gpu, return_memory=launch.return_memory
        )
        job["TANDEM_SOCKET"] = str(socket)
        if launch.require:
            job["TANDEM_REQUIRE"] = "1"
        if is_instance(launch.gpu):
            job.pop(SHOWN, None)
    return Plan(
        program=program, argv=list(launch.command), environ=job, socket=socket, register=managed
    )


def run(launch: Launch, environ: Mapping[str, str], *, uid: int) -> NoReturn:
    """Register the job, then become the command.

    Raises:
        LaunchError: as `plan`; or the daemon is required, and it is absent (125) or refuses for
            another reason than lack of room (125); or it refuses for lack of room (75), if it is
            required or the job may not wait; or, required or not, no eligible GPU can ever provide
            the SMs that are asked for (125).
        StateError: as `plan`, or nobody can tell which MIG instance is meant.
        UsageError: as `plan`.
    """
    decided = plan(launch, environ, uid=uid)
    job = dict(decided.environ)
    if decided.register:
        job |= _register(launch, decided)
        _check_instance(launch.gpu, job)
    execute(decided.program, decided.argv, job)


def rehearse(launch: Launch, environ: Mapping[str, str], *, uid: int) -> Plan:
    """Like `plan`, with the variables that a daemon would add; registers nothing.

    Raises:
        LaunchError, StateError, UsageError: as `plan`.
    """
    decided = plan(launch, environ, uid=uid)
    if not decided.register:
        return decided
    command = shlex.join(launch.command)
    asked = _registered(launch.request, decided.environ)
    said = _said(decided.socket, asked, decided.environ, command=command, gpu=launch.gpu)
    return replace(decided, environ={**decided.environ, **said})


def environment(
    request: Request,
    environ: Mapping[str, str],
    *,
    uid: int,
    gpu: str | None = None,
    return_memory: bool = False,
) -> dict[str, str]:
    """The variables to set for a program that somebody else starts.

    Raises:
        StateError: there is no usable shim, or nobody can tell which MIG instance is meant.
        UsageError: the request contradicts itself.
    """
    _environment.check_request(request)
    variables = _environment.job_environment(request, environ, gpu=gpu, return_memory=return_memory)
    variables |= _paths.to_be_named(environ, uid=uid)
    socket = _paths.attach_socket(environ, uid=uid)
    variables |= _said(socket, request, environ, command="tandem env", gpu=gpu)
    _check_instance(gpu, variables)
    return variables


def foretell(request: Request, environ: Mapping[str, str], *, uid: int, gpu: str | None) -> None:
    """Warn of a daemon's objections to a request that is stored for later jobs.

    Without a daemon, warn of what has no effect unless it is configured.
    """
    socket = _paths.attach_socket(environ, uid=uid)
    try:
        answer = _ask(
            socket, replace(request, only_asks=True), command="tandem kernelspec", gpu=gpu
        )
    except UnavailableError:
        if request.idle_release_ns and not request.swappable:
            unless = "unless class.<name>.memory_swap is configured"
            sys.stderr.write(f"tandem: warning: {_environment.NO_RELEASE}, {unless}\n")
        return
    _object(request, answer)


def find_program(name: str, *, path: str) -> str:
    """Find the file that execvp(3) would start, before a daemon hears of the job.

    Raises:
        LaunchError: 127 not found, 126 found but not executable.
    """
    if not name:
        raise LaunchError("command '' not found", exit_code=EXIT_NOT_FOUND)
    refusal = ""
    for folder in [""] if "/" in name else path.split(os.pathsep):
        candidate = os.path.join(folder, name)
        problem = _problem_with(candidate)
        if problem == "":
            return candidate
        # As execvp(3) does: go on along the path, but remember a file that may have been meant.
        if problem is not None and ("/" in name or problem != _DIRECTORY):
            refusal = f"{candidate!r} {problem}"
    if refusal:
        raise LaunchError(refusal, exit_code=EXIT_NOT_EXECUTABLE)
    raise LaunchError(f"command {name!r} not found", exit_code=EXIT_NOT_FOUND)


def _problem_with(candidate: str) -> str | None:
    # Why the file cannot be executed; "" if it can, None if it does not exist.
    try:
        mode = os.stat(candidate).st_mode
    except PermissionError:
        return "is in a directory that you may not enter"
    except OSError:
        return None
    if stat.S_ISDIR(mode):
        return _DIRECTORY
    return "" if os.access(candidate, os.X_OK) else "is not executable"


def execute(program: str, argv: list[str], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by `program`.

    Raises:
        LaunchError: the kernel refuses (126, or 127 for a missing interpreter).
    """
    # Python ignores these two signals, and exec would pass that on: `yes | head` would hang.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(program, argv, environ)
    except OSError as exc:
        if exc.errno == errno.ENOEXEC:  # a script without #!, handled as by execvp(3)
            os.execve("/bin/sh", ["/bin/sh", program, *argv[1:]], environ)
        missing = exc.errno in (errno.ENOENT, errno.ENOTDIR)
        code = EXIT_NOT_FOUND if missing else EXIT_NOT_EXECUTABLE
        raise LaunchError(f"cannot execute {program!r}: {exc.strerror}", exit_code=code) from exc


def _register(launch: Launch, decided: Plan) -> dict[str, str]:
    """Register the job and return its variables; a refused job runs with the shim disabled."""
    command = shlex.join(launch.command)
    asked = _registered(launch.request, decided.environ)
    answer_s = REQUIRED_ANSWER_S if launch.require else ANSWER_S
    try:
        answer = _ask(decided.socket, asked, command=command, gpu=launch.gpu, answer_s=answer_s)
    except UnavailableError as exc:
        return _without_daemon(launch, exc)
    match answer:
        case Registered(job_id=job_id, environment=said):
            _warn(launch.request, answer)
            return {"TANDEM_JOB_ID": f"j-{job_id:x}"} | _environment.of_daemon(
                said, decided.environ
            )
        case Refused(code=code, reason=reason):
            if code == _attach.REFUSED_UNFIT:  # running it nonetheless would ignore the request
                raise LaunchError(f"not started: {reason}", exit_code=EXIT_FAILED)
            room = code == _attach.REFUSED_NO_ROOM
            exit_code = EXIT_NO_ROOM if room else EXIT_FAILED
            if room and launch.request.no_wait:
                raise LaunchError(f"the daemon refuses: {reason}", exit_code=exit_code)
            _go_unshared(launch, f"the daemon refuses: {reason}", exit_code=exit_code, hint="")
            return {"TANDEM_DISABLE": "1"}


def _without_daemon(launch: Launch, exc: UnavailableError) -> dict[str, str]:
    """The job's variables when no daemon answers."""
    match exc:
        case UntrustedError():  # the shim would not attach either, and only warn again
            _go_unshared(launch, str(exc), exit_code=EXIT_FAILED, hint="")
            return {"TANDEM_DISABLE": "1"}
        case SilentError():
            cause, hint = str(exc), "restart tandemd if it hangs"
        case UnavailableError(__cause__=PermissionError()):
            cause, hint = str(exc), "ask whoever runs tandemd to let you in"
        case _:
            cause, hint = f"no daemon ({exc})", "start tandemd"
    _go_unshared(launch, cause, exit_code=EXIT_FAILED, hint=hint)
    return {}


def _registered(request: Request, job: Mapping[str, str]) -> Request:
    """The request with the launcher's group, unless a group was said."""
    return replace(request, group=request.group or _environment.launch_group(job))


def _warn(request: Request, answer: Registered) -> None:
    """Warn of what the job asked for and did not get."""
    asked, granted = request.priority, answer.priority
    for line in answer.told:
        sys.stderr.write(f"tandem: warning: {printable(line)}\n")
    if asked and granted and asked != granted:
        sys.stderr.write(
            f"tandem: warning: its priority is '{granted}', not '{asked}': uid {os.getuid()} may "
            "not exceed that ([limits] of the daemon's configuration); ask an admin\n"
        )


def _said(
    socket: Path, request: Request, environ: Mapping[str, str], *, command: str, gpu: str | None
) -> dict[str, str]:
    """The variables a daemon would give such a job; without a daemon, a line on stderr."""
    try:
        answer = _ask(socket, replace(request, only_asks=True), command=command, gpu=gpu)
    except UnavailableError as exc:
        sys.stderr.write(f"tandem: cannot show what a daemon would set: {exc}\n")
        return {}
    _object(request, answer)
    if isinstance(answer, Refused):
        return {}
    return _environment.of_daemon(answer.environment, environ)


def _object(request: Request, answer: Registered | Refused) -> None:
    """Print the objections of a daemon that was only asked, as warnings."""
    if isinstance(answer, Refused):
        sys.stderr.write(f"tandem: warning: the daemon would refuse this job: {answer.reason}\n")
    else:
        _warn(request, answer)


def _ask(
    socket: Path,
    request: Request,
    *,
    command: str,
    gpu: str | None,
    answer_s: float = ANSWER_S,
) -> Registered | Refused:
    """The daemon's answer, asked for again while it is undecided, for at most `PATIENCE_S`."""
    end_s, said = time.monotonic() + PATIENCE_S, False
    while True:
        asks = replace(request, asks_again=time.monotonic() < end_s)
        answer = _attach.register(socket, asks, command=command, gpu=gpu or "", timeout_s=answer_s)
        if not isinstance(answer, Refused) or answer.code != _attach.REFUSED_NOT_YET:
            return answer
        if not said:
            sys.stderr.write(f"tandem: waiting: {answer.reason}\n")
            said = True
        time.sleep(ASK_AGAIN_S)


def _check_instance(gpu: str | None, variables: Mapping[str, str]) -> None:
    if is_instance(gpu) and SHOWN not in variables:
        raise StateError(
            f"no daemon says which device '{gpu}' is; give its UUID, as shown by `nvidia-smi -L`"
        )


def _go_unshared(launch: Launch, cause: str, *, exit_code: int, hint: str) -> None:
    if launch.require:
        remedy = f"; {hint}, or drop --require" if hint else ""
        raise LaunchError(f"{cause}{remedy}", exit_code=exit_code)
    sys.stderr.write(f"tandem: warning: {cause}; running unshared\n")
