"""Run a command under the shim: environment in, exec out.

The process becomes the command, so its pid, its signals and its exit code are the command's.
Nothing here may keep a job from running, except when it was told to: without a daemon the command
runs unshared, with the shim loaded, which attaches as soon as there is one; a job that the daemon
refuses runs as if there were no Tandem.
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

from tandem import _attach, _paths
from tandem._attach import Refused, Registered, Request
from tandem.errors import TandemError, UnavailableError, UsageError
from tandem.units import format_bytes

EXIT_FAILED = 125
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
EXIT_NO_ROOM = 75

ASK_AGAIN_S = 0.1
PATIENCE_S = 90.0  # for what the daemon finds out: of one GPU after the other, 20 s each at most

_DIRECTORY = "is a directory"
_SHOWN = "CUDA_VISIBLE_DEVICES"
# Where PyTorch reads its allocator's settings; from 2.9 on the second name counts as well.
_PYTORCH_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_RETURNING = "backend:cudaMallocAsync"
_PRINTABLE_NAME_BYTES = _attach.NAME_BYTES - 1


class LaunchError(TandemError):
    """The command was not started; carries the exit code of env(1) and timeout(1).

    Not raised once the command runs: from then on the exit code is its own.
    """

    def __init__(self, text: str, *, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command and what is asked for it."""

    command: Sequence[str]
    request: Request
    gpu: str | None = None  # index in PCI order, UUID, or a MIG instance as GPU:INSTANCE
    extra: Mapping[str, str]  # further variables of the job
    require: bool = False  # refuse to run without a daemon
    return_memory: bool = False  # have PyTorch give memory back that it has freed


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything decided, nothing done yet."""

    program: str
    argv: list[str]
    environ: Mapping[str, str]
    socket: Path
    register: bool


def plan(launch: Launch, environ: Mapping[str, str], *, uid: int) -> Plan:
    """Decide what to run and with which environment.

    Raises:
        LaunchError: the command does not exist (127) or cannot be executed (126), or there is no
            usable shim (125).
        UsageError: a name the wire has no room for, half a promise of memory, or a minimum of it
            above the limit.
    """
    _check_names(launch.request)
    _check_promise(launch.request)
    _check_minimum(launch.request)
    job = {**environ, **launch.extra}
    program = find_program(launch.command[0], path=job.get("PATH", os.defpath))
    socket = _paths.attach_socket(job, uid=uid)
    managed = job.get("TANDEM_DISABLE") != "1"
    if managed:
        job |= _job_environment(launch, job, socket=socket)
        if _is_instance(launch.gpu):
            job.pop(_SHOWN, None)
    return Plan(
        program=program, argv=list(launch.command), environ=job, socket=socket, register=managed
    )


def run(launch: Launch, environ: Mapping[str, str], *, uid: int) -> NoReturn:
    """Register the job, then become the command.

    Raises:
        LaunchError: as `plan`, or the daemon is required and absent (125), or refuses for lack
            of room (75, also if the job is not to wait) or another reason (125); or, required or
            not, no GPU that is meant can ever give what is asked of its SMs (125).
        UsageError: as `plan`.
    """
    decided = plan(launch, environ, uid=uid)
    job = dict(decided.environ)
    if decided.register:
        job |= _register(launch, decided)
        if _SHOWN not in job and _is_instance(launch.gpu):
            raise LaunchError(
                f"no daemon says which device '{launch.gpu}' is; give its UUID, which "
                "`nvidia-smi -L` shows",
                exit_code=EXIT_FAILED,
            )
    execute(decided.program, decided.argv, job)


def rehearse(launch: Launch, environ: Mapping[str, str], *, uid: int) -> Plan:
    """The same as `plan`, with what a daemon would have the job know; nothing is registered.

    Raises:
        LaunchError, UsageError: as `plan`.
    """
    decided = plan(launch, environ, uid=uid)
    if not decided.register:
        return decided
    try:
        answer = _ask(launch, decided, only_asks=True)
    except UnavailableError as exc:
        sys.stderr.write(f"tandem: no daemon ({exc}): what it would set is not shown\n")
        return decided
    if isinstance(answer, Refused):
        sys.stderr.write(f"tandem: warning: the daemon would refuse it: {answer.reason}\n")
        return decided
    _warn_of_less(launch.request.priority, answer.priority)
    said = _of_daemon(answer.environment, decided.environ)
    return replace(decided, environ={**decided.environ, **said})


def find_program(name: str, *, path: str) -> str:
    """The file execvp(3) would start, found before a daemon hears of the job.

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
        # As execvp(3): go on along the path, and remember what might have been meant.
        if problem is not None and ("/" in name or problem != _DIRECTORY):
            refusal = f"{candidate!r} {problem}"
    if refusal:
        raise LaunchError(refusal, exit_code=EXIT_NOT_EXECUTABLE)
    raise LaunchError(f"command {name!r} not found", exit_code=EXIT_NOT_FOUND)


def _problem_with(candidate: str) -> str | None:
    # What keeps it from being executed, "" if nothing, None if it does not exist.
    try:
        mode = os.stat(candidate).st_mode
    except PermissionError:
        return "is in a folder that you may not enter"
    except OSError:
        return None
    if stat.S_ISDIR(mode):
        return _DIRECTORY
    return "" if os.access(candidate, os.X_OK) else "is not executable"


def preload(library: Path, present: str) -> str:
    """LD_PRELOAD with `library` first and once; what was there stays.

    Raises:
        LaunchError: the library is missing, or its path cannot stand in LD_PRELOAD (125).
    """
    if not library.is_file():
        raise LaunchError(
            f"{library} is missing; reinstall gpu-tandem, or run `make build` in a source tree",
            exit_code=EXIT_FAILED,
        )
    text = str(library)
    if " " in text or ":" in text:  # the loader splits there, and knows no escape
        raise LaunchError(
            f"{text!r} has a space or colon, which LD_PRELOAD cannot hold; install elsewhere",
            exit_code=EXIT_FAILED,
        )
    others = [p for p in present.replace(" ", ":").split(":") if p and p != text]
    return ":".join([text, *others])


def request_environment(request: Request) -> dict[str, str]:
    """The request as the shim reads it, and only what was said."""
    yes_or_no = {None: None, True: "1", False: "0"}
    sm_share = None if request.sm_percent is None else f"{request.sm_percent}%"
    memory_share = None if request.memory_percent is None else f"{request.memory_percent}%"
    wait_memory = None if request.wait_memory_ns is None else f"{request.wait_memory_ns}ns"
    said = {
        "TANDEM_PRIORITY": request.priority,
        "TANDEM_MEMORY": memory_share or request.memory_bytes,
        "TANDEM_MEMORY_MIN": request.memory_min_bytes,
        "TANDEM_PERSISTENT": request.persistent_bytes,
        "TANDEM_EPHEMERAL": request.ephemeral_bytes,
        "TANDEM_WAIT_MEMORY": wait_memory,
        "TANDEM_SM": sm_share or request.sm_count,
        "TANDEM_ISOLATION": request.isolation,
        "TANDEM_SLO": None if request.slo_p99_ns is None else f"p99={request.slo_p99_ns}ns",
        "TANDEM_PREEMPTIBLE": yes_or_no[request.preemptible],
        "TANDEM_SWAPPABLE": yes_or_no[request.swappable],
        "TANDEM_CHECKPOINT": "1" if request.checkpoint else None,
        "TANDEM_NAME": request.name or None,
        "TANDEM_GROUP": request.group or None,
    }
    return {variable: str(value) for variable, value in said.items() if value is not None}


def execute(program: str, argv: list[str], environ: Mapping[str, str]) -> NoReturn:
    """Become `program`.

    Raises:
        LaunchError: the kernel refuses (126, or 127 for a missing interpreter).
    """
    # Python ignores these two from its start, and exec would hand that on: `yes | head` hangs.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(program, argv, environ)
    except OSError as exc:
        if exc.errno == errno.ENOEXEC:  # a script without #!, as execvp(3) treats it
            os.execve("/bin/sh", ["/bin/sh", program, *argv[1:]], environ)
        missing = exc.errno in (errno.ENOENT, errno.ENOTDIR)
        code = EXIT_NOT_FOUND if missing else EXIT_NOT_EXECUTABLE
        raise LaunchError(f"cannot execute {program!r}: {exc.strerror}", exit_code=code) from exc


def _job_environment(launch: Launch, job: Mapping[str, str], *, socket: Path) -> dict[str, str]:
    changes = request_environment(launch.request)
    changes["TANDEM_SOCKET"] = str(socket)
    changes["LD_PRELOAD"] = preload(_paths.SHIM, job.get("LD_PRELOAD", ""))
    if launch.require:
        changes["TANDEM_REQUIRE"] = "1"
    if launch.return_memory:
        changes |= _returning(job)
    if launch.gpu is not None and not _is_instance(launch.gpu):
        changes |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", _SHOWN: launch.gpu}
    return changes


def _is_instance(gpu: str | None) -> bool:
    # As `tandem gpus` calls it. CUDA knows UUIDs alone, and the daemon says which one it is.
    return gpu is not None and ":" in gpu


def _returning(job: Mapping[str, str]) -> dict[str, str]:
    # PyTorch's own allocator keeps what is freed; the driver's gives it back at the next wait.
    said = next((name for name in _PYTORCH_ALLOCATOR if name in job), None)
    if said is None:
        return {_PYTORCH_ALLOCATOR[0]: _RETURNING}
    if _RETURNING not in job[said].split(","):
        sys.stderr.write(
            f"tandem: warning: {said} is {job[said]!r} and stays so: without {_RETURNING} PyTorch "
            "keeps the memory that it has freed\n"
        )
    return {}


def _of_daemon(said: Mapping[str, str], job: Mapping[str, str]) -> dict[str, str]:
    # What MPS is told, and which GPU is meant, has to be there when the driver starts. The job's
    # own word about MPS stands; about the GPU the daemon only says what --gpu means.
    taken = {}
    for name, value in said.items():
        if name == _SHOWN:
            taken[name] = value
            continue
        if not name.startswith("CUDA_MPS_"):
            continue  # no daemon of ours says anything else
        if job.get(name, value) != value:
            sys.stderr.write(
                f"tandem: warning: {name} is {job[name]!r} and stays so, not {value!r}\n"
            )
            continue
        taken[name] = value
    return taken


def _register(launch: Launch, decided: Plan) -> dict[str, str]:
    """What the job learns from it. One that was refused is left alone: the shim does nothing."""
    try:
        answer = _ask(launch, decided)
    except UnavailableError as exc:
        _go_unshared(launch, f"no daemon ({exc})", exit_code=EXIT_FAILED, hint="start tandemd")
        return {}
    match answer:
        case Registered(job_id=job_id, environment=said):
            _warn_of_less(launch.request.priority, answer.priority)
            return {"TANDEM_JOB_ID": f"j-{job_id:x}"} | _of_daemon(said, decided.environ)
        case Refused(code=code, reason=reason):
            if code == _attach.REFUSED_UNFIT:  # running without it would be to ignore it
                raise LaunchError(f"not started: {reason}", exit_code=EXIT_FAILED)
            room = code == _attach.REFUSED_NO_ROOM
            exit_code = EXIT_NO_ROOM if room else EXIT_FAILED
            if room and launch.request.no_wait:
                raise LaunchError(f"the daemon refuses: {reason}", exit_code=exit_code)
            _go_unshared(launch, f"the daemon refuses: {reason}", exit_code=exit_code, hint="")
            return {"TANDEM_DISABLE": "1"}


def _warn_of_less(asked: str | None, granted: str | None) -> None:
    if asked and granted and asked != granted:
        sys.stderr.write(
            f"tandem: warning: its priority is '{granted}', not '{asked}': uid {os.getuid()} may "
            "not exceed that ([limits] of the daemon's configuration); ask an admin\n"
        )


def _ask(launch: Launch, decided: Plan, *, only_asks: bool = False) -> Registered | Refused:
    """What the daemon says, once it knows what a GPU can do, or for now after `PATIENCE_S`."""
    end_s, said = time.monotonic() + PATIENCE_S, False
    while True:
        asks_again = time.monotonic() < end_s
        answer = _attach.register(
            decided.socket,
            replace(launch.request, asks_again=asks_again, only_asks=only_asks),
            command=shlex.join(launch.command),
            gpu=launch.gpu or "",
        )
        if not isinstance(answer, Refused) or answer.code != _attach.REFUSED_NOT_YET:
            return answer
        if not said:
            sys.stderr.write(f"tandem: waiting: {answer.reason}\n")
            said = True
        time.sleep(ASK_AGAIN_S)


def _go_unshared(launch: Launch, cause: str, *, exit_code: int, hint: str) -> None:
    if launch.require:
        remedy = f"; {hint}, or drop --require" if hint else ""
        raise LaunchError(f"{cause}{remedy}", exit_code=exit_code)
    sys.stderr.write(f"tandem: warning: {cause}; running unshared\n")


def _check_promise(request: Request) -> None:
    if (request.persistent_bytes is None) != (request.ephemeral_bytes is None):
        said, missing = "--persistent", "--ephemeral"
        if request.persistent_bytes is None:
            said, missing = missing, said
        raise UsageError(f"{said} says nothing without {missing}; give both, 0 for none")
    limit, kept = request.memory_bytes, request.persistent_bytes
    if limit is not None and kept is not None and kept > limit:
        raise UsageError(
            f"--persistent {format_bytes(kept)} is more than --memory {format_bytes(limit)}; "
            "lower the one, or raise the other"
        )


def _check_minimum(request: Request) -> None:
    limit, minimum = request.memory_bytes, request.memory_min_bytes
    if limit is not None and minimum is not None and minimum > limit:
        raise UsageError(
            f"--memory-min {format_bytes(minimum)} is more than --memory {format_bytes(limit)}; "
            "lower the one, or raise the other"
        )


def _check_names(request: Request) -> None:
    for option, value in (("--name", request.name), ("--group", request.group)):
        if len(value.encode()) > _PRINTABLE_NAME_BYTES:
            raise UsageError(
                f"{option} has {len(value.encode())} bytes; at most {_PRINTABLE_NAME_BYTES} fit"
            )
        if not value.isprintable():
            raise UsageError(f"{option} {value!r} has characters that cannot be printed")
