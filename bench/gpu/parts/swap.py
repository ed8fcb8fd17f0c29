"""Part `swap`: how fast paused jobs' memory moves to the host and back, and that none is lost.

Moves one job's memory each way alone, then one job's in while another's goes out; rates are
relative to those of pinned copies on the same machine. In a dry run, the ratios mean nothing and
are not judged.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from bench.gpu.harness import children
from bench.gpu.harness.part import GPU, Bench, main, say
from tandem import Client
from tandem.demo.process import Message, Worker, WorkerError
from tandem.demo.scenario import READY_S, Scenario
from tandem.errors import DeadlineError

ROLES = ("first", "second")
# Each job's share of the device's memory. Both fit, so that neither waits for room. On a GPU with
# 80 GB this is still more than 8 GiB; rates for less are not claimed.
SHARE = 0.12
# Relative to the rate of a pinned copy one way.
LIMITS = {"out": 0.8, "in": 0.8, "out_again": 0.8, "out_both": 0.7, "in_both": 0.7}
PATIENCE_S = 120.0
POLL_S = 0.05


def measure(bench: Bench) -> dict[str, Any]:
    """Measure bytes, rates and ratios of each way."""
    pinned = _pinned(bench)
    figures: dict[str, Any] = {
        "mode": bench.place.mode,
        "pinned_bytes_s": {way: round(rate) for way, rate in pinned.items()},
    }
    bench.save(figures)
    say(", ".join(f"{way} {rate / 1e9:.1f} GB/s" for way, rate in pinned.items()))
    with Scenario(
        name="swap",
        place=bench.place,
        program=_program(bench, SHARE),
        roles=ROLES,
        seconds=0,
        folder=bench.folder / "swap",
        managed=True,
        options=("--swappable",),
    ) as scenario:
        scenario.start()
        with Client(directory=str(scenario.runtime_dir)) as client:
            for way, (size_bytes, took_s, wall_s) in _move(_Moves(client)):
                figures[way] = {
                    "bytes": size_bytes,
                    "bytes_s": round(size_bytes / took_s),
                    "wall_s": round(wall_s, 3),
                    "vs_pinned": round(size_bytes / took_s / pinned[way.split("_")[0]], 4),
                    "limit": LIMITS[way],
                }
                bench.save(figures)
        correct = [_end(worker) for worker in scenario.workers.values()]
    fast = all(figures[way]["vs_pinned"] >= limit for way, limit in LIMITS.items())
    good = all(correct) and (fast or bench.where != GPU)
    return {**figures, "correct": correct, "ok": good}


def _move(moves: _Moves) -> Iterator[tuple[str, tuple[int, float, float]]]:
    """Yield each way with bytes and seconds as the jobs count them, and the seconds we waited.

    Jobs count from the first copy. Before that, a job is drained, and its host memory is allocated
    and pinned if it has none yet, as is the case the first time.
    """
    first, second = ROLES
    yield "out", moves.of({first: "pause"})[first]
    yield "in", moves.of({first: "resume"})[first]
    yield "out_again", moves.of({first: "pause"})[first]
    moves.of({second: "pause"})  # allocates its host memory; otherwise `first` would be back early
    moves.of({second: "resume"})
    both = moves.of({first: "resume", second: "pause"})
    yield "in_both", both[first]
    yield "out_both", both[second]
    moves.of({second: "resume"})


class _Moves:
    """Moves memory, and tells how much of each job was moved and how long its copies took."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._roles = {client.job(role).name: role for role in ROLES}

    def of(self, orders: Mapping[str, str]) -> dict[str, tuple[int, float, float]]:
        """Give the orders and wait until all memory of these jobs is copied; results by job."""
        before, begin = self._totals(), time.monotonic()
        for role, verb in orders.items():
            getattr(self._client, verb)(role)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            after = self._totals()
            moved = {role: (after[role][0] - before[role][0]) for role in orders}
            if all(moved[role] >= self._size_bytes(role) for role in orders):
                wall_s = time.monotonic() - begin
                return {
                    role: (int(moved[role]), after[role][1] - before[role][1], wall_s)
                    for role in orders
                }
            time.sleep(POLL_S)
        raise WorkerError(f"after {PATIENCE_S:.0f} s {moved} bytes were moved: {orders}")

    def _size_bytes(self, role: str) -> int:
        job = self._client.job(role)
        return job.resident_bytes + job.swapped_bytes

    def _totals(self) -> dict[str, list[float]]:
        """Bytes and seconds of copies so far, both ways together."""
        totals = {role: [0.0, 0.0] for role in ROLES}
        places = {"tandem_swap_bytes_total": 0, "tandem_swap_seconds_total": 1}
        for family in text_string_to_metric_families(self._metrics()):
            for sample in family.samples:
                if sample.name in places:
                    role = self._roles[sample.labels["job"]]
                    totals[role][places[sample.name]] += sample.value
        return totals

    def _metrics(self) -> str:
        with suppress(DeadlineError):  # on a busy machine
            return self._client.metrics(deadline_s=READY_S)
        return self._client.metrics(deadline_s=READY_S)


def _program(bench: Bench, share: float) -> Callable[[str], list[str]]:
    order = json.dumps({"image": str(bench.place.image), "share": share})
    command = [sys.executable, "-m", "bench.gpu.programs.swap_worker", order]
    return lambda _role: command


def _pinned(bench: Bench) -> Message:
    """Rates of pinned copies in a process that does not run under Tandem."""
    env = bench.place.env(bench.folder / "pinned-gpu")
    with children.talking(bench, _program(bench, 0)(""), env, role="pinned") as worker:
        for event in ("up", "ready"):
            children.heard(worker, event)
            worker.go()
        return children.heard(worker, "result")


def _end(worker: Worker) -> bool:
    worker.go()
    correct = bool(worker.wait_for("result", deadline_s=PATIENCE_S)["correct"])
    worker.go()
    return worker.wait(deadline_s=READY_S) == 0 and correct


if __name__ == "__main__":
    main(measure)
