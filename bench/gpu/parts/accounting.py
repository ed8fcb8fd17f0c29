"""Who counts what for an allocation: NVML, and for a job the daemon; allocator by allocator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from bench.gpu.harness import native
from bench.gpu.harness.part import GPU, Bench, say
from bench.gpu.harness.questions import FAILURES, READY_S, nvml
from tandem import Client
from tandem.demo.place import Place
from tandem.demo.process import Message, Worker
from tandem.demo.scenario import Scenario
from tandem.errors import TandemError

MIB = 1 << 20
KINDS = (
    "linear",
    "small",
    "pitch",
    "async",
    "pool",
    "mapped",
    "managed",
    "array",
    "mipmapped",
    "graph",
)
BYTES, DRY_BYTES = 512 * MIB, 64 * MIB
MOST_FAILURES = 3
SETTLED_S = 3.0  # for the daemon to hear of a change
LOOK_S = 0.06
ROLE = "holder"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A process that takes memory when it is told to, and who counts it."""

    worker: Worker
    reader: Worker  # of NVML
    context_bytes: int  # by NVML, when it had a context and a module
    job_bytes: Callable[[], int] | None  # by the daemon


Start = Callable[[Sequence[str]], AbstractContextManager[Run]]


def accounts(start: Start, kinds: Sequence[str] = KINDS) -> dict[str, Any]:
    """What each allocator costs. One at which the process fails leaves the others to a new one."""
    found: dict[str, Any] = {}
    left, failures = list(kinds), 0
    while left and failures < MOST_FAILURES:
        try:
            with start(left) as run:
                found |= {"context_bytes": run.context_bytes, **_listing(run)}
                while left:
                    found[left[0]] = _account(run)
                    del left[0]
        except (*FAILURES, TandemError) as failure:
            failures += 1
            said = f"{type(failure).__name__}: {failure}"[-400:]
            say(f"accounting, {left[0]}: {said}")
            found[left.pop(0)] = {"error": said}
    return found | {kind: {"error": "not asked, too much failed before"} for kind in left}


def _account(run: Run) -> Message:
    """Bytes by everybody's count while it holds an allocation, over those before."""
    job_before = _settled(run.job_bytes, 0)
    before = _read(run.reader)["used_bytes"]
    run.worker.go()
    held = run.worker.wait_for("held", deadline_s=READY_S)
    after = _read(run.reader)["used_bytes"]
    asked = held["asked_bytes"]
    job_after = _settled(run.job_bytes, job_before + asked)
    run.worker.go()
    run.worker.wait_for("freed", deadline_s=READY_S)
    left = _read(run.reader)["used_bytes"] - before
    nvml_bytes, job_bytes = after - before, job_after - job_before
    found: Message = {
        "result": held["result"],
        "asked_bytes": asked,
        "nvml_bytes": nvml_bytes,
        "nvml_vs_asked": ratio(nvml_bytes, asked),
        "left_bytes": left,
    }
    if run.job_bytes is not None:
        found |= {"job_bytes": job_bytes, "job_vs_nvml": ratio(job_bytes, nvml_bytes)}
    return found


def ratio(part: int, whole: int) -> float | str:
    """Rounded; or in words, where there is nothing to divide by."""
    if whole:
        return round(part / whole, 4)
    return "both are 0" if part == 0 else f"{part} over 0"


def _listing(run: Run) -> Message:
    """How NVML names the process."""
    said = _read(run.reader)
    listed = said["processes"]
    pid = str(run.worker.pid)
    return {
        "listing": said["result"],
        "processes": len(listed),
        "is_listed": pid in listed,
        "listed_bytes_known": listed.get(pid) is not None,
    }


def _read(reader: Worker) -> Message:
    reader.go()
    return reader.wait_for("read", deadline_s=READY_S)


def _settled(job_bytes: Callable[[], int] | None, expected: int) -> int:
    """What the daemon says once it says what is expected, or the same for long enough."""
    if job_bytes is None:
        return 0
    end = time.monotonic() + SETTLED_S
    before = job_bytes()
    same = 0
    while time.monotonic() < end and same < 5:
        time.sleep(LOOK_S)
        now = job_bytes()
        same = same + 1 if now == before else 0
        before = now
        if now == expected and same:
            break
    return before


class Counts:
    """Starts the process that takes memory, with and without Tandem."""

    def __init__(self, bench: Bench, place: Place) -> None:
        self._bench, self._place = bench, place
        self._runs = 0

    @contextmanager
    def bare(self, kinds: Sequence[str]) -> Iterator[Run]:
        """Without."""
        self._runs += 1
        env = self._place.env(self._bench.folder / f"gpu-{self._place.mode}")
        command, logs = self._command(kinds), self._bench.folder / "logs"
        with nvml(self._place, self._bench) as reader:
            before = _read(reader)["used_bytes"]
            with native.talking(f"bare-{self._runs}", command, env, logs) as worker:
                for said in ("up", "ready"):
                    worker.wait_for(said, deadline_s=READY_S)
                    worker.go()
                context_bytes = _read(reader)["used_bytes"] - before
                yield Run(worker=worker, reader=reader, context_bytes=context_bytes, job_bytes=None)

    @contextmanager
    def managed(self, kinds: Sequence[str], *options: str) -> Iterator[Run]:
        """As a job, with these options of `tandem run`."""
        self._runs += 1
        folder = self._bench.folder / f"managed-{self._runs}"
        with (
            Scenario(
                name="accounting",
                place=self._place,
                program=lambda _role: self._command(kinds),
                roles=(ROLE,),
                seconds=0,
                folder=folder,
                managed=True,
                options=options,
            ) as scenario,
            nvml(self._place, self._bench, folder=folder / "gpu") as reader,
        ):
            before = _read(reader)["used_bytes"]
            scenario.start()
            context_bytes = _read(reader)["used_bytes"] - before
            with Client(directory=str(scenario.runtime_dir)) as client:
                yield Run(
                    worker=scenario.workers[ROLE],
                    reader=reader,
                    context_bytes=context_bytes,
                    job_bytes=lambda: client.job(ROLE, deadline_s=READY_S).resident_bytes,
                )

    def swappable(self, kinds: Sequence[str]) -> AbstractContextManager[Run]:
        """As a job whose memory may be moved: of mapped pieces that small allocations share."""
        return self.managed(kinds, "--swappable")

    def _command(self, kinds: Sequence[str]) -> list[str]:
        size_bytes = BYTES if self._bench.where == GPU else DRY_BYTES
        program = native.program(self._bench, "allocators")
        image = native.kernels(self._bench, "memory")
        return [str(program), str(image), str(size_bytes), *kinds]
