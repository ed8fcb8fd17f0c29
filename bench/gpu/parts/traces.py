"""Part `traces`: recordings of the programs, small enough to be kept as test input.

Each is written beside the results as traces/NAME.xz; docs/benchmarks.md says where they go. Reports
whether the iterations that a program marks are found without its marks, but does not judge it.
"""

from __future__ import annotations

import lzma
import time
from pathlib import Path
from typing import Any

from bench.gpu.figures import trace_facts
from bench.gpu.harness import children, recorded, sources
from bench.gpu.harness.part import GPU, Bench, main, progress, say
from tandem.dag.from_trace import from_trace
from tandem.demo.process import WorkerError
from tandem.errors import TandemError
from tandem.trace.file import read

# The programs that are recorded, with the number of iterations of each.
PROGRAMS = {
    "cuda_bindings": 12,
    "vision": 20,
    "language": 16,
    "eager": 12,
    "graph": 20,
    "compiled": 20,
    "allocations": 16,
    "loader_fork": 20,
    "jax": 20,
    "cupy": 20,
}
MOST_BYTES = 3 << 19  # per recording, so that all together stay below 16 MiB
RESERVE_S = 20.0
BUDGET_S = 150.0  # for all recordings; those not begun by then are left out


def measure(bench: Bench) -> dict[str, Any]:
    """Make a row per recording."""
    end_s = progress.end_s(reserve_s=RESERVE_S, most_s=BUDGET_S)
    folder = bench.keep / "traces"
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[str, Any]] = {}
    for name, iterations in PROGRAMS.items():
        reason = sources.why_not(bench, name)
        if not reason and time.monotonic() > end_s:
            reason = "no time was left"
        rows[name] = (
            {"recorded": f"not run: {reason}"} if reason else _row(bench, name, iterations, folder)
        )
        bench.save({"rows": rows})
        say(f"{name}: {rows[name]}")
    return {"rows": rows, "ok": any(row["recorded"] == "ok" for row in rows.values())}


def _row(bench: Bench, name: str, iterations: int, folder: Path) -> dict[str, Any]:
    begin_s = time.monotonic()
    try:
        path = recorded.record(bench, name, iterations)
        took_s = time.monotonic() - begin_s
        packed = lzma.compress(path.read_bytes())
        recording = read(path)
        found = trace_facts.iterations(from_trace(recording, name))
    except (WorkerError, TandemError) as failure:
        return {"recorded": f"error: {children.last_line(failure)}"}
    row = {
        "recorded": "ok",
        **trace_facts.calls(recording),
        **found,
        "seconds": round(took_s, 1),
        "bytes": len(packed),
    }
    if not row["launches"] and not row["graphs"]:
        return row | {"recorded": "it launched nothing"}
    if len(packed) > MOST_BYTES:
        return row | {"recorded": f"{len(packed)} bytes are more than {MOST_BYTES}"}
    place = "" if bench.where == GPU else f"-{bench.where}"
    (folder / f"{name}{place}.xz").write_bytes(packed)
    return row


if __name__ == "__main__":
    main(measure)
