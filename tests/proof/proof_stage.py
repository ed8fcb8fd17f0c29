"""Runs a program of driver calls on the software GPU, bare and under the shim with a daemon."""

from __future__ import annotations

import json
import mmap
import os
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "csrc"), str(ROOT / "tests/shim")]

from proof_program import Program
from shim_daemon import MONOTONIC, SLOTS_OFFSET, VIRTUAL, Attached, FakeDaemon

from tandem import softgpu

PATIENCE_S = 20  # of real time, for a program of some milliseconds
LONGEST_STALE_NS = 10**10  # that a shim believes
WORK = ("kernel", "copy_htod", "copy_dtoh", "copy_dtod", "memset", "host")
SLOTS_BYTES, LIVE = 256 * 64, 1  # shm::kSlotCount, shm::SlotState::kLive
Stamp = tuple[str, str, int]  # kind, name, bytes of one piece of work


@dataclass(kw_only=True)
class Outcome:
    """What one run of a program came to."""

    steps: dict[int, str] = field(default_factory=dict)  # index -> code and what was written
    notes: list[int] = field(default_factory=list)  # host functions, in the order they ran
    raw: dict[str, int] = field(default_factory=dict)  # handles at the end
    work: list[list[Stamp]] = field(default_factory=list)  # of each stream, in order
    end: str = ""  # how the process ended, if not well
    watched: Watched | None = None


@dataclass(kw_only=True)
class Watched:
    """What the daemon's side saw of a managed run."""

    tallies: dict[int, int] = field(default_factory=dict)  # step -> bytes the job counts as its own
    passed: list[int] = field(default_factory=list)  # calls that came back while the gate was shut
    waited: list[int] = field(default_factory=list)  # calls that waited until it was opened
    slots: list[int] = field(default_factory=list)  # handles of the streams that have one
    records: Counter[tuple[int, int]] = field(default_factory=Counter)  # (kind, stream) -> number
    dropped: int = 0
    live_slots: int = 0
    open_segments: int = 0
    capturing: int = 0
    device_bytes: int = 0
    is_attached: bool = False


class Stage:
    """A folder with the interpreter and the kernels, where programs run one after another."""

    def __init__(self, shim: Path | None = None, *, on_gpu: bool = False) -> None:
        """With `on_gpu` on the machine's own driver, where no timeline says what ran."""
        self.folder = Path(tempfile.mkdtemp(prefix="tandem-"))  # short: sockets live in it
        self.shim = shim or ROOT / "client/tandem/libtandem.so"
        self.extra: dict[str, str] = {}
        self._interpreter = self.folder / "interpreter"
        self._image = self.folder / "kernels.so"
        compiler = [
            *shlex.split(os.environ.get("CXX", "g++")),
            "-std=c++17",
            "-O1",
            "-Wall",
            "-Wextra",
        ]
        source = str(HERE / "interpreter.cpp")
        subprocess.run(
            [*compiler, source, "-o", str(self._interpreter), "-ldl", "-pthread"], check=True
        )
        self._on_gpu = on_gpu
        if on_gpu:
            _compile_for_gpu(HERE / "kernels.cu", self._image)
        else:
            softgpu.compile_kernels(HERE / "kernels.cu", self._image)
        self._runs = 0

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def bare(self, program: Program) -> Outcome:
        return self._run(program, None)

    def managed(self, program: Program) -> Outcome:
        runtime = self.folder / "run"
        runtime.mkdir(exist_ok=True)
        daemon = FakeDaemon(runtime)
        try:
            return self._run(program, Keeper(daemon, is_virtual=not self._on_gpu))
        finally:
            daemon.close()

    def _run(self, program: Program, keeper: Keeper | None) -> Outcome:
        self._runs += 1
        place = self.folder / str(self._runs)
        place.mkdir()
        (place / "program").write_text(program.text())
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TANDEM_", "LD_PRELOAD"))}
        if not self._on_gpu:
            env = softgpu.environment(env, folder=place)
        if keeper:
            env |= {"LD_PRELOAD": str(self.shim), "TANDEM_RUNTIME_DIR": str(self.folder / "run")}
            env |= self.extra
        if self._on_gpu:
            outcome = self._interpret(place, env, keeper)
        else:
            with _device(place, program.devices):
                outcome = self._interpret(place, env, keeper)
            outcome.work = _work(place / "timeline")
        shutil.rmtree(place)
        return outcome

    def _interpret(self, place: Path, env: Mapping[str, str], keeper: Keeper | None) -> Outcome:
        command = [str(self._interpreter), str(place / "program"), str(self._image)]
        with (place / "out").open("w+") as out, (place / "err").open("w+") as err:
            if keeper is None:
                child = subprocess.Popen(command, env=env, stdout=out, stderr=err)
                end = _wait(child, PATIENCE_S)
                watched = None
            else:
                child, end, watched = keeper.watch(command, env, out, err)
            out.seek(0)
            err.seek(0)
            outcome = _read(out.read())
            said = err.read().strip()
        outcome.end = end + (f": {said}" if said else "")
        outcome.watched = watched
        return outcome


class Keeper:
    """The daemon of one managed run: shuts the gate when asked, opens it when somebody waits."""

    def __init__(self, daemon: FakeDaemon, *, is_virtual: bool) -> None:
        self._daemon = daemon
        self._is_virtual = is_virtual
        self._job: Attached | None = None
        self._others: list[Attached] = []  # the second process, whose gate stays open
        self._seen = Watched()
        self._is_shut = False
        self._now_ns = 0  # on the job's clock, as its helper last said

    def watch(self, command, env, out, err):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            env = {**env, "PROOF_CONTROL_FD": str(theirs.fileno())}
            child = subprocess.Popen(
                command, env=env, stdout=out, stderr=err, pass_fds=[theirs.fileno()]
            )
            theirs.close()
            ended = self._serve(ours)
        end = _wait(child, PATIENCE_S if ended else 0)
        for job in filter(None, (self._job, *self._others)):
            job.process.close()
        return child, end, self._seen

    def _serve(self, control: socket.socket) -> bool:
        """Until the program says that it has ended; False when it does not."""
        give_up = time.monotonic() + PATIENCE_S
        listener = self._daemon._listener
        while time.monotonic() < give_up:
            ready, _, _ = select.select([control, listener], [], [], 0.0002 if self._is_shut else 1)
            if listener in ready:
                self._attach()
            if control in ready:
                line = control.recv(100).decode().split()
                if not line:
                    return True
                control.send(self._answer(*line))
            elif self._is_shut:
                self._open_if_somebody_waits()
        return False

    def _attach(self) -> None:
        clock = VIRTUAL if self._is_virtual else MONOTONIC
        job = self._daemon.attach(clock=clock, hold=self._is_shut and not self._job)
        job.process.set_stale(stale_ns=LONGEST_STALE_NS)
        if self._job:
            self._others.append(job)
            return
        self._job = job
        if self._is_virtual:
            job.now_ns = lambda: self._now_ns
        job.keep_records()
        self._seen.is_attached = True

    def _answer(self, verb: str, step: str = "") -> bytes:
        if verb == "hold":
            self._shut(shut=True)
        elif verb == "done":
            if not self._is_shut:
                self._seen.waited.append(int(step))
                return b"o"
            self._seen.passed.append(int(step))
            return b"s"
        elif verb == "tally" and self._job:
            self._seen.tallies[int(step)] = self._job.snapshot().device_bytes
        elif verb == "end":
            self._look_back()
        return b"k"

    def _shut(self, *, shut: bool) -> None:
        self._is_shut = shut
        if self._job:
            self._job.process.set_gate(hold=shut)

    def _open_if_somebody_waits(self) -> None:
        if self._job is None:
            return
        snapshot = self._job.snapshot()
        self._now_ns = snapshot.helper_tick_ns
        if snapshot.waiting_threads:
            self._shut(shut=False)

    def _look_back(self) -> None:
        self._shut(shut=False)
        if self._job is None:
            return
        seen = self._seen
        for record in self._job.records():
            kind, stream = record[8], int.from_bytes(record[16:24], "little")
            seen.records[kind, stream] += 1
        snapshot = self._job.snapshot()
        seen.dropped = snapshot.dropped_records
        seen.live_slots = snapshot.live_slots
        seen.open_segments = snapshot.open_segments
        seen.capturing = snapshot.capturing
        seen.device_bytes = snapshot.device_bytes
        seen.slots = _live_slots(self._job)


def _live_slots(job: Attached) -> list[int]:
    """The streams of the state page's slots in use."""
    with mmap.mmap(job.process.fds[1], 0, prot=mmap.PROT_READ) as page:
        slots = struct.iter_unpack("<16xQ4xI32x", page[SLOTS_OFFSET : SLOTS_OFFSET + SLOTS_BYTES])
        return [stream for stream, state in slots if state == LIVE]


def _compile_for_gpu(source: Path, image: Path) -> None:
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    subprocess.run([nvcc, "-cubin", "-arch=native", "-o", str(image), str(source)], check=True)


@contextmanager
def _device(place: Path, devices: int) -> Iterator[None]:
    """A device process, as our own child: gone when we say so."""
    read, write = os.pipe()
    options = {"dir": place, "profile": "tiny", "clock": "virtual", "linger-ms": 0}
    options |= {"timeline": place / "timeline", "devices": devices, "ready-fd": write}
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with (place / "log").open("w") as log:
        gpu = subprocess.Popen(
            [str(softgpu.DEVICE_PROGRAM), *flags], pass_fds=[write], stderr=log, stdout=log
        )
    os.close(write)
    os.read(read, 1)
    os.close(read)
    try:
        yield
        # By itself, after its last client; one that never came is not waited for.
        with suppress(subprocess.TimeoutExpired):
            gpu.wait(PATIENCE_S)
    finally:
        gpu.kill()
        gpu.wait()


def _wait(child: subprocess.Popen[bytes], patience_s: float) -> str:
    try:
        code = child.wait(patience_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return "did not end"
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"ended with {code}" if code else ""


def _read(text: str) -> Outcome:
    outcome = Outcome()
    for line in text.splitlines():
        first, _, rest = line.partition(" ")
        if first == "note":
            outcome.notes.append(int(rest))
        elif first == "raw":
            name, value = rest.split()
            outcome.raw[name] = int(value)
        else:
            outcome.steps[int(first)] = rest
    return outcome


def _work(timeline: Path) -> list[list[Stamp]]:
    """Each stream's work in order; streams in order of their numbers, which are the client's."""
    streams: dict[tuple[int, int, int], list[Stamp]] = defaultdict(list)
    moved: Counter[tuple[int, int]] = Counter()
    for line in timeline.read_text().splitlines() if timeline.is_file() else ():
        part = json.loads(line)
        if part["kind"] not in WORK:
            continue
        op = part["client"], part["op"]
        moved[op] += part["bytes"]
        if part["last"]:
            stamp = (part["kind"], part["name"], moved[op])
            streams[part["client"], part["context"], part["stream"]].append(stamp)
    return [streams[number] for number in sorted(streams)]
