"""Two trainers whose memory peaks do not fit together: shifted, and one after the other.

Runs on the software GPU in mode mps, on its virtual clock, under the policies `curves` and
`priority`. Checks structure only: both end, sooner than one after the other, and never use more
memory than there is.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.bars import Bar, bar, progress
from bench.stage import NotMeasuredError, Stage, next_line, stage, tell

ITERATIONS = 30
RUN_S = 25.0
SHARED_LIMIT = 1.0  # relative to the time that they need one after the other

Ended = dict[str, int]


def measure() -> dict[str, Any]:
    """Return both ways' times in ns of virtual time, their memory use, and the bars."""
    shifted = _train("curves", together=True)
    serial = [_train("priority", together=False)[0] for _ in range(2)]
    shifted_ns = max(end["end_ns"] for end in shifted) - min(end["begin_ns"] for end in shifted)
    serial_ns = sum(end["end_ns"] - end["begin_ns"] for end in serial)
    figures = {
        "mode": "mps",
        "shifted_ns": shifted_ns,
        "serial_ns": serial_ns,
        "sum_of_peaks_bytes": sum(end["peak_bytes"] for end in shifted),
        "most_used_bytes": max(end["used_bytes"] for end in shifted),
        "total_bytes": shifted[0]["total_bytes"],
    }
    return {**figures, "bars": _bars(figures)}


def _bars(figures: dict[str, Any]) -> dict[str, Bar]:
    fits = figures["sum_of_peaks_bytes"] <= figures["total_bytes"]
    doubt = "the peaks fit together: there was nothing to shift" if fits else ""
    ratio = figures["shifted_ns"] / figures["serial_ns"]
    used = figures["most_used_bytes"] / figures["total_bytes"]
    return {
        "shifted_vs_serial": bar(ratio, SHARED_LIMIT, doubt=doubt),
        "used_of_total": bar(used, 1.0),
    }


def _train(policy: str, *, together: bool) -> list[Ended]:
    """Run both at once, or one of them; each run has a device with its own time."""
    count = 2 if together else 1
    progress(f"curves: {count} under {policy}")
    with stage() as place, ExitStack() as running:
        env = {
            **place.env,
            "TANDEM_SOFTGPU_PROFILE": "tiny",
            "TANDEM_SOFTGPU_CLOCK": "virtual",
            "TANDEM_SOFTGPU_MODE": "mps",
        }
        options = ("--clock", "softgpu", "--policy", policy)
        running.enter_context(place.daemon(*options, env=env))
        image = str(place.kernels())
        children = [
            running.enter_context(place.running(_trainer(image, number), env, _log(place, number)))
            for number in range(count)
        ]
        for number, child in enumerate(children):
            if next_line(child) != "ready":
                raise NotMeasuredError(f"a trainer did not start: {_end_of(_log(place, number))}")
        for child in children:
            tell(child, "go")
        return [
            _result(child.communicate(timeout=RUN_S)[0], child.returncode, _log(place, number))
            for number, child in enumerate(children)
        ]


def _trainer(image: str, number: int) -> list[str]:
    tandem = [sys.executable, "-m", "tandem.cli", "run", "--require", "-J", f"trainer-{number}"]
    return [*tandem, "--", sys.executable, "-m", "bench.curves_client", image, str(ITERATIONS)]


def _log(place: Stage, number: int) -> Path:
    return place.folder / f"trainer-{number}.log"


def _result(output: str, code: int, log: Path) -> Ended:
    if code != 0:
        raise NotMeasuredError(f"a trainer ended with {code}: {_end_of(log)}")
    ended: Ended = json.loads(output)
    return ended


def _end_of(log: Path) -> str:
    return log.read_text()[-300:] if log.exists() else "it said nothing"
