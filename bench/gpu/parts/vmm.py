"""Part `vmm`: memory that is mapped and unmapped: what calls cost, how fast it moves, who waits.

Tests the driver alone, without Tandem. In a dry run, sizes are small and the figures mean nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil

from bench.gpu.harness import children, native
from bench.gpu.harness.beliefs import Belief
from bench.gpu.harness.children import told
from bench.gpu.harness.mps import without_mps
from bench.gpu.harness.part import GPU, Bench, main
from bench.gpu.harness.questions import all_answered, answered, big_place, prober, probing
from tandem.demo.process import Message, Worker, WorkerError

MIB, GIB = 1 << 20, 1 << 30
MOVE_BYTES = 40 * GIB  # at most
LESS_MOVE_BYTES = 16 * GIB  # if that is not ready in time
READY_S = 150.0  # to fill and pin MOVE_BYTES
DRY_MOVE_BYTES = 160 * MIB  # more chunks than are in flight at once
COPY_BYTES = GIB
STALL_BYTES = 8 * GIB  # registered or allocated while another process launches
PIN_BYTES = 64 * MIB  # registered at once, as in shim/swap/homes.h
KINDS = ("hostalloc", "memfd", "memfd_huge", "memfd_hugetlb")
WINDOW_S, DRY_WINDOW_S = 1.0, 0.05
STALLS = ("calls", "copies", "move", "register", "register_pieces", "hostalloc")
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")

BELIEFS = (
    Belief(
        question="What making, mapping, opening, unmapping and releasing 32 MiB cost, in us",
        believed="less than copying as much (0.6 ms at 55 GB/s), so that one thread keeps the link "
        "busy; 150 us for an allocation",
        used_by=("docs/adr/0008-the-mover-maps-while-copies-are-on-their-way.md", "docs/swap.md"),
        answers=("calls.exportable.mib_32.all_us", "move.map_us", "move.unmap_us"),
    ),
    Belief(
        question="What memory costs more that can be given to other processes",
        believed="nothing: the shim asks for it always",
        used_by=("shim/swap/regions.cpp",),
        answers=("calls.plain.mib_32.all_us", "calls.exportable.mib_32.all_us"),
    ),
    Belief(
        question="The granularity of mapped memory",
        believed="2 MiB, least and recommended",
        used_by=("shim/swap/regions.cpp", "csrc/core/shm_layout.h"),
        answers=("calls.granularity_minimum_bytes", "calls.granularity_recommended_bytes"),
    ),
    Belief(
        question="Copies from and to a sealed memfd that is registered, over the driver's own "
        "pinned memory",
        believed="as fast, both ways and at once",
        used_by=("shim/swap/homes.cpp", "daemon/tandemd/edges/host_memory.py"),
        answers=(
            "copies.memfd.out_vs_hostalloc",
            "copies.memfd.in_vs_hostalloc",
            "copies.memfd.out_both_gb_s",
            "copies.memfd.in_both_gb_s",
            "copies.hostalloc.out_gb_s",
            "copies.hostalloc.in_gb_s",
        ),
    ),
    Belief(
        question="What registering 1 GiB of ordinary pages takes, and of huge ones, in ms",
        believed="not known; huge pages make it short",
        used_by=("shim/swap/homes.cpp", "daemon/tandemd/edges/host_memory.py"),
        answers=(
            "copies.memfd.register_ms",
            "copies.memfd_huge.register_ms",
            "copies.memfd_huge.huge_share",
        ),
    ),
    Belief(
        question="40 GiB, or half of what the host has free, out and in while chunks of 32 MiB are "
        "unmapped and mapped, over the rate of pinned copies",
        believed="0.8 at least",
        used_by=("docs/swap.md", "shim/swap/transit.cpp", "bench/gpu/parts/swap.py"),
        answers=("move.out_vs_pinned", "move.in_vs_pinned", "move.wrong_words", "move.bytes"),
    ),
    Belief(
        question="Whether launches of another process stall meanwhile: p99 over that beside an "
        "idle context; the share of the time in launches of more than 1 ms; the longest, in us",
        believed="neither by mapping nor by copies; by registering for as long as that takes, so "
        "the shim registers 64 MiB at once",
        used_by=("docs/swap.md", "shim/swap/homes.cpp"),
        answers=(
            "stall.beside_idle.stalled_share",
            "stall.beside_idle.max_us",
            *(
                f"stall.{name}.{figure}"
                for name in STALLS
                for figure in ("p99_vs_idle", "stalled_share", "max_us")
            ),
        ),
    ),
    Belief(
        question="A copy of memory of the host that was registered in two pieces",
        believed="refused as an invalid value; the shim makes none",
        used_by=("shim/swap/homes.h", "shim/swap/transit.cpp"),
        answers=("stall.register_pieces.meanwhile.copy_across",),
    ),
    Belief(
        question="What mapped memory is said to be: type, context, beginning of the range",
        believed="device memory (2) of no context; the range is all that was reserved together, "
        "which the shim corrects for what its jobs allocate",
        used_by=("shim/handlers/pointers.h", "shim/stream/transfers.cpp"),
        answers=(
            "pointers.mapped.memory_type",
            "pointers.mapped.context",
            "pointers.mapped.range_start",
            "pointers.mapped.range_bytes",
            "pointers.mapped.is_managed",
            "pointers.unmapped",
        ),
    ),
    Belief(
        question="Whether a network card can be given what is mapped, as what cuMemAlloc made",
        believed="both, where the driver can give out dma-buffers at all",
        used_by=("shim/handlers/sharing.h",),
        answers=("pointers.linear_dma_buffer", "pointers.mapped_dma_buffer"),
    ),
    Belief(
        question="What several attributes at once say of memory of the host that nobody registered",
        believed="success, and type 0: no error that a job could find in its logs",
        used_by=("shim/stream/transfers.cpp",),
        answers=("pointers.several_of_the_host", "pointers.memory_type_of_the_host"),
    ),
    Belief(
        question="An allocation of 256 KiB from a pool against cuMemAlloc, and a trim",
        believed="a pool answers in a microsecond and gives everything back when trimmed",
        used_by=("shim/memory/pool_rows.cpp", "shim/memory/admission.cpp"),
        answers=(
            "pools.pool_256_kib.alloc_ns",
            "pools.linear_256_kib.alloc_ns",
            "pools.trim_us",
            "pools.reserved_after_trim_bytes",
            "pools.set_access",
        ),
    ),
)


def measure(bench: Bench) -> dict[str, Any]:
    """Ask every question, each independent of the others."""
    bench = without_mps(bench)
    part = _Part(bench)
    memory = psutil.virtual_memory()  # recorded because it may limit how much is moved
    host = {"total_bytes": memory.total, "available_bytes": memory.available}
    bench.save({"mode": bench.place.mode, "host": host})
    found: dict[str, Any] = {
        "mode": bench.place.mode,
        "host": host,
        "calls": answered("calls", lambda: part.once(part.calls("costs"))),
        "pointers": answered("pointers", lambda: part.once(part.calls("pointers"))),
        "pools": answered("pools", lambda: part.once(part.calls("pools"))),
        "copies": {kind: answered(f"copies.{kind}", part.copies(kind)) for kind in KINDS},
        "move": answered("move", part.move),
    }
    found["stall"] = {
        name: answered(f"stall.{name}", question) for name, question in part.stalls().items()
    }
    add_ratios(found)
    good = all_answered(found) and found["move"].get("wrong_words", 0) == 0
    return {**found, "ok": good or bench.where != GPU}


class _Part:
    """Runs the programs, each with the right amount of memory."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._place = big_place(bench)
        self._env = children.environment(bench, self._place)
        self._window_s = WINDOW_S if bench.where == GPU else DRY_WINDOW_S

    def calls(self, action: str) -> list[str]:
        return self._command("vmm_calls", action)

    def once(self, command: Sequence[str]) -> Message:
        """Run the command, let it go once, and return its result."""
        with self._started(command) as (worker, _):
            return told(worker, "result")

    def copies(self, kind: str) -> Callable[[], Message]:
        """Ask for the copy rates of such memory, and the cost of obtaining it."""

        def question() -> Message:
            with self._started(self._copies(kind)) as (worker, about):
                is_there = "error" not in about and "why_not" not in about
                return {**about, **told(worker, "result")} if is_there else about

        return question

    def move(self) -> Message:
        """Move MOVE_BYTES; or less, with the reason, if the host is slow to pin that much."""
        try:
            return self._moved(MOVE_BYTES, ready_s=READY_S)
        except WorkerError as failure:
            return {**self._moved(LESS_MOVE_BYTES), "less_because": str(failure)[-300:]}

    def _moved(self, most: int, *, ready_s: float = children.PATIENCE_S) -> Message:
        """Move out and in twice: the first time may include one-off work of the driver."""
        with self._started(self._moves(most), most_s=ready_s) as (worker, about):
            if "error" in about:
                return about
            first = self._both(worker)
            second = self._both(worker)
            wrong = first["wrong_words"] + second["wrong_words"]
            begun = {"first_out_gb_s": first["out_gb_s"], "first_in_gb_s": first["in_gb_s"]}
            return {**about, **second, **begun, "wrong_words": wrong}

    def stalls(self) -> dict[str, Callable[[], Message]]:
        """Ask what another process's launches take: alone, and while this one does something."""
        bytes_ = self._bytes(STALL_BYTES)
        hostalloc = self._command("vmm_copies", "hostalloc", str(bytes_))
        return {
            "alone": self._alone,
            "beside_idle": self._beside_idle,
            "calls": lambda: self._stall(self.calls("costs")),
            "copies": lambda: self._stall(self._copies("memfd")),
            "move": lambda: self._stall(self._moves(STALL_BYTES), event="moved"),
            "register": lambda: self._stall(self._register(bytes_, bytes_)),
            "register_pieces": lambda: self._stall(
                self._register(bytes_, min(PIN_BYTES, bytes_ // 4))
            ),
            "hostalloc": lambda: self._stall(hostalloc),
        }

    def _alone(self) -> Message:
        with prober(self._bench, self._place) as worker, probing(worker) as window:
            time.sleep(self._window_s)
        return window

    def _beside_idle(self) -> Message:
        """Probe beside a process that has a context and does nothing."""
        with (
            prober(self._bench, self._place) as other,
            self._started(self.calls("pointers")),
            probing(other) as window,
        ):
            time.sleep(self._window_s)
        return window

    def _stall(self, command: Sequence[str], *, event: str = "result") -> Message:
        with (
            prober(self._bench, self._place) as other,
            self._started(command) as (worker, about),
        ):
            if "error" in about:
                return about
            with probing(other) as window:
                end = time.monotonic() + self._window_s
                found = told(worker, event)
                # Do not repeat `moved`: the check in between launches kernels that delay the other.
                while time.monotonic() < end and event == "result":
                    found = told(worker, event)
            chunk = found["exportable"]["mib_32"] if "exportable" in found else {}
            said = {k: v for k, v in {**found, **chunk}.items() if not isinstance(v, dict)}
            return {**window, "meanwhile": said}

    def _copies(self, kind: str) -> list[str]:
        return self._command("vmm_copies", "copies", kind, str(self._bytes(COPY_BYTES)))

    def _register(self, bytes_: int, at_once: int) -> list[str]:
        return self._command("vmm_copies", "register", str(bytes_), str(at_once))

    def _moves(self, most: int) -> list[str]:
        return self._command("vmm_copies", "move", str(self._bytes(most)))

    def _both(self, worker: Worker) -> Message:
        return {**told(worker, "moved"), **told(worker, "checked")}

    def _bytes(self, wanted: int) -> int:
        if self._bench.where != GPU:
            return min(wanted, DRY_MOVE_BYTES if wanted == MOVE_BYTES else 32 * MIB)
        return min(wanted, room_bytes(psutil.virtual_memory().available, CGROUP_LIMIT) // 2)

    def _command(self, program: str, *words: str) -> list[str]:
        return native.command(self._bench, program, "memory", *words)

    def _started(
        self, command: Sequence[str], *, most_s: float = children.PATIENCE_S
    ) -> AbstractContextManager[tuple[Worker, Message]]:
        return children.ready(self._bench, command, self._env, most_s=most_s)


def room_bytes(available_bytes: int, limit: Path) -> int:
    """The memory available on the machine, limited by the container that this runs in."""
    try:
        return min(available_bytes, int(limit.read_text()))
    except (OSError, ValueError):  # no such file, or "max"
        return available_bytes


def add_ratios(found: dict[str, Any]) -> None:
    """Add rates relative to the driver's own pinned memory, and waits relative to an idle process.

    The idle process is the baseline because a second context alone may make the device take turns,
    which is not a stall.
    """
    copies, move, stall = found["copies"], found["move"], found["stall"]
    for way in ("out", "in"):
        rate = f"{way}_gb_s"
        for kind in KINDS[1:]:
            _add_ratio(copies[kind], f"{way}_vs_hostalloc", rate, copies["hostalloc"])
        _add_ratio(move, f"{way}_vs_pinned", rate, copies["hostalloc"])
    for name, window in stall.items():
        if name not in ("alone", "beside_idle"):
            _add_ratio(window, "p50_vs_idle", "median_us", stall["beside_idle"])
            _add_ratio(window, "p99_vs_idle", "p99_us", stall["beside_idle"])


def _add_ratio(into: Message, name: str, figure: str, base: Message) -> None:
    """Add the ratio if both figures were measured."""
    if into.get(figure) and base.get(figure):
        into[name] = round(into[figure] / base[figure], 4)


if __name__ == "__main__":
    main(measure)
