"""What NVML, and for a job the daemon, count for an allocation; allocator by allocator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from bench.gpu.harness import children, native
from bench.gpu.harness.children import PATIENCE_S, told
from bench.gpu.harness.part import GPU, Bench, say
from bench.gpu.harness.questions import FAILURES, nvml
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
SETTLED_S = 3.0  # for the daemon to learn of a change
LOOK_S = 0.06
ROLE = "holder"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A process that allocates memory when told to, and those who count it."""

    worker: Worker
    reader: Worker  # queries NVML
    context_bytes: int  # by NVML, once the process had a context and a module
    job_bytes: Callable[[], int] | None  # by the daemon; None without one


Start = Callable[[Sequence[str]], AbstractContextManager[Run]]
Account = Callable[[Run], Message]


def accounts(
    start: Start, kinds: Sequence[str] = KINDS, account: Account | None = None
) -> dict[str, Any]:
    """Find what each allocator costs. If the process fails at one, a new process does the others.

    `account` is what to find out for each kind: by default, what is counted for it.
    """
    found: dict[str, Any] = {}
    left, failures = list(kinds), 0
    while left and failures < MOST_FAILURES:
        try:
            with start(left) as run:
                found |= {"context_bytes": run.context_bytes, **_listing(run)}
                while left:
                    found[left[0]] = (account or _account)(run)
                    del left[0]
        except (*FAILURES, TandemError) as failure:
            failures += 1
            said = f"{type(failure).__name__}: {failure}"[-400:]
            say(f"accounting, {left[0]}: {said}")
            found[left.pop(0)] = {"error": said}
    return found | {kind: {"error": "not asked, too much failed before"} for kind in left}


def _account(run: Run) -> Message:
    """The bytes that each party counts for an allocation while the process holds it."""
    job_before = settled(run.job_bytes, 0)
    before = told(run.reader, "read")["used_bytes"]
    held = told(run.worker, "held")
    after = told(run.reader, "read")["used_bytes"]
    asked = held["asked_bytes"]
    job_after = settled(run.job_bytes, job_before + asked)
    told(run.worker, "freed")
    left = told(run.reader, "read")["used_bytes"] - before
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
    """The rounded ratio; in words if `whole` is 0."""
    if whole:
        return round(part / whole, 4)
    return "both are 0" if part == 0 else f"{part} over 0"


def _listing(run: Run) -> Message:
    """How NVML lists the process."""
    said = told(run.reader, "read")
    listed = said["processes"]
    pid = str(run.worker.pid)
    return {
        "listing": said["result"],
        "processes": len(listed),
        "is_listed": pid in listed,
        "listed_bytes_known": listed.get(pid) is not None,
    }


def settled(job_bytes: Callable[[], int] | None, expected: int | None = None) -> int:
    """Wait until the daemon reports what is expected, or the same for long enough; return that."""
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
    """Starts a program of facts/ that allocates memory, with and without Tandem."""

    def __init__(self, bench: Bench, place: Place, program: str) -> None:
        self._bench, self._place, self._program = bench, place, program
        self._runs = 0

    @contextmanager
    def bare(self, kinds: Sequence[str]) -> Iterator[Run]:
        """Run it without Tandem."""
        env = children.environment(self._bench, self._place)
        with nvml(self._bench, env) as reader:
            before = told(reader, "read")["used_bytes"]
            with children.talking(self._bench, self._command(kinds), env) as worker:
                for said in ("up", "ready"):
                    children.heard(worker, said)
                    worker.go()
                context_bytes = told(reader, "read")["used_bytes"] - before
                yield Run(worker=worker, reader=reader, context_bytes=context_bytes, job_bytes=None)

    @contextmanager
    def managed(self, kinds: Sequence[str], *options: str) -> Iterator[Run]:
        """Run it as a job, with these options of `tandem run`."""
        self._runs += 1
        folder = self._bench.folder / f"{self._program}-managed-{self._runs}"
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
            nvml(self._bench, self._place.env(folder / "gpu")) as reader,
        ):
            before = told(reader, "read")["used_bytes"]
            scenario.start()
            context_bytes = told(reader, "read")["used_bytes"] - before
            with Client(directory=str(scenario.runtime_dir)) as client:
                yield Run(
                    worker=scenario.workers[ROLE],
                    reader=reader,
                    context_bytes=context_bytes,
                    job_bytes=lambda: client.job(ROLE, deadline_s=PATIENCE_S).resident_bytes,
                )

    def swappable(self, kinds: Sequence[str]) -> AbstractContextManager[Run]:
        """Run it as a job whose memory may be moved: mapped pieces, shared by small allocations."""
        return self.managed(kinds, "--swappable")

    def _command(self, kinds: Sequence[str]) -> list[str]:
        size_bytes = BYTES if self._bench.where == GPU else DRY_BYTES
        return native.command(self._bench, self._program, "memory", size_bytes, *kinds)
