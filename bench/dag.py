"""What the dependency graph of a job costs: building it, its memory, and observing a running job.

Uses a synthetic job with one thread and 16 streams: an event and a wait for it every 8 launches, a
host synchronization every 1,000. In the first case, `order`, it is unknown which memory a launch
uses, as between samples; in the second, `buffers`, each launch uses three buffers. The graph keeps
a window of the newest 100,000 or 150,000 nodes; times are CPU time. The whole analysis is measured
on 300,000 nodes in each case and has no bar. dag_live.py measures what observing a running job's
telemetry costs the daemon, dag_sample.py what samples cost the job. dag_command.py measures the
whole of `tandem dag` and has no bar either, since Python's CPU time varies with the machine's load.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

from bench import dag_command, dag_live, dag_sample
from bench.bars import bar, progress, show, show_bars
from bench.stage import CORE, NotMeasuredError, Stage, stage

ORDER_LIMIT_NS = 200.0  # 5 million nodes a second
BUFFERS_LIMIT_NS = 3333.0  # 300 thousand nodes a second
BYTES_LIMIT = 200.0
RUN_S = 50.0
PARTS = [CORE / "dag" / f"{part}.cpp" for part in ("clocks", "data", "graph", "order")]
ANALYSIS = sorted((CORE / "dag" / "analysis").glob("*.cpp"))


def run() -> dict[str, Any]:
    """Measure, print a table, return the result."""
    with stage() as place:
        progress("graphs of a job on 16 streams")
        built = _built(place)
        progress(f"tandem dag of {dag_command.OPERATIONS:,} operations")
        command_ns = dag_command.ns_a_node(place.folder)
        live, live_doubt = _unless_busy(dag_live.figures, place)
        sample, sample_doubt = _unless_busy(dag_sample.figures, place)
    engine_ns = built["buffers"]["ns_a_node"] + built["buffers"]["analysis_ns_a_node"]
    figures = {
        "order_million_nodes_per_s": _million_per_s(built["order"]["ns_a_node"]),
        "buffers_million_nodes_per_s": _million_per_s(built["buffers"]["ns_a_node"]),
        "order_bytes_a_node": built["order"]["bytes_a_node"],
        "buffers_bytes_a_node": built["buffers"]["bytes_a_node"],
        "order_analysed_million_nodes_per_s": _million_per_s(built["order"]["analysis_ns_a_node"]),
        "buffers_analysed_million_nodes_per_s": _million_per_s(
            built["buffers"]["analysis_ns_a_node"]
        ),
        "command_us_a_node": round(command_ns / 1e3, 1),
        "command_over_engine": round(command_ns / engine_ns, 1),
        **{f"live_{name}_ratio": round(value, 5) for name, value in live.items()},
        **{name: round(value, 3) for name, value in sample.items()},
        "load": round(os.getloadavg()[0], 1),
    }
    unknown = float("nan")
    bars = {
        "order_ns": bar(built["order"]["ns_a_node"], ORDER_LIMIT_NS),
        "buffers_ns": bar(built["buffers"]["ns_a_node"], BUFFERS_LIMIT_NS),
        "order_bytes": bar(built["order"]["bytes_a_node"], BYTES_LIMIT),
        "live_core_ratio": bar(
            dag_live.worst(live) if live else unknown, dag_live.LIMIT_RATIO, doubt=live_doubt
        ),
        "between_samples_ratio": bar(
            sample.get("between_samples_ratio", unknown),
            dag_sample.BETWEEN_LIMIT_RATIO,
            doubt=sample_doubt,
        ),
        "sample_ns": bar(
            sample.get("sample_added_ns", unknown), dag_sample.LIMIT_NS, doubt=sample_doubt
        ),
    }
    print("dag, best of 4 runs, largest memory; live and samples, smallest of their rounds")
    show(figures, "")
    show_bars(bars)
    return {"bench": "dag", **figures, "bars": bars}


def _unless_busy(
    measure: Callable[[Stage], dict[str, float]], place: Stage
) -> tuple[dict[str, float], str]:
    """Return the figures that `measure` finds, or none and the reason."""
    try:
        return measure(place), ""
    except NotMeasuredError as error:
        return {}, str(error)


def _million_per_s(ns_a_node: float) -> float:
    return round(1e3 / ns_a_node, 2)


def _built(place: Stage) -> dict[str, dict[str, float]]:
    program = place.compile("dag.cpp", *PARTS, *ANALYSIS)
    child = subprocess.run([program], capture_output=True, text=True, timeout=RUN_S, check=False)
    if child.returncode != 0:
        raise NotMeasuredError(f"the measuring program ended with {child.returncode}")
    found: dict[str, dict[str, float]] = json.loads(child.stdout)
    return found
