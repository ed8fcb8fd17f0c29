"""Part `lifecycle`: what happens to memory when a process ends, and how it is counted.

Covers memory after SIGKILL, the counts of NVML and Tandem for each allocator, and the driver's
checkpoints. In a dry run, sizes are small and the figures mean nothing.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from bench.gpu.harness import children, native
from bench.gpu.harness.beliefs import Belief
from bench.gpu.harness.children import told
from bench.gpu.harness.mps import without_mps
from bench.gpu.harness.part import GPU, Bench, main
from bench.gpu.harness.questions import (
    FAILURES,
    all_answered,
    answered,
    big_place,
    nvml,
    prober,
    probing,
)
from bench.gpu.parts import sharing
from bench.gpu.parts.accounting import KINDS, Counts, accounts
from tandem.demo.process import Message, Worker

MIB, GIB = 1 << 20, 1 << 30
KILLED_BYTES, KILLED_SHARE = 40 * GIB, 0.55  # at most this share of the device
SAVED_BYTES = 8 * GIB
SLACK_BYTES = 64 * MIB  # may be missing when memory counts as back
DEADLINE_S = 30  # for memory to come back
CHECK_S = 20.0
CALLS = ("lock", "checkpoint", "restore", "unlock")
SUCCESS = "CUDA_SUCCESS"
HELD_KINDS = ("linear", "mapped")
SWAPPABLE_KINDS = ("linear", "small", "pitch")  # the kinds that can be moved
WINDOW_S, DRY_WINDOW_S = 1.0, 0.05

BELIEFS = (
    Belief(
        question="How long after SIGKILL the memory of a process with 40 GiB, or 0.55 of the "
        "GPU's, is back, in ms",
        believed="within a second: so long nobody is refused memory for want of it",
        used_by=("daemon/tandemd/core/model.py", "docs/memory.md"),
        answers=(
            "killed.linear.driver_ms",
            "killed.linear.nvml_ms",
            "killed.mapped.driver_ms",
            "killed.mapped.nvml_ms",
            "killed.linear.bytes",
        ),
    ),
    Belief(
        question="How long launches of another process stall meanwhile: the longest, in us; p99 "
        "over that before; the share of the time in launches of more than 1 ms",
        believed="not known",
        used_by=("docs/memory.md",),
        answers=(
            *(
                f"killed.{kind}.{figure}"
                for kind in HELD_KINDS
                for figure in ("stall.max_us", "p99_vs_before", "stall.stalled_share")
            ),
            "killed.linear.before.stalled_share",
        ),
    ),
    Belief(
        question="What Tandem counts for an allocation over what NVML sees, by allocator",
        believed="1 but for rounding to pages of 2 MiB; arrays are counted by their elements",
        used_by=("shim/memory/memory.cpp", "shim/memory/array_bytes.h", "docs/interception.md"),
        answers=tuple(f"accounting.tandem.{kind}.job_vs_nvml" for kind in KINDS),
    ),
    Belief(
        question="The same of memory that may be moved, which lies in mapped pieces",
        believed="1: pieces are counted, not what of them is used",
        used_by=("shim/swap/regions.cpp", "shim/swap/slabs.cpp"),
        answers=tuple(f"accounting.swappable.{kind}.job_vs_nvml" for kind in SWAPPABLE_KINDS),
    ),
    Belief(
        question="What NVML sees of an allocation over what was asked for, by allocator",
        believed="1 but for rounding to pages of 2 MiB",
        used_by=("daemon/tandemd/core/memory/audit.py", "csrc/softgpu/driver/memory/memory.cpp"),
        answers=tuple(f"accounting.bare.{kind}.nvml_vs_asked" for kind in KINDS),
    ),
    Belief(
        question="How often memory counts that one process has made and another one has opened, "
        "by CUDA IPC or from a descriptor: for the device, and in NVML's list for both together",
        believed="once; in the list with the process that made it",
        used_by=(
            "daemon/tandemd/core/memory/audit.py",
            "csrc/softgpu/driver/memory/ipc_memory.cpp",
        ),
        answers=tuple(
            f"sharing.bare.{kind}.opened.{who}"
            for kind in sharing.KINDS
            for who in ("device", "processes")
        ),
    ),
    Belief(
        question="And how often for a job of both",
        believed="once, where it was made",
        used_by=(
            "shim/handlers/ipc.h",
            "shim/handlers/sharing.h",
            "shim/handlers/pools.h",
            "docs/interception.md",
        ),
        answers=tuple(
            f"sharing.tandem.{kind}.{when}.job"
            for kind in sharing.KINDS
            for when in ("made", "opened")
        ),
    ),
    Belief(
        question="What a context takes, with a small module, in bytes: bare, and under Tandem",
        believed="1/64 of the GPU's memory, 640 MiB at most; Tandem makes nothing on the GPU",
        used_by=("docs/swap.md", "shim/handlers/contexts.h", "daemon/tandemd/core/memory/audit.py"),
        answers=("accounting.bare.context_bytes", "accounting.tandem.context_bytes"),
    ),
    Belief(
        question="Whether NVML lists a process by the pid that it has here, with its memory",
        believed="yes; in a container it may list none, or others' pids",
        used_by=("daemon/tandemd/edges/gpus.py", "daemon/tandemd/core/memory/audit.py"),
        answers=(
            "accounting.bare.is_listed",
            "accounting.bare.listed_bytes_known",
            "accounting.bare.listing",
        ),
    ),
    Belief(
        question="Whether the driver saves a process and brings it back, by cuCheckpointProcess: "
        "each call, GB/s, and wrong words afterwards",
        believed="from driver 570 on; at less than the rate of pinned copies",
        used_by=("daemon/tandemd/edges/checkpoints.py", "docs/swap.md"),
        answers=(
            "checkpoint.lock.result",
            "checkpoint.checkpoint.result",
            "checkpoint.restore.result",
            "checkpoint.unlock.result",
            "checkpoint.checkpoint.gb_s",
            "checkpoint.restore.gb_s",
            "checkpoint.wrong_words",
            "checkpoint.stall.max_us",
        ),
    ),
)


def measure(bench: Bench) -> dict[str, Any]:
    """Ask every question, each independent of the others."""
    bench = without_mps(bench)
    part = _Part(bench)
    size_bytes = SAVED_BYTES if bench.where == GPU else 32 * MIB
    counts = Counts(bench, big_place(bench), "allocators")
    shared = Counts(bench, big_place(bench), "sharing")
    found: dict[str, Any] = {
        "mode": bench.place.mode,
        "killed": {
            kind: answered(f"killed.{kind}", partial(part.killed, kind)) for kind in HELD_KINDS
        },
        "accounting": {
            "bare": answered("accounting.bare", lambda: accounts(counts.bare)),
            "tandem": answered("accounting.tandem", lambda: accounts(counts.managed)),
            "swappable": answered(
                "accounting.swappable", lambda: accounts(counts.swappable, SWAPPABLE_KINDS)
            ),
        },
        "sharing": {
            name: answered(
                f"sharing.{name}",
                partial(accounts, start, sharing.KINDS, sharing.times_counted),
            )
            for name, start in {"bare": shared.bare, "tandem": shared.managed}.items()
        },
        "checkpoint": answered("checkpoint", lambda: part.checkpoint(size_bytes)),
    }
    good = all_answered(found) and is_whole(found["checkpoint"])
    return {**found, "ok": good or bench.where != GPU}


class _Part:
    """Processes that hold memory, and what others see of that."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._place = big_place(bench)
        self._env = children.environment(bench, self._place)
        self._window_s = WINDOW_S if bench.where == GPU else DRY_WINDOW_S

    def killed(self, kind: str) -> Message:
        """Measure when memory is back after SIGKILL, and what others' launches take meanwhile."""
        watch = self._command("memory_watch", str(SLACK_BYTES), str(DEADLINE_S))
        with (
            prober(self._bench, self._place) as other,
            self._started(watch) as (driver, there),
            nvml(self._bench, self._env, "back", str(SLACK_BYTES), str(DEADLINE_S)) as reader,
        ):
            size_bytes = self._killed_bytes(int(there["total_bytes"]))
            hold = self._command("holder", kind, str(size_bytes))
            with self._started(hold) as (holder, about):
                # Watching memory may stall others, too, so the baseline includes it.
                with probing(other) as before:
                    driver.go()
                    reader.go()
                    time.sleep(self._window_s)
                with probing(other) as stall:
                    killed_ns = time.monotonic_ns()
                    holder.send(signal.SIGKILL)
                    code = holder.wait(deadline_s=DEADLINE_S)
                    reaped_ns = time.monotonic_ns()
                    seen = {
                        name: worker.wait_for("back", deadline_s=DEADLINE_S + 10)
                        for name, worker in (("driver", driver), ("nvml", reader))
                    }
        return {
            "bytes": about["bytes"],
            "p99_vs_before": round(stall["p99_us"] / before["p99_us"], 2),
            "exit_code": code,
            "reaped_ms": _ms(reaped_ns - killed_ns),
            **{f"{name}_ms": _ms(said["at_ns"] - killed_ns) for name, said in seen.items()},
            **{f"{name}_is_back": said["is_back"] for name, said in seen.items()},
            **{f"{name}_longest_call_us": said["longest_call_us"] for name, said in seen.items()},
            "before": before,
            "stall": stall,
        }

    def checkpoint(self, size_bytes: int) -> Message:
        """Try each call on a process that holds memory; check the memory afterwards."""
        hold = self._command("holder", "linear", str(size_bytes))
        with (
            prober(self._bench, self._place) as other,
            nvml(self._bench, self._env) as reader,
            self._started(hold) as (holder, about),
            self._started(self._save(holder.pid)) as (saver, _),
        ):
            with probing(other) as stall:
                found = _steps(saver, reader)
            for step in found.values():
                if step["result"] == SUCCESS and step["call"] in ("checkpoint", "restore"):
                    step["gb_s"] = round(about["bytes"] / 1e6 / step["ms"], 3)
            wrong = wrong_words(holder, found)
            return {"bytes": about["bytes"], **found, "wrong_words": wrong, "stall": stall}

    def _killed_bytes(self, total_bytes: int) -> int:
        if self._bench.where != GPU:
            return 96 * MIB
        return min(KILLED_BYTES, int(total_bytes * KILLED_SHARE))

    def _command(self, program: str, *words: str) -> list[str]:
        return native.command(self._bench, program, "memory", *words)

    def _save(self, pid: int) -> list[str]:
        return [str(native.program(self._bench, "checkpoint")), str(pid)]

    def _started(self, command: Sequence[str]) -> AbstractContextManager[tuple[Worker, Message]]:
        return children.ready(self._bench, command, self._env)


def is_whole(checkpoint: Mapping[str, Any]) -> bool:
    """Whether a saved process was restored intact; true if no process can be saved here."""
    saved = checkpoint.get("checkpoint", {}).get("result") == SUCCESS
    return not saved or checkpoint.get("wrong_words") == 0


def wrong_words(holder: Worker, steps: Mapping[str, Message]) -> int | str:
    """Count the wrong words in its memory, or say why that is unknown; the steps' times remain."""
    restored = steps.get("restore", {}).get("result", SUCCESS)
    if restored != SUCCESS:
        return f"not asked: it was not restored, {restored}"
    try:
        holder.go()
        return int(holder.wait_for("checked", deadline_s=CHECK_S)["wrong_words"])
    except FAILURES as failure:
        return f"the process did not answer: {str(failure)[-200:]}"


def _steps(saver: Worker, reader: Worker) -> dict[str, Message]:
    """Make the calls, as far as they succeed, with the device memory in use after each."""
    found: dict[str, Message] = {}
    last = SUCCESS
    while not (found and _is_over(found)):
        call = CALLS[len(found)] if last == SUCCESS else CALLS[-1]
        try:
            found[call] = told(saver, "step")
            last = found[call]["result"]
            found[call]["used_bytes"] = told(reader, "read")["used_bytes"]
        except FAILURES as failure:
            said = f"{type(failure).__name__}: {failure}"[-200:]
            found[call] = {"call": call, "result": said, **found.get(call, {})}
            break
    return found


def _is_over(found: dict[str, Message]) -> bool:
    """Whether the lock is undone, or there is none to undo."""
    return "unlock" in found or found["lock"]["result"] != SUCCESS


def _ms(ns: int) -> float:
    return round(ns / 1e6, 3)


if __name__ == "__main__":
    main(measure)
