"""Jobs whose memory does not fit together: taking turns under Tandem, and one after the other.

Does what `tandem demo memory` does, on the virtual clock. Checks structure only: two trainers
without gaps lose little by taking turns if a turn is fifty times as long as passing it on;
notebooks gain, since others compute in their gaps; and every byte is right.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from bench.bars import Bar, bar, progress
from bench.stage import NotMeasuredError
from tandem.demo.memory.conductor import SWAPPABLE, Conductor
from tandem.demo.memory.scenario import Outcome, Stage
from tandem.demo.memory.settings import NOTEBOOKS, TRAINERS, Kind, Pace
from tandem.demo.process import WorkerError

TRAINERS_LIMIT = 1.10  # relative to the time that they need one after the other
GAPS_LIMIT = 1.0
BUSY = 0.85  # jobs with gaps must compute for less than this share of their time


def measure() -> dict[str, Any]:
    """Return ratios to serial without and with gaps, how busy jobs with gaps are, and the bars."""
    folder = Path(tempfile.mkdtemp(prefix="tandem-bench-"))
    try:
        demo = Conductor.prepare(clock="virtual", seconds=None, folder=folder, say=progress)
        trainers = _both_ways(demo.stage, TRAINERS, demo.trainer)
        notebooks = _both_ways(demo.stage, NOTEBOOKS, demo.notebook)
    except WorkerError as error:
        raise NotMeasuredError(str(error)) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    gaps_s = demo.notebook.gap_ns * (demo.notebook.cells - 1) / 1e9
    busy_ratio = 1 - gaps_s / max(outcome.seconds for outcome in notebooks[1])
    has_gaps = "" if busy_ratio < BUSY else f"they compute {busy_ratio:.0%} of their time alone"
    ratios = {
        "trainers_vs_serial": _ratio(*trainers),
        "notebooks_vs_serial": _ratio(*notebooks),
    }
    bars: dict[str, Bar] = {
        "trainers_vs_serial": bar(ratios["trainers_vs_serial"], TRAINERS_LIMIT),
        "notebooks_vs_serial": bar(ratios["notebooks_vs_serial"], GAPS_LIMIT, doubt=has_gaps),
        "wrong_jobs": bar(_wrong(trainers[0]) + _wrong(notebooks[0]), 0),
    }
    return {**ratios, "notebooks_busy_ratio": round(busy_ratio, 3), "bars": bars}


def _both_ways(stage: Stage, kind: Kind, pace: Pace) -> tuple[Outcome, list[Outcome]]:
    progress(f"turns: {kind.name}")
    on_turns = stage.run(f"turns-{kind.name}", kind, pace, options=SWAPPABLE)
    return on_turns, stage.alone(kind, pace)


def _ratio(on_turns: Outcome, serial: list[Outcome]) -> float:
    return on_turns.seconds / sum(outcome.seconds for outcome in serial)


def _wrong(outcome: Outcome) -> int:
    """Count the jobs that did not finish with every byte right."""
    return sum(not (job.is_finished and job.correct) for job in outcome.jobs)
