"""Part `windows`: a server beside a trainer that limits how much it has submitted.

Runs without the shim, to see how the driver itself handles two processes. The server's kernels
arrive at random, regardless of others; the trainer keeps a fixed number of its own submitted. The
arms are time slices and MPS, each also with stream priorities, and MPS with a client priority.
Every kernel records when it ran, to find slices and switches; for these, both programs also launch
as fast as they can.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from bench.gpu.figures.windows_figures import Told, both_figures, server_figures, together, verdict
from bench.gpu.harness.beliefs import Belief
from bench.gpu.harness.mps import PRIORITY, mps, without_mps
from bench.gpu.harness.part import GPU, Bench, main, progress, say
from bench.gpu.harness.questions import FAILURES
from bench.gpu.parts.windows_pair import DEPTHS, LENGTHS, SERVER, TRAINER, Arm, Pair, pair_of
from tandem.demo.place import Place

PATIENCE = 3  # failures before an arm is given up: each may have cost a deadline
STEP_S = 15.0  # including the start of programs for it
ALONE, BOTH = "alone", "both"
STEPS = (
    (SERVER, ALONE),
    *((length, name) for length in LENGTHS for name in (ALONE, *DEPTHS)),
    *((BOTH, length) for length in LENGTHS),
)

STREAMS = ("greatest", "least")
OF_SLICES = (Arm(name="time"), Arm(name="priorities", priorities=STREAMS))
OF_MPS = (
    Arm(name="mps"),
    Arm(name="mps_streams", priorities=STREAMS),
    Arm(name="mps_priority", of_trainer={PRIORITY: "1"}),
)

_TURNS = "csrc/softgpu/device/turns.h"
BELIEFS = (
    Belief(
        question="How long does a process keep the GPU while another waits (us)?",
        believed="2 ms, or to the end of a kernel; a kernel of 5 ms is interrupted",
        used_by=(_TURNS, "docs/software-gpu.md"),
        answers=tuple(
            f"time.both.{length}.slice_us.trainer.{figure}"
            for length in LENGTHS
            for figure in ("median_us", "p99_us")
        ),
    ),
    Belief(
        question="What does a switch from one process to the other cost (us)?",
        believed="50",
        used_by=(_TURNS, "docs/software-gpu.md"),
        answers=(
            "time.both.short.switch_us.median_us",
            "time.both.long.switch_us.median_us",
            "time.both.long.switch_us.p99_us",
        ),
    ),
    Belief(
        question="What share of the server's running time did the trainer run as well?",
        believed="none with time slices, whatever the streams' priorities; much under MPS",
        used_by=(
            _TURNS,
            "daemon/tandemd/core/substrates/time_slices.py",
            "daemon/tandemd/core/substrates/mps.py",
        ),
        answers=tuple(f"{arm}.short.none.overlap_share" for arm in ("time", "priorities", "mps")),
    ),
    Belief(
        question="By how much does a trainer that limits itself raise the server's p99?",
        believed="by little at depth 1 of 200 us, by a slice and more without a limit",
        used_by=("daemon/tandemd/core/model.py", "csrc/core/gate.cpp"),
        answers=(
            *(f"time.short.{depth}.p99_ratio" for depth in DEPTHS),
            *(f"time.long.{depth}.p99_ratio" for depth in DEPTHS),
            "verdict.exclusive_gating",
        ),
    ),
    Belief(
        question="What do stream priorities of two processes do with time slices, and under MPS?",
        believed="with time slices nothing; among clients of one MPS server they order blocks",
        used_by=(_TURNS, "csrc/softgpu/device/model.h", "docs/software-gpu.md"),
        answers=tuple(
            f"{arm}.{length}.{depth}.p99_ratio"
            for arm in ("priorities", "mps_streams")
            for length in LENGTHS
            for depth in ("depth1", "none")
        ),
    ),
    Belief(
        question="And MPS, without and with a lower client priority of the trainer?",
        believed="the server waits for blocks, not for kernels; with the priority for fewer",
        used_by=("csrc/softgpu/driver/context/mps.cpp",),
        answers=tuple(
            f"{arm}.{length}.{depth}.p99_ratio"
            for arm in ("mps", "mps_priority")
            for length in LENGTHS
            for depth in ("depth1", "none")
        ),
    ),
)


def measure(bench: Bench) -> dict[str, Any]:
    """Measure every arm and every step of it independently; name those that failed."""
    end_s = progress.end_s(reserve_s=STEP_S)
    slices = without_mps(bench).place
    figures: dict[str, Any] = {"mode": slices.mode}
    for arm in OF_SLICES:
        figures[arm.name] = _arm(bench, slices, arm, end_s)
        bench.save(figures)
    for arm in OF_MPS:
        if time.monotonic() > end_s:
            figures[arm.name] = {"failed": {"all": "not begun: no time was left"}}
            continue
        with mps(bench) as (place, why):  # one per arm: a hung client may spoil it for others
            nothing = {"why_not": why}
            figures[arm.name] = nothing if place is None else _arm(bench, place, arm, end_s)
        bench.save(figures)
    arms = {name: found for name, found in figures.items() if isinstance(found, dict)}
    failed = [name for name, found in arms.items() if found.get("failed")]
    return {**figures, "verdict": verdict(arms), "ok": not failed or bench.where != GPU}


def _arm(bench: Bench, place: Place, arm: Arm, end_s: float) -> dict[str, Any]:
    """Measure an arm. A step that fails is tried once more, with new programs."""
    measured = Measured()
    failures: list[tuple[str, str]] = []  # a step, and why
    left = deque(STEPS)
    while left and len(failures) < PATIENCE and time.monotonic() < end_s:
        try:
            with pair_of(bench, place, arm) as pair:
                while left and time.monotonic() < end_s:
                    measured.take(pair, *left[0])
                    left.popleft()
        except FAILURES as failure:
            name = ".".join(left[0]) if left else "end"
            if name in dict(failures):
                left.popleft()
            failures.append((name, f"{type(failure).__name__}: {failure}"[-600:]))
    reasons = dict(failures)
    names = [".".join(step) for step in STEPS if step[1] not in measured.figures[step[0]]]
    failed = {name: reasons.get(name, "not begun") for name in names}
    say(f"{arm.name}: {measured.at_depth_1()}; failed: {failed or 'nothing'}")
    return {
        **measured.figures,
        "failed": failed,
        "failures": [f"{n}: {why}" for n, why in failures],
    }


class Measured:
    """An arm's figures as they come: first each program alone, as the baseline for the others."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {name: {} for name in (SERVER, *LENGTHS, BOTH)}
        self._server: Told | None = None
        self._trainers: dict[str, Told] = {}

    def take(self, pair: Pair, group: str, name: str) -> None:
        """Measure one of STEPS."""
        if group == SERVER:
            found = self._server_alone(pair)
        elif group == BOTH:
            found = self._both(pair, name)
        elif name == ALONE:
            found = self._trainer_alone(pair, group)
        else:
            found = self._together(pair, group, name)
        self.figures[group][name] = found

    def at_depth_1(self) -> str:
        """The figure that the verdict uses, as a text for progress."""
        return f"p99 x {self.figures['short'].get('depth1', {}).get('p99_ratio')} at depth 1"

    def _server_alone(self, pair: Pair) -> dict[str, Any]:
        self._server = pair.run({SERVER: pair.open_loop()}, pair.sizes.seconds)[SERVER]
        self.figures |= {"kernels_us": pair.kernel_us, "device_clock": pair.clock}
        return server_figures(self._server)

    def _trainer_alone(self, pair: Pair, length: str) -> dict[str, Any]:
        order = pair.closed_loop(length, DEPTHS["none"])
        told = pair.run({TRAINER: order}, pair.sizes.alone_s)[TRAINER]
        self._trainers[length] = told
        return {"kernels_per_s": round(told.rate_per_s, 2)}

    def _together(self, pair: Pair, length: str, depth: str) -> dict[str, Any]:
        orders = {
            SERVER: pair.open_loop(),
            TRAINER: pair.closed_loop(length, DEPTHS[depth]),
        }
        told = pair.run(orders, pair.sizes.seconds)
        return together(told[SERVER], told[TRAINER], self._server, self._trainers.get(length))

    def _both(self, pair: Pair, length: str) -> dict[str, Any]:
        orders = {
            SERVER: pair.closed_loop(SERVER, DEPTHS["depth16"]),
            TRAINER: pair.closed_loop(length, DEPTHS["depth16"]),
        }
        told = pair.run(orders, pair.sizes.alone_s)
        return both_figures(told[SERVER], told[TRAINER])


if __name__ == "__main__":
    main(measure)
