"""The variables that put a program under Tandem: `tandem run` sets them, `tandem env` prints them.

They are requests: the daemon limits them to what its configuration allows.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tandem import _attach, _paths
from tandem._attach import Request
from tandem.errors import StateError, UsageError
from tandem.units import exact_bytes, exact_duration, format_bytes

SHOWN = "CUDA_VISIBLE_DEVICES"
MEMORY = "TANDEM_MEMORY"
# The variables with PyTorch's allocator settings; the second counts from PyTorch 2.9 on.
_PYTORCH_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_RETURNING = "backend:cudaMallocAsync"
# The same text as the daemon's for a job that starts (tandemd/core/effects.py).
NO_RELEASE = (
    "idle_release has no effect: only a job that was started with --swappable gives its memory up "
    "when idle"
)
_PRINTABLE_NAME_BYTES = _attach.NAME_BYTES - 1


def check_request(request: Request) -> None:
    """Refuse a request that contradicts itself.

    Raises:
        UsageError: a name too long for the wire, half a promise of memory, or a memory minimum
            above the limit.
    """
    _check_names(request)
    _check_promise(request)
    _check_minimum(request)


def job_environment(
    request: Request, present: Mapping[str, str], *, gpu: str | None, return_memory: bool
) -> dict[str, str]:
    """The variables that a program needs besides `present`, except those that locate the daemon.

    Raises:
        StateError: there is no usable shim.
    """
    variables = request_environment(request)
    variables["LD_PRELOAD"] = preload(_paths.SHIM, present.get("LD_PRELOAD", ""))
    if present.get("TANDEM_CHECKPOINT") and not request.checkpoint:
        variables["TANDEM_CHECKPOINT"] = "0"  # or the shim would still read the inherited request
    if return_memory:
        variables |= returning(present)
    if gpu is not None and not is_instance(gpu):
        variables |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", SHOWN: gpu}
    return variables


def preload(library: Path, present: str) -> str:
    """LD_PRELOAD with `library` first and only once, followed by what was there.

    Raises:
        StateError: the library is missing, or its path cannot stand in LD_PRELOAD.
    """
    check_installed(library)
    text = str(library)
    if " " in text or ":" in text:  # the loader splits there and has no escape
        raise StateError(
            f"{text!r} has a space or colon, which LD_PRELOAD cannot hold; install elsewhere"
        )
    others = [p for p in present.replace(" ", ":").split(":") if p and p != text]
    return ":".join([text, *others])


def check_installed(file: Path) -> None:
    """Refuse to continue without a file of our installation.

    Raises:
        StateError: the file is missing.
    """
    if not file.is_file():
        raise StateError(
            f"{file} is missing; reinstall gpu-tandem, or run `make build` in a source tree"
        )


def request_environment(request: Request) -> dict[str, str]:
    """The request as variables for the shim, only for what was said."""
    yes_or_no = {None: None, True: "1", False: "0"}
    sm_share = None if request.sm_percent is None else f"{request.sm_percent}%"
    memory_share = None if request.memory_percent is None else f"{request.memory_percent}%"
    is_never = (request.idle_release_ns or 0) >= _attach.NEVER_IDLE_NS
    slo = _time(request.slo_p99_ns)
    said = {
        "TANDEM_PRIORITY": request.priority,
        MEMORY: memory_share or _size(request.memory_bytes),
        "TANDEM_MEMORY_MIN": _size(request.memory_min_bytes),
        "TANDEM_PERSISTENT": _size(request.persistent_bytes),
        "TANDEM_EPHEMERAL": _size(request.ephemeral_bytes),
        "TANDEM_WAIT_MEMORY": _time(request.wait_memory_ns),
        "TANDEM_SM": sm_share or request.sm_count,
        "TANDEM_ISOLATION": request.isolation,
        "TANDEM_SLO": None if slo is None else f"p99={slo}",
        "TANDEM_PREEMPTIBLE": yes_or_no[request.preemptible],
        "TANDEM_SWAPPABLE": yes_or_no[request.swappable],
        "TANDEM_IDLE_RELEASE": "never" if is_never else _time(request.idle_release_ns),
        "TANDEM_CHECKPOINT": "1" if request.checkpoint else None,
        "TANDEM_NAME": request.name or None,
        "TANDEM_GROUP": request.group or None,
    }
    return {variable: str(value) for variable, value in said.items() if value is not None}


def _size(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else exact_bytes(size_bytes)


def _time(duration_ns: int | None) -> str | None:
    return None if duration_ns is None else exact_duration(duration_ns)


def launch_group(environ: Mapping[str, str]) -> str:
    """The default group for processes that one launcher started together; empty: no launcher.

    The shim derives the same (shim/job/settings.cpp); docs/adr/0012 says why these variables.
    """
    run, port = environ.get("TORCHELASTIC_RUN_ID"), environ.get("MASTER_PORT", "")
    job, step = environ.get("SLURM_JOB_ID"), environ.get("SLURM_STEP_ID")
    if run:
        name = f"torchrun:{port}:{run}"
    elif job and step and environ.get("SLURM_STEP_NUM_TASKS", "1") not in ("", "1"):
        name = f"slurm:{job}.{step}"
    else:
        name = ""
    printable = (byte if 0x20 <= byte < 0x7F else ord("?") for byte in os.fsencode(name))
    return bytes(printable).decode()  # its text is not ours to reject: the job starts in any case


def of_daemon(said: Mapping[str, str], job: Mapping[str, str]) -> dict[str, str]:
    """The variables of a daemon's answer that go into a job's environment.

    Settings for MPS and the choice of the GPU must be there before the driver starts. Where the job
    sets a variable of MPS itself, its value stands. The daemon chooses a GPU only to resolve --gpu,
    and sets a memory limit only where the user may not have more; the shim reports that limit from
    the start.
    """
    taken = {}
    for name, value in said.items():
        if name in (SHOWN, MEMORY):
            taken[name] = value
            continue
        if not name.startswith("CUDA_MPS_"):
            continue  # our daemons send nothing else
        if job.get(name, value) != value:
            sys.stderr.write(
                f"tandem: warning: {name} stays {job[name]!r}; the daemon asked for {value!r}\n"
            )
            continue
        taken[name] = value
    return taken


def is_instance(gpu: str | None) -> bool:
    """Whether it is a MIG instance, as `tandem gpus` names it.

    CUDA knows only UUIDs, so the daemon has to translate the name.
    """
    return gpu is not None and ":" in gpu


def returning(job: Mapping[str, str]) -> dict[str, str]:
    """The variable that makes PyTorch return freed memory, unless the job sets its own."""
    # PyTorch's own allocator keeps freed memory; the driver's returns it at the next
    # synchronization.
    said = next((name for name in _PYTORCH_ALLOCATOR if name in job), None)
    if said is None:
        return {_PYTORCH_ALLOCATOR[0]: _RETURNING}
    if _RETURNING not in job[said].split(","):
        sys.stderr.write(
            f"tandem: warning: {said} stays {job[said]!r}: without {_RETURNING}, PyTorch keeps the "
            "memory that it has freed\n"
        )
    return {}


def _check_promise(request: Request) -> None:
    if (request.persistent_bytes is None) != (request.ephemeral_bytes is None):
        said, missing = "--persistent", "--ephemeral"
        if request.persistent_bytes is None:
            said, missing = missing, said
        raise UsageError(f"{said} has no meaning without {missing}; give both, 0 for none")
    _check_within_limit(request, "--persistent", request.persistent_bytes)


def _check_minimum(request: Request) -> None:
    _check_within_limit(request, "--memory-min", request.memory_min_bytes)


def _check_within_limit(request: Request, option: str, value: int | None) -> None:
    limit = request.memory_bytes
    if limit is not None and value is not None and value > limit:
        raise UsageError(
            f"{option} {format_bytes(value)} is more than --memory {format_bytes(limit)}; "
            "lower one, or raise the other"
        )


def _is_id(name: str) -> bool:
    digits = name.removeprefix("j-")
    return digits not in ("", name) and set(digits) <= set("0123456789abcdef")


def _check_names(request: Request) -> None:
    if request.name and not request.name.strip():
        raise UsageError("--name is blank; give it a letter, or omit it")
    if _is_id(request.name):
        raise UsageError(f"--name {request.name!r} looks like a job id; choose another")
    for option, value in (("--name", request.name), ("--group", request.group)):
        if not value.isprintable():  # also rejects characters that are not text
            raise UsageError(f"{option} {value!r} has characters that cannot be printed")
        if len(value.encode()) > _PRINTABLE_NAME_BYTES:
            raise UsageError(
                f"{option} has {len(value.encode())} bytes; at most {_PRINTABLE_NAME_BYTES} are "
                "allowed"
            )
