"""How well an iteration's time on fewer SMs is predicted from the records of one on all of them.

Runs on the software GPU in mode mps, on its virtual clock. Every workload trains once under the
daemon, on all SMs; an iteration is recorded, from which the daemon's own code predicts the scaling
curve. Then the workload trains without the daemon under each percentage of the SMs. A probed curve
may also use one of these times. Bandwidth-bound work cannot be predicted without a probe: its
result is shown but has no bar.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from bench.bars import Bar, bar, progress
from bench.scaling_client import WORKLOADS
from bench.stage import HERE, NotMeasuredError, Stage, next_line, stage, tell
from tandem import Client, _results, softgpu
from tandemd.core.space.scaling import Curve
from tandemd.observers.window_scaling import Recorded, tell_scaling

PROFILE, SMS = "h200", 132
PERCENTAGES = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
PROBED = 30  # percent of the SMs in the probe
ERROR_LIMIT = 0.12  # mean of a workload's errors
UNTELLABLE = ("bandwidth",)  # not predictable without a probe
ROUNDS_FIRST = 4  # of 11 iterations; after these, each kernel's duration has settled
PATIENCE_S = 60.0  # to wait for a recorded iteration, in real time: a busy machine takes longer

Times = Mapping[int, Mapping[str, float]]  # percentage -> workload -> ns per iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """A workload's relative errors: predicted time against measured time."""

    mean: float
    worst: float
    worst_at_percent: int


def measure(
    percentages: Sequence[int] = PERCENTAGES, workloads: Sequence[str] = tuple(WORKLOADS)
) -> dict[str, Any]:
    """Measure every workload's errors with a probe and without; return them with their bars."""
    with stage() as place:
        image = place.folder / "scaling.so"
        softgpu.compile_kernels(HERE / "partition_scaling.cu", image)
        times = {p: _bare(place, image, p, workloads) for p in {*percentages, PROBED}}
        windows = {name: _recorded(place, image, name) for name in workloads}
    measured = {percent: times[percent] for percent in percentages}
    found: dict[str, dict[str, Errors]] = {}
    for name, window in windows.items():
        probe = {sms_of(PROBED): round(times[PROBED][name])}
        found[name] = {
            "predicted": errors_of(tell_scaling(window, SMS, SMS), measured, name),
            "probed": errors_of(tell_scaling(window, SMS, SMS, probes=probe), measured, name),
        }
    figures = {
        name: {how: asdict(one) for how, one in ways.items()} for name, ways in found.items()
    }
    return {"mode": "mps", "workloads": figures, "bars": _bars(found)}


def errors_of(curve: Curve, measured: Times, workload: str) -> Errors:
    """Compare the curve with every percentage that was measured."""
    errors = {
        percent: abs(curve.at(sms_of(percent)) / times[workload] - 1)
        for percent, times in measured.items()
    }
    worst_at = max(errors, key=lambda percent: errors[percent])
    return Errors(mean=mean(errors.values()), worst=errors[worst_at], worst_at_percent=worst_at)


def sms_of(percent: int) -> int:
    """The SMs that a client gets under that percentage."""
    return max(1, round(SMS * percent / 100))


def _bars(found: Mapping[str, Mapping[str, Errors]]) -> dict[str, Bar]:
    return {
        f"{name}_{how}_error": bar(one.mean, ERROR_LIMIT)
        for name, ways in found.items()
        for how, one in ways.items()
        if how == "probed" or name not in UNTELLABLE
    }


def _env(place: Stage, percent: int) -> dict[str, str]:
    return {
        **place.env,
        "TANDEM_SOFTGPU_PROFILE": PROFILE,
        "TANDEM_SOFTGPU_CLOCK": "virtual",
        "TANDEM_SOFTGPU_MODE": "mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent),
    }


def _bare(place: Stage, image: Path, percent: int, workloads: Sequence[str]) -> dict[str, float]:
    progress(f"scaling: {percent} % of the SMs")
    command = [sys.executable, "-m", "bench.scaling_client", str(image), *workloads]
    with _trainer(place, command, _env(place, percent)) as child:
        return _round(child)


def _recorded(place: Stage, image: Path, workload: str) -> Recorded:
    """Record an iteration of the workload on all SMs."""
    progress(f"scaling: an iteration of {workload}")
    env = _env(place, 100)
    tandem = [sys.executable, "-m", "tandem.cli", "run", "--require", "-J", workload]
    command = [*tandem, "-p", "latency", "--", sys.executable, "-m", "bench.scaling_client"]
    with (
        place.daemon("--clock", "softgpu", env=env),
        _trainer(place, [*command, str(image), workload], env) as child,
        Client(directory=env["TANDEM_RUNTIME_DIR"]) as client,
    ):
        client.status()  # connects now, while the daemon is idle
        for _ in range(ROUNDS_FIRST):
            _round(child)
        tell(child, "train")
        for window in client.windows(workload, patience_s=PATIENCE_S):
            if window.iterations:
                return _window(window)
        raise NotMeasuredError(f"no iteration of {workload} was recorded")


def _window(found: _results.Window) -> Recorded:
    return Recorded(
        begin_ns=found.begin_ns,
        end_ns=found.end_ns,
        iterations=found.iterations,
        lost=found.lost_records,
        is_cut=found.is_cut,
        records=found.records,
    )


@contextmanager
def _trainer(
    place: Stage, command: list[str], env: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    log = place.folder / "trainer.log"
    with place.running(command, env, log) as child:
        if next_line(child) != "ready":
            raise NotMeasuredError(f"a trainer did not start: {log.read_text()[-300:]}")
        yield child


def _round(child: subprocess.Popen[str]) -> dict[str, float]:
    tell(child, "time")
    line = next_line(child)
    if not line:
        raise NotMeasuredError("a trainer ended")
    took: dict[str, float] = json.loads(line)
    return took
