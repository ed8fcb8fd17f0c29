"""How well the time of an iteration on fewer SMs is told from the records of one on all of them.

On the software GPU in mode mps, on its virtual clock. Every workload trains once under the daemon,
on all SMs, from which the daemon tells its scaling curve; and then without it under each percentage
of the SMs. With a probe the curve may use one of those as well.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from bench.bars import Bar, bar, progress
from bench.scaling_client import WORKLOADS
from bench.stage import HERE, NotMeasuredError, Stage, stage
from tandem import Client, softgpu
from tandem._results import ScalingCurve
from tandemd.core.scaling import Curve

PROFILE, SMS = "h200", 132
PERCENTAGES = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
PROBED = 30  # percent: of the probe
ERROR_LIMIT = 0.12  # mean of a workload's errors
PATIENCE_S = 20.0  # with a curve
LINE_S = 30.0

Times = Mapping[int, Mapping[str, float]]  # percentage, workload: an iteration, ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """How far what was told of a workload was from what was measured, as parts of that."""

    mean: float
    worst: float
    worst_at: int  # percent


def measure(
    percentages: Sequence[int] = PERCENTAGES, workloads: Sequence[str] = tuple(WORKLOADS)
) -> dict[str, Any]:
    """The errors of every workload, and their bars."""
    with stage() as place:
        image = place.folder / "scaling.so"
        softgpu.compile_kernels(HERE / "partition_scaling.cu", image)
        measured = {p: _bare(place, image, p, workloads) for p in percentages}
        curves = {name: _curve(place, image, name) for name in workloads}
    found = {name: errors_of(curve, measured, name) for name, curve in curves.items()}
    figures = {
        name: {"mean": one.mean, "worst": one.worst, "worst_at_percent": one.worst_at}
        for name, one in found.items()
    }
    return {"mode": "mps", "workloads": figures, "bars": _bars(found)}


def errors_of(curve: Curve, measured: Times, workload: str) -> Errors:
    """Against every percentage that was measured."""
    errors = {
        percent: abs(curve.at(sms_of(percent)) / times[workload] - 1)
        for percent, times in measured.items()
    }
    worst_at = max(errors, key=lambda percent: errors[percent])
    return Errors(mean=mean(errors.values()), worst=errors[worst_at], worst_at=worst_at)


def sms_of(percent: int) -> int:
    """SMs of a client under that percentage."""
    return max(1, round(SMS * percent / 100))


def _bars(found: Mapping[str, Errors]) -> dict[str, Bar]:
    return {f"{name}_error": bar(one.mean, ERROR_LIMIT) for name, one in found.items()}


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


def _curve(place: Stage, image: Path, workload: str) -> Curve:
    """What the daemon tells of it on all SMs."""
    progress(f"scaling: the curve of {workload}")
    env = _env(place, 100)
    tandem = [sys.executable, "-m", "tandem.cli", "run", "--require", "-J", workload]
    command = [*tandem, "-p", "latency", "--", sys.executable, "-m", "bench.scaling_client"]
    with (
        place.daemon("--clock", "softgpu", env=env),
        _trainer(place, [*command, str(image), workload], env) as child,
    ):
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            _round(child)
            part = _part(env["TANDEM_RUNTIME_DIR"])
            if part is not None and part.scaling is not None:
                return _told(part.scaling)
        doubt = part.doubt if part else "there is no such job"
        raise NotMeasuredError(f"no curve of {workload}: {doubt}")


def _part(directory: str) -> Any:  # noqa: ANN401
    with Client(directory=directory) as client:
        return next((job for gpu in client.partitions() for job in gpu.jobs), None)


def _told(curve: ScalingCurve) -> Curve:
    return Curve(sm_counts=curve.sm_counts, iteration_ns=curve.iteration_ns)


@contextmanager
def _trainer(
    place: Stage, command: list[str], env: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    log = place.folder / "trainer.log"
    with place.running(command, env, log) as child:
        if child.stdout is None or child.stdout.readline() != "ready\n":
            raise NotMeasuredError(f"a trainer did not start: {log.read_text()[-300:]}")
        yield child


def _round(child: subprocess.Popen[str]) -> dict[str, float]:
    if child.stdin is None or child.stdout is None:
        raise NotMeasuredError("a trainer has no pipes")
    child.stdin.write("go\n")
    child.stdin.flush()
    line = child.stdout.readline()
    if not line:
        raise NotMeasuredError("a trainer ended")
    took: dict[str, float] = json.loads(line)
    return took
