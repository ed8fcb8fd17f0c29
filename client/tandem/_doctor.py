"""The checks of `tandem doctor`: each examines one thing and suggests a remedy."""

import fcntl
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tandem import _attach, _doctor_helper, _doctor_sets, _fitness, _helper, _mps, _paths
from tandem._coverage import coverage
from tandem._environment import preload
from tandem._paths import RuntimeDir
from tandem.errors import DeadlineError, TandemError, UnavailableError

PROBE_TIMEOUT_S = 20.0
DAEMON_TIMEOUT_S = 2.0

OK, WARN, FAIL = "ok", "warn", "fail"

_SOFTWARE_GPU = Path(__file__).parent / "softgpu" / "lib"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    check: str
    level: str  # ok, warn, fail
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Facts that several checks use, collected once."""

    place: RuntimeDir
    shim: Path
    probe: dict[str, Any] | None  # None: the probe process under the shim failed
    probe_error: str
    tell: Callable[[str], None] = lambda _: None  # called before a check that takes a while


Check = Callable[[Machine], Iterator[Finding]]


def examine(tell: Callable[[str], None]) -> list[Finding]:
    """Run all checks; takes as long as the driver and the daemon take to answer.

    `tell` is called before a check that takes long.
    """
    machine = replace(_machine(), tell=tell)
    return [finding for check in CHECKS for finding in check(machine)]


def check_driver(machine: Machine) -> Iterator[Finding]:
    """Report which driver a job gets."""
    probe = machine.probe
    if probe is None:
        return  # check_shim reports that
    if probe["driver"] is None:
        yield Finding(
            check="driver",
            level=FAIL,
            text=f"no libcuda.so.1 ({probe['error']})",
            remedy="install NVIDIA's driver, or try `tandem softgpu run -- COMMAND`",
        )
        return
    software = Path(probe["driver"]).parent == _SOFTWARE_GPU
    kind = "software GPU" if software else "NVIDIA driver"
    version = f"CUDA {probe['version'] // 1000}.{probe['version'] % 1000 // 10}"
    if probe["init"] != 0:
        yield Finding(
            check="driver",
            level=FAIL,
            text=f"{kind} {probe['driver']} ({version}): cuInit failed with {probe['error']}",
            remedy="see its output above, and softgpu.log in its runtime directory"
            if software
            else "look at `nvidia-smi` and the kernel's log",
        )
        return
    gpus = ", ".join(probe["gpus"]) or "no GPU"
    level = OK if probe["gpus"] else FAIL
    yield Finding(check="driver", level=level, text=f"{kind} {probe['driver']} ({version}): {gpus}")


def check_checkpoints(machine: Machine) -> Iterator[Finding]:
    """Report whether `tandem run --checkpoint` can work."""
    if machine.probe is None or machine.probe["driver"] is None:
        return
    can = machine.probe["checkpoints"]
    text = "supported by the driver" if can else "not supported by this driver: 570 and newer do"
    yield Finding(check="checkpoints", level=OK, text=f"{text} (for `tandem run --checkpoint`)")


def check_shim(machine: Machine) -> Iterator[Finding]:
    """Report whether the preload library exists and loads."""
    if machine.probe is None:
        yield Finding(
            check="shim",
            level=FAIL,
            text=machine.probe_error,
            remedy="reinstall gpu-tandem, or run `make build` in a source tree",
        )
    elif not machine.probe["marks"]:
        reason = machine.probe_error or "no reason given"
        yield Finding(
            check="shim",
            level=FAIL,
            text=f"the loader rejected {machine.shim}: {reason}",
            remedy="check that it was built for this architecture and glibc",
        )
    else:
        yield _header_of_shim(machine.shim, machine.probe.get("version") or 0)


def _header_of_shim(shim: Path, driver_version: int) -> Finding:
    """Warn if the driver is newer than the build's cuda.h: its new functions have no wrapper."""
    built = coverage()
    text = f"{shim}, built with cuda.h {built.built_with}"
    if driver_version <= built.newest_version:
        return Finding(check="shim", level=OK, text=text)
    return Finding(
        check="shim",
        level=WARN,
        text=f"{text}; the driver is newer",
        remedy="programs that use its new functions are not intercepted: build with its cuda.h",
    )


def check_lookups(machine: Machine) -> Iterator[Finding]:
    """Report whether each way to look up a driver function leads to the shim."""
    if machine.probe is None or not machine.probe["marks"]:
        return
    for way, file in machine.probe["lookups"].items():
        if file is not None and Path(file).name == machine.shim.name:
            yield Finding(check=f"look-up by {way}", level=OK, text="leads to the shim")
        else:
            yield Finding(
                check=f"look-up by {way}",
                level=FAIL,
                text=f"leads to {file or 'nothing'}, past the shim",
                remedy="jobs that look functions up like this run unshared; please report it",
            )


def check_kernel(_machine: Machine) -> Iterator[Finding]:
    """Report the kernel features that shared memory and process identity rely on."""
    needs = {
        "sealed shared memory": (_seals_work, "Linux 5.1 or newer"),
        "pidfd": (_pidfd_works, "Linux 5.3 or newer; the daemon falls back to start times"),
    }
    for name, (works, remedy) in needs.items():
        try:
            works()
        except (OSError, AttributeError) as exc:
            level = WARN if name == "pidfd" else FAIL
            yield Finding(check=name, level=level, text=str(exc), remedy=f"needs {remedy}")
        else:
            yield Finding(check=name, level=OK, text="available")


def check_host_memory(_machine: Machine) -> Iterator[Finding]:
    """Report which pages hold memory that is moved to the host, and on which NUMA node."""
    yield Finding(check="host memory", level=OK, text=pages_of_host(Path("/sys")))


def pages_of_host(sys_path: Path) -> str:
    """The text of `check_host_memory`, from what the kernel shows under `/sys`."""
    free = _read(sys_path / "kernel/mm/hugepages/hugepages-2048kB/free_hugepages").strip()
    words = _read(sys_path / "kernel/mm/transparent_hugepage/shmem_enabled").split()
    chosen = next((word.strip("[]") for word in words if word.startswith("[")), "never")
    if free.isdecimal() and free != "0":
        pages = f"up to {int(free) * 2} MiB of the huge pages set aside, then ordinary ones"
    elif chosen in ("never", "deny"):
        pages = "ordinary pages: no huge pages are set aside, and shmem_enabled is off"
    else:
        pages = f"transparent huge pages (shmem_enabled is {chosen})"
    nodes = len(list((sys_path / "devices/system/node").glob("node[0-9]*")))
    near = "the NUMA node of its gpu" if nodes > 1 else "the only NUMA node"
    return f"moved memory goes to {pages}; on {near}"


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def check_mps(machine: Machine) -> Iterator[Finding]:
    """Report whether a GPU can be in mode mps here, and whether MPS runs."""
    environ, own = os.environ, machine.place.path / "mps"
    if not _mps.can_start(environ):
        text = f"no {_mps.PROGRAM} on the PATH (it comes with NVIDIA's driver): no mode mps here"
        yield Finding(check="mps", level=OK, text=text)
        return
    helped = _helper.socket_of(environ).parent / _helper.MPS
    for place in dict.fromkeys((_mps.pipes_of(environ), own, helped)):
        control = _mps.Control(place, environment=environ, timeout_s=DAEMON_TIMEOUT_S)
        if (servers := control.servers()) is not None:
            listed = " ".join(str(server.pid) for server in servers) or "none"
            text = f"a control daemon answers in {place}; servers: {listed}"
            yield Finding(check="mps", level=OK, text=text)
            return
    text = 'it does not run; in mode mps (gpu."*".mode = "mps") tandemd starts it'
    if environ.get("TANDEM_SOFTGPU_MODE") == "mps":
        text = "it does not run; the software GPU does not need it (TANDEM_SOFTGPU_MODE=mps)"
    yield Finding(check="mps", level=OK, text=text)


def check_helper(machine: Machine) -> Iterator[Finding]:
    """Report whether a helper does what takes root, for a daemon that does not run as root."""
    found = _doctor_helper.verdict(machine.place.attach, os.environ)
    if found is not None:
        level = WARN if found.is_wrong else OK
        yield Finding(check="helper", level=level, text=found.text, remedy=found.remedy)


def check_modes(machine: Machine) -> Iterator[Finding]:
    """Report which modes work on each GPU, and why the others do not."""
    try:
        gpus = _fitness.gpus_of_nvml()
    except (ImportError, OSError):
        return  # other checks report that
    own_pipes = machine.place.path / "mps"
    facts = _fitness.machine_of(os.environ, own_pipes)
    known = _doctor_sets.known_to_daemon(machine.place.path)
    for gpu in gpus:
        sets = partial(_doctor_sets.verdict, gpu, own_pipes, known, machine.tell)
        yield from _modes_of(gpu, facts, sets)


def _sets_of(gpu: _fitness.GpuFacts, found: _doctor_sets.Verdict) -> Finding:
    return Finding(
        check=f"gpu {gpu.index}, mode mps+green",
        level=WARN if found.is_open else OK,
        text=found.text,
        remedy=found.remedy,
    )


def _modes_of(
    gpu: _fitness.GpuFacts, machine: _fitness.Machine, sets: Callable[[], _doctor_sets.Verdict]
) -> Iterator[Finding]:
    objections = _fitness.objections(gpu, machine)
    anything_works = not all(objections.values())
    for mode, why in objections.items():
        if mode == "mps+green" and not why:
            yield _sets_of(gpu, sets())
            continue
        needs_mending = not anything_works or (mode == "time" and gpu.compute_mode)
        yield Finding(
            check=f"gpu {gpu.index}, mode {mode}",
            level=WARN if why and needs_mending else OK,
            text=f"no: {why}" if why else "can work",
            remedy=_remedy(gpu) if why and needs_mending else "",
        )


def _remedy(gpu: _fitness.GpuFacts) -> str:
    if gpu.compute_mode:
        return f"nvidia-smi -i {gpu.index} -c DEFAULT, or configure mode mps"
    own = gpu.index
    return f"tandem partition apply --mig {own}=PROFILE,..., or turn MIG off with {own}=off"


def check_runtime_dir(machine: Machine) -> Iterator[Finding]:
    """Report where the daemon is looked for, and whether others could impersonate it."""
    path, origin = machine.place.path, machine.place.origin
    try:
        status = path.stat()
    except OSError as exc:
        yield Finding(
            check="runtime directory",
            level=WARN,
            text=f"{path} ({origin}): {exc.strerror}",
            remedy="start `tandemd`, which creates it, or set TANDEM_RUNTIME_DIR",
        )
        return
    text = f"{path} ({origin}), mode {stat.S_IMODE(status.st_mode):04o}, uid {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        remedy = f"chmod go-w {path}: others could put their own sockets there"
        yield Finding(check="runtime directory", level=FAIL, text=text, remedy=remedy)
    else:
        yield Finding(check="runtime directory", level=OK, text=text)


def check_sockets(machine: Machine) -> Iterator[Finding]:
    """Report whether the sockets exist and everybody who reaches the directory may use them."""
    place = machine.place
    if not os.path.isdir(place.path):
        return
    for path in (place.attach, place.login, place.rpc):
        try:
            mode = path.stat().st_mode
        except OSError as exc:
            yield Finding(
                check=path.name, level=FAIL, text=exc.strerror or "", remedy="start `tandemd`"
            )
            continue
        if not stat.S_ISSOCK(mode):
            yield Finding(
                check=path.name, level=FAIL, text="is not a socket", remedy=f"remove {path}"
            )
        elif stat.S_IMODE(mode) & 0o666 != 0o666:
            yield Finding(
                check=path.name,
                level=WARN,
                text=f"mode {stat.S_IMODE(mode):04o}: other users cannot connect",
                remedy="restart `tandemd`, which sets mode 0666",
            )
        else:
            yield Finding(check=path.name, level=OK, text=f"mode {stat.S_IMODE(mode):04o}")


def check_identity(machine: Machine) -> Iterator[Finding]:
    """Report whether the daemon sees processes of this PID namespace, usually that of the jobs."""
    request = _attach.Request(only_asks=True)
    try:
        answer = _attach.register(machine.place.attach, request, command="tandem doctor")
    except _attach.UntrustedError as error:
        yield Finding(
            check="identity", level=FAIL, text=str(error), remedy="set TANDEM_RUNTIME_DIR"
        )
        return
    except UnavailableError:
        return  # other checks report that
    if isinstance(answer, _attach.Refused) and answer.code == _attach.REFUSED_IDENTITY:
        text = f"the daemon refuses this process: {answer.reason}"
        remedy = "start the daemon's container with hostPID: true, or --pid=host"
        yield Finding(check="identity", level=FAIL, text=text, remedy=remedy)
    else:
        yield Finding(check="identity", level=OK, text="the daemon sees who attaches here")


def check_daemon(machine: Machine) -> Iterator[Finding]:
    """Report whether a daemon answers, and which GPU processes it does not know."""
    try:
        from tandem._client import Client
    except ImportError as exc:
        yield Finding(
            check="daemon",
            level=WARN,
            text=f"cannot ask it: {exc}",
            remedy="install Tandem with its [client] extra: pip install 'gpu-tandem[client]'",
        )
        return
    try:
        with Client(directory=str(machine.place.path)) as client:
            status = client.status(deadline_s=DAEMON_TIMEOUT_S)
            managed = {p.pid for job in client.jobs() for p in job.processes}
            gpus = client.gpus()
    except TandemError as exc:
        is_there = isinstance(exc, DeadlineError)
        remedy = "kill it and start another" if is_there else "start `tandemd`"
        yield Finding(check="daemon", level=FAIL, text=str(exc), remedy=remedy)
        return
    text = f"tandemd {status.version}, pid {status.pid}, policy {status.policy}, {status.jobs} jobs"
    yield Finding(check="daemon", level=OK, text=text)
    if status.state_problem is not None:
        yield Finding(
            check="daemon's state",
            level=WARN,
            text=status.state_problem,
            remedy="as long as that lasts, a restart of tandemd loses pauses, limits set while "
            "jobs run, and the history of jobs; daemon.state may name another file",
        )
    here = machine.probe["gpus"] if machine.probe else []
    if here and not gpus:
        yield Finding(
            check="daemon's gpus",
            level=WARN,
            text=f"the daemon sees no GPU, this shell sees {', '.join(here)}",
            remedy="restart tandemd where it sees them; for the software GPU with the same "
            '`eval "$(tandem softgpu env)"`',
        )
    for gpu in gpus:
        if gpu.not_had:
            yield Finding(
                check=f"gpu {gpu.name}",
                level=WARN,
                text=f"not in the configured mode: {gpu.not_had}",
                remedy="fix that and restart tandemd, or configure another mode",
            )
        if gpu.draining:
            yield Finding(
                check=f"gpu {gpu.name}",
                level=WARN,
                text="draining: no job is started there",
                remedy=f"when it may be used again: tandem drain --undo {gpu.name}",
            )
    yield from _unmanaged(managed)


def _unmanaged(managed: set[int]) -> Iterator[Finding]:
    try:
        running = _processes_of_nvml()
    except ImportError:
        yield Finding(
            check="unmanaged processes",
            level=WARN,
            text="cannot be seen without NVML's Python module",
            remedy="pip install nvidia-ml-py",
        )
        return
    except OSError as exc:
        yield Finding(check="unmanaged processes", level=WARN, text=f"cannot be seen: {exc}")
        return
    others = sorted(running - managed)
    elsewhere = [pid for pid in others if _has_shim(pid)]
    bare = [pid for pid in others if pid not in elsewhere]
    if not others:
        yield Finding(check="unmanaged processes", level=OK, text="none")
    if bare:
        yield Finding(
            check="unmanaged processes",
            level=WARN,
            text=f"on a GPU without Tandem: pid {', '.join(map(str, bare))}",
            remedy="start them with `tandem run`; until then nothing holds them back",
        )
    if elsewhere:
        yield Finding(
            check="unmanaged processes",
            level=WARN,
            text="on a GPU under Tandem, but not attached to this daemon: pid "
            + ", ".join(map(str, elsewhere)),
            remedy="use one daemon for each shared GPU: these belong to another, or were refused",
        )


def _has_shim(pid: int) -> bool:
    """Whether the process was started under Tandem, as far as we may see."""
    try:
        return f"/{_paths.SHIM.name}\n" in Path(f"/proc/{pid}/maps").read_text()
    except (OSError, UnicodeDecodeError):
        return False


def _processes_of_nvml() -> set[int]:
    import pynvml

    try:
        pynvml.nvmlInit()
        devices = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return {p.pid for d in devices for p in pynvml.nvmlDeviceGetComputeRunningProcesses(d)}
    except pynvml.NVMLError as exc:
        raise OSError(str(exc)) from exc


def _machine() -> Machine:
    place = _paths.runtime_dir(os.environ, uid=os.geteuid())
    probe, error = _run_probe(_paths.SHIM)
    return Machine(place=place, shim=_paths.SHIM, probe=probe, probe_error=error)


def _run_probe(shim: Path) -> tuple[dict[str, Any] | None, str]:
    try:
        loaded = preload(shim, os.environ.get("LD_PRELOAD", ""))
        # A socket on which nobody listens: the doctor must not show up as a job.
        environ = {**os.environ, "LD_PRELOAD": loaded, "TANDEM_SOCKET": "/nonexistent/attach.sock"}
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(
            [sys.executable, "-m", "tandem._probe"],
            env=environ,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
        errors = done.stderr.strip().splitlines()
        if done.returncode != 0:
            last = errors[-1] if errors else "no output"
            return None, f"a process under the shim ended with {done.returncode}: {last}"
        probe: dict[str, Any] = json.loads(done.stdout)
        return probe, errors[-1] if errors else ""
    except TandemError as exc:
        return None, str(exc)
    except subprocess.TimeoutExpired:
        return None, f"a process under the shim did not end within {PROBE_TIMEOUT_S:g} s"


def _seals_work() -> None:
    future_write = 0x10  # F_SEAL_FUTURE_WRITE, not in fcntl before Python 3.13
    fd = os.memfd_create("tandem-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | future_write)
    finally:
        os.close(fd)


def _pidfd_works() -> None:
    os.close(os.pidfd_open(os.getpid()))


# In display order: from the hardware up to the jobs.
CHECKS: tuple[Check, ...] = (
    check_driver,
    check_checkpoints,
    check_shim,
    check_lookups,
    check_kernel,
    check_host_memory,
    check_mps,
    check_modes,
    check_runtime_dir,
    check_sockets,
    check_identity,
    check_daemon,
    check_helper,
)
