"""The variables by which a program runs under Tandem: `tandem run` sets them, `tandem env` prints.

They are requests: a daemon holds them against what its configuration allows.
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
# Where PyTorch reads its allocator's settings; from 2.9 on the second name counts as well.
_PYTORCH_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_RETURNING = "backend:cudaMallocAsync"
# As the daemon says it of a job that starts (tandemd/core/effects.py).
NO_RELEASE = (
    "idle_release has no effect: only a job that was started with --swappable gives its memory up "
    "when idle"
)
_PRINTABLE_NAME_BYTES = _attach.NAME_BYTES - 1


def check_request(request: Request) -> None:
    """Refuse what contradicts itself.

    Raises:
        UsageError: a name the wire has no room for, half a promise of memory, or a minimum of it
            above the limit.
    """
    _check_names(request)
    _check_promise(request)
    _check_minimum(request)


def job_environment(
    request: Request, present: Mapping[str, str], *, gpu: str | None, return_memory: bool
) -> dict[str, str]:
    """What a program needs besides `present`, but for where the daemon is.

    Raises:
        StateError: there is no usable shim.
    """
    variables = request_environment(request)
    variables["LD_PRELOAD"] = preload(_paths.SHIM, present.get("LD_PRELOAD", ""))
    if present.get("TANDEM_CHECKPOINT") and not request.checkpoint:
        variables["TANDEM_CHECKPOINT"] = "0"  # or the shim would take what was taken back
    if return_memory:
        variables |= returning(present)
    if gpu is not None and not is_instance(gpu):
        variables |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", SHOWN: gpu}
    return variables


def preload(library: Path, present: str) -> str:
    """LD_PRELOAD with `library` first and once; what was there stays.

    Raises:
        StateError: the library is missing, or its path cannot stand in LD_PRELOAD.
    """
    check_installed(library)
    text = str(library)
    if " " in text or ":" in text:  # the loader splits there, and knows no escape
        raise StateError(
            f"{text!r} has a space or colon, which LD_PRELOAD cannot hold; install elsewhere"
        )
    others = [p for p in present.replace(" ", ":").split(":") if p and p != text]
    return ":".join([text, *others])


def check_installed(file: Path) -> None:
    """Refuse to go on without a file of ours.

    Raises:
        StateError: it is missing.
    """
    if not file.is_file():
        raise StateError(
            f"{file} is missing; reinstall gpu-tandem, or run `make build` in a source tree"
        )


def request_environment(request: Request) -> dict[str, str]:
    """The request as the shim reads it, and only what was said."""
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
    """The group of what one launcher started together, where no other was said; empty: none.

    The shim reads it likewise (shim/job/settings.cpp); docs/adr/0012 says why these variables.
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
    return bytes(printable).decode()  # nobody wrote it for us: whatever is in it, the job starts


def of_daemon(said: Mapping[str, str], job: Mapping[str, str]) -> dict[str, str]:
    """What of a daemon's word about a job's environment goes into it.

    What MPS is told, and which GPU is meant, has to be there when the driver starts. The job's own
    word about MPS stands; about the GPU the daemon only says what --gpu means, and about memory
    that the user may have no more, which the shim shows from its start.
    """
    taken = {}
    for name, value in said.items():
        if name in (SHOWN, MEMORY):
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


def is_instance(gpu: str | None) -> bool:
    """Whether it is one of MIG, as `tandem gpus` calls it.

    CUDA knows UUIDs alone, and the daemon says which one it is.
    """
    return gpu is not None and ":" in gpu


def returning(job: Mapping[str, str]) -> dict[str, str]:
    """What has PyTorch give memory back that it has freed, unless the job says otherwise."""
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


def _check_promise(request: Request) -> None:
    if (request.persistent_bytes is None) != (request.ephemeral_bytes is None):
        said, missing = "--persistent", "--ephemeral"
        if request.persistent_bytes is None:
            said, missing = missing, said
        raise UsageError(f"{said} says nothing without {missing}; give both, 0 for none")
    _check_within_limit(request, "--persistent", request.persistent_bytes)


def _check_minimum(request: Request) -> None:
    _check_within_limit(request, "--memory-min", request.memory_min_bytes)


def _check_within_limit(request: Request, option: str, value: int | None) -> None:
    limit = request.memory_bytes
    if limit is not None and value is not None and value > limit:
        raise UsageError(
            f"{option} {format_bytes(value)} is more than --memory {format_bytes(limit)}; "
            "lower the one, or raise the other"
        )


def _is_id(name: str) -> bool:
    digits = name.removeprefix("j-")
    return digits not in ("", name) and set(digits) <= set("0123456789abcdef")


def _check_names(request: Request) -> None:
    if request.name and not request.name.strip():
        raise UsageError("--name is blank; give it a letter, or leave it out")
    if _is_id(request.name):
        raise UsageError(f"--name {request.name!r} looks like the id of a job; choose another")
    for option, value in (("--name", request.name), ("--group", request.group)):
        if not value.isprintable():  # nor has it characters then that are no text
            raise UsageError(f"{option} {value!r} has characters that cannot be printed")
        if len(value.encode()) > _PRINTABLE_NAME_BYTES:
            raise UsageError(
                f"{option} has {len(value.encode())} bytes; at most {_PRINTABLE_NAME_BYTES} fit"
            )
