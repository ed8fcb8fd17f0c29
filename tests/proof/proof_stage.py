"""Runs a program of driver calls on the software GPU, bare and under the shim with a daemon."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "csrc"))

from proof_keeper import PATIENCE_S, Keeper, Watched, wait_for_end
from proof_program import Program
from proof_tandemd import Master

from tandem import softgpu
from tandem.demo.image import gpu_image, software_image, whole
from tandem.demo.place import probe

WORK = ("kernel", "copy_htod", "copy_dtoh", "copy_dtod", "memset", "host")
Stamp = tuple[str, str, int]  # kind, name and bytes of one piece of work


@dataclass(kw_only=True)
class Outcome:
    """The outcome of one run of a program."""

    steps: dict[int, str] = field(default_factory=dict)  # index -> result code and what was written
    notes: list[int] = field(default_factory=list)  # host functions, in the order they ran
    raw: dict[str, int] = field(default_factory=dict)  # handles at the end
    work: list[list[Stamp]] = field(default_factory=list)  # of each stream, in order
    end: str = ""  # how the process ended, if not well
    watched: Watched | None = None


class Stage:
    """A folder with the interpreter and the kernels, where programs run one after another."""

    def __init__(
        self,
        shim: Path | None = None,
        *,
        on_gpu: bool = False,
        under_tandemd: bool = False,
        in_sets: bool = False,
        made: Path | None = None,
    ) -> None:
        """Prepare a stage; with `on_gpu`, on the machine's driver, where no timeline says what ran.

        With `under_tandemd` each managed run has a daemon process, which says less about it. With
        `in_sets` the software GPU is under MPS, and the set of SMs of a managed run changes at
        random between its calls, in the same way each time the same program runs. Stages may share
        `made`, the folder of what they compile.
        """
        self.folder = Path(tempfile.mkdtemp(prefix="tandem-"))  # short, because it holds sockets
        self.shim = shim or ROOT / "client/tandem/libtandem.so"
        self.extra: dict[str, str] = {}
        self._on_gpu, self._under_tandemd, self._in_sets = on_gpu, under_tandemd, in_sets
        made, kernels = made or self.folder, HERE / "kernels.cu"
        self._interpreter = _interpreter(made)
        if on_gpu:
            capability = str(probe(os.environ)["capability"])
            self._image = gpu_image(made, kernels, capability=capability)
        else:
            self._image = software_image(made, kernels)
        self._runs = 0

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def bare(self, program: Program) -> Outcome:
        return self._run(program, None)

    def managed(self, program: Program) -> Outcome:
        if self._under_tandemd:
            return self._run(program, Master(self.folder / f"run{self._runs}"))
        sets = random.Random(program.text()) if self._in_sets else None
        keeper = Keeper(self.folder / "run", is_virtual=not self._on_gpu, sets=sets)
        return self._run(program, keeper)

    def _run(self, program: Program, keeper: Keeper | Master | None) -> Outcome:
        self._runs += 1
        place = self.folder / str(self._runs)
        place.mkdir()
        (place / "program").write_text(program.text())
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TANDEM_", "LD_PRELOAD"))}
        if not self._on_gpu:
            env = softgpu.environment(env, folder=place)
        if keeper:
            env |= {"LD_PRELOAD": str(self.shim), "TANDEM_RUNTIME_DIR": str(keeper.folder)}
            env |= self.extra | ({"PROOF_SAYS_STEPS": "1"} if self._in_sets else {})
        if self._on_gpu:
            outcome = self._interpret(place, env, keeper)
        else:
            kind = {"profile": "h200", "mode": "mps"} if self._in_sets else {"profile": "tiny"}
            with _device(place, program.devices, kind):
                outcome = self._interpret(place, env, keeper)
            outcome.work = _work(place / "timeline")
            if self._in_sets:  # a stream's work is in one of the driver's streams for each set
                outcome.work = [sorted(stamp for stream in outcome.work for stamp in stream)]
        shutil.rmtree(place)
        return outcome

    def _interpret(
        self, place: Path, env: Mapping[str, str], keeper: Keeper | Master | None
    ) -> Outcome:
        command = [str(self._interpreter), str(place / "program"), str(self._image)]
        with (place / "out").open("w+") as out, (place / "err").open("w+") as err:
            if keeper is None:
                child = subprocess.Popen(command, env=env, stdout=out, stderr=err)
                end = wait_for_end(child, PATIENCE_S)
                watched = None
            else:
                end, watched = keeper.watch(command, env, out, err)
            out.seek(0)
            err.seek(0)
            outcome = _read(out.read())
            said = err.read().strip()
        outcome.end = end + (f": {said}" if said else "")
        outcome.watched = watched
        return outcome


def _interpreter(folder: Path) -> Path:
    """Compile the interpreter, unless it is already in that folder."""
    output = folder / "interpreter"
    if not output.exists():
        compiler = shlex.split(os.environ.get("CXX", "g++"))
        flags = ["-std=c++17", "-O1", "-Wall", "-Wextra"]
        with whole(output) as half:
            source = [str(HERE / "interpreter.cpp"), "-o", str(half), "-ldl", "-pthread"]
            subprocess.run([*compiler, *flags, *source], check=True)
    return output


@contextmanager
def _device(place: Path, devices: int, kind: Mapping[str, str]) -> Iterator[None]:
    """Run a device process as our own child, so that it ends when we say so."""
    read, write = os.pipe()
    options = {"dir": place, **kind, "clock": "virtual", "linger-ms": 0}
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
        # It ends by itself after its last client. If no client ever came, do not wait for that.
        with suppress(subprocess.TimeoutExpired):
            gpu.wait(PATIENCE_S)
    finally:
        gpu.kill()
        gpu.wait()


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
    """Return each stream's work in order, streams by their numbers, which the client assigns."""
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
