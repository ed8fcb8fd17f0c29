"""How fast the dependency graph of a job is built, in CPU time, and what memory a node takes.

A made-up job with one thread and 16 streams: an event and a wait for it each 8 launches, a wait of
the host each 1,000. Once what its launches use is not known, as between samples; once each uses
three buffers. A window of the newest 100,000 or 150,000 nodes is kept. The whole analysis is
measured on 300,000 nodes of each kind, and has no bar.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from bench.bars import bar, progress, show, show_bars
from bench.stage import CORE, NotMeasuredError, Stage, stage

ORDER_LIMIT_NS = 200.0  # 5 million nodes a second
BUFFERS_LIMIT_NS = 3333.0  # 300 thousand
BYTES_LIMIT = 200.0
RUN_S = 50.0
PARTS = [CORE / "dag" / f"{part}.cpp" for part in ("clocks", "data", "graph", "order")]
ANALYSIS = sorted((CORE / "dag" / "analysis").glob("*.cpp"))


def run() -> dict[str, Any]:
    """Measure, print a table, return the result."""
    with stage() as place:
        progress("graphs of a job on 16 streams")
        found = _figures(place)
    figures = {
        "order_million_nodes_per_s": _million_per_s(found["order"]["ns_a_node"]),
        "buffers_million_nodes_per_s": _million_per_s(found["buffers"]["ns_a_node"]),
        "order_bytes_a_node": found["order"]["bytes_a_node"],
        "buffers_bytes_a_node": found["buffers"]["bytes_a_node"],
        "order_analysed_million_nodes_per_s": _million_per_s(found["order"]["analysis_ns_a_node"]),
        "buffers_analysed_million_nodes_per_s": _million_per_s(
            found["buffers"]["analysis_ns_a_node"]
        ),
        "load": round(os.getloadavg()[0], 1),
    }
    bars = {
        "order_ns": bar(found["order"]["ns_a_node"], ORDER_LIMIT_NS),
        "buffers_ns": bar(found["buffers"]["ns_a_node"], BUFFERS_LIMIT_NS),
        "order_bytes": bar(found["order"]["bytes_a_node"], BYTES_LIMIT),
    }
    print("dag, best of 4 runs, largest memory")
    show(figures, "")
    show_bars(bars)
    return {"bench": "dag", **figures, "bars": bars}


def _million_per_s(ns_a_node: float) -> float:
    return round(1e3 / ns_a_node, 2)


def _figures(place: Stage) -> dict[str, dict[str, float]]:
    program = place.compile("dag.cpp", *PARTS, *ANALYSIS)
    child = subprocess.run([program], capture_output=True, text=True, timeout=RUN_S, check=False)
    if child.returncode != 0:
        raise NotMeasuredError(f"the measuring program ended with {child.returncode}")
    found: dict[str, dict[str, float]] = json.loads(child.stdout)
    return found
