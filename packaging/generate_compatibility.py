"""Write docs/compatibility.md from the results of test runs.

    python packaging/generate_compatibility.py [--run] [--output FOLDER]

The page is made from the outcome of the client matrix in docs/compatibility.json and from the
results of `make gpu` under bench/results. With `--run`, the client matrix runs first (tests/matrix,
without a GPU; a few minutes) and its outcome is written to that file. A row that never ran says so.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import gpu_results

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "docs"
NAME = "compatibility.md"
RUNS = "compatibility.json"
MATRIX = ROOT / "tests" / "matrix"
TOOLKITS = ("12.9", "13")
UNDER_TANDEM = ("under_tandem", "in_a_job")

PREFACE = """\
# What was run, and how it went

Made by `python packaging/generate_compatibility.py`; do not edit. `--run` runs the matrix again.

Each row counts programs of `tests/matrix`, all unmodified: *bare* on the software GPU, and *under
Tandem* started there by `tandem run --require`. `3/3` means that all three ended as they should,
with correct results. The software GPU shows that calls do what the documentation says; only a GPU
shows what NVIDIA's driver makes of them.

"""

GPU_PREFACE = """\
## On a GPU

Run by `make gpu` on a machine with a GPU; the results are kept under `bench/results`.

"""


@dataclass(frozen=True, kw_only=True)
class Client:
    """A package of the matrix, and the words in a test's name that identify it."""

    name: str
    package: str
    words: tuple[str, ...]


CLIENTS = (
    Client(name="cuda.bindings", package="cuda-bindings", words=("bindings_",)),
    Client(name="cuda.core", package="cuda-core", words=("core_", "test_cuda_core_")),
    Client(name="numba-cuda", package="numba-cuda", words=("numba_", "nvjitlink")),
    Client(name="pynvml", package="nvidia-ml-py", words=("nvml",)),
    Client(name="gpustat", package="gpustat", words=("gpustat",)),
    Client(name="nvitop", package="nvitop", words=("nvitop",)),
)


# Parts with a row per program. The second, which does not time them, may have run a program that
# the first had no time for.
TIMED, UNTIMED = WITH_ROWS = ("workloads", "programs")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Something only a GPU can run, and the part of `make gpu` that runs it."""

    name: str
    part: str | None = None  # None: no program of ours uses it yet
    rows: tuple[str, ...] = ()  # rows of the part; none: the whole part


WORKLOADS = (
    Workload(name="the demo's server and trainers", part="demo"),
    Workload(name="conformance bodies against NVIDIA's driver", part="conformance"),
    Workload(name="random driver programs, bare and managed", part="proof"),
    Workload(name="PyTorch: streams, memory that runs out", part="tests"),
    Workload(name="PyTorch: same results with and without", part="same_results"),
    *(
        Workload(name=name, part=TIMED, rows=rows)
        for name, rows in (
            ("PyTorch: eager", ("eager",)),
            ("PyTorch: trainers, ResNet-like and transformer", ("vision", "language")),
            ("PyTorch: CUDA graphs", ("graph",)),
            ('PyTorch: `torch.compile(mode="reduce-overhead")`', ("compiled",)),
            ("PyTorch: the caching allocator", ("allocations",)),
            ("PyTorch: `expandable_segments:True`", ("expandable_segments",)),
            ("PyTorch: `backend:cudaMallocAsync`", ("malloc_async",)),
            ("PyTorch: `tandem run --swappable`", ("swappable",)),
        )
    ),
    *(
        Workload(name=name, part=UNTIMED, rows=rows)
        for name, rows in (
            ("PyTorch: data loaders by fork and spawn", ("loader_fork", "loader_spawn")),
            ("PyTorch: tensors between processes", ("between_processes",)),
            ("JAX", ("jax",)),
            ("CuPy", ("cupy",)),
            ("Triton", ("triton",)),
            ("numba-cuda", ("numba",)),
        )
    ),
    Workload(name="vLLM"),
)


def main() -> int:
    """Write the page, running the matrix first if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", action="store_true", help="run the client matrix first")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the page")
    arguments = parser.parse_args()
    code = 0
    if arguments.run:
        code = run_matrix()
    generate(arguments.output)
    return code


def generate(output: Path) -> None:
    """Write the page into `output`."""
    runs = json.loads((OUTPUT / RUNS).read_text())
    lines = [PREFACE, *_matrix(runs), "\n", GPU_PREFACE, *_gpu()]
    (output / NAME).write_text("".join(lines))


def run_matrix() -> int:
    """Run the matrix and record its outcome; return pytest's exit code."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not gpu", str(MATRIX)]
        done = subprocess.run([*command, f"--junitxml={report}"], cwd=ROOT, check=False)
        if not report.is_file():
            sys.exit(f"error: the matrix did not run (pytest ended with {done.returncode})")
        outcomes = dict(_outcomes(report))
    runs = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "tests": dict(sorted(outcomes.items()))}
    (OUTPUT / RUNS).write_text(json.dumps(runs, indent=1) + "\n")
    return done.returncode


def _outcomes(report: Path) -> Iterator[tuple[str, str]]:
    """Yield each test's name with passed, failed or skipped, from our own JUnit report."""
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        failed = kinds & {"failure", "error"}
        outcome = "failed" if failed else "skipped" if "skipped" in kinds else "passed"
        yield case.attrib["name"], outcome


def _matrix(runs: dict[str, object]) -> Iterator[str]:
    tests: dict[str, str] = dict(runs["tests"])  # type: ignore[call-overload]
    yield f"## On the software GPU\n\nLast run: {runs['date']}.\n\n"
    yield "| client | version | CUDA | bare | under Tandem |\n|---|---|---|---|---|\n"
    for client in CLIENTS:
        for toolkit in TOOLKITS:
            mine = {
                name: outcome
                for name, outcome in tests.items()
                if any(word in name for word in client.words) and _toolkit(name) == toolkit
            }
            managed = {name: o for name, o in mine.items() if any(w in name for w in UNDER_TANDEM)}
            bare = {name: o for name, o in mine.items() if name not in managed}
            version = _version(client.package, toolkit)
            cells = (client.name, version, toolkit, _count(bare), _count(managed))
            yield f"| {' | '.join(cells)} |\n"


def _toolkit(test: str) -> str:
    """Find the toolkit in a parametrised name such as `test_a_client[12.9-nvml]`."""
    match = re.search(r"\[(?:.*-)?(12\.9|13)(?:-.*)?\]$", test)
    return match[1] if match else ""


def _version(package: str, toolkit: str) -> str:
    pinned = (MATRIX / f"requirements-{toolkit}.txt").read_text()
    match = re.search(rf"^{re.escape(package)}(?:\[.*\])?==(\S+)", pinned, re.M)
    if match is None:
        sys.exit(f"error: requirements-{toolkit}.txt does not pin '{package}'")
    return match[1]


def _count(outcomes: dict[str, str]) -> str:
    ran = [outcome for outcome in outcomes.values() if outcome != "skipped"]
    if not ran:
        return "not run"
    passed = ran.count("passed")
    return f"{passed}/{len(ran)}" + ("" if passed == len(ran) else " **fails**")


def _gpu() -> Iterator[str]:
    yield "| workload | part | result |\n|---|---|---|\n"
    for workload in map(_where_it_ran, WORKLOADS):
        part = f"`{workload.part}`" if workload.part else ""
        yield f"| {workload.name} | {part} | {_gpu_result(workload)} |\n"


def _where_it_ran(workload: Workload) -> Workload:
    """Assign the workload to the first part that ran all its rows; leave it as is if none did."""
    for part in WITH_ROWS if workload.rows else ():
        found = gpu_results.newest(part)
        if found is not None and _all_ran(workload, found.figures):
            return replace(workload, part=part)
    return workload


def _all_ran(workload: Workload, figures: Mapping[str, Any]) -> bool:
    return all("ok" in figures.get("rows", {}).get(name, {}) for name in workload.rows)


def _gpu_result(workload: Workload) -> str:
    """The result in the newest file that has the part; dry runs do not count."""
    if workload.part is None:
        return "not run: no program of ours uses it yet"
    found = gpu_results.newest(workload.part)
    if found is not None:
        return f"{_outcome(workload, found.figures)}: `bench/results/{found.path.name}`"
    return f"not run: needs a GPU (`make gpu PART={workload.part}`)"


def _outcome(workload: Workload, figures: Mapping[str, Any]) -> str:
    """The outcome of a part, or of each of the workload's rows."""
    if not workload.rows or "rows" not in figures:
        return "**failed**" if {"failed", "failed_again"} & figures.keys() else "passed"
    rows: Mapping[str, Mapping[str, Any]] = figures["rows"]
    return "; ".join(dict.fromkeys(_row(rows.get(name, {})) for name in workload.rows))


def _row(row: Mapping[str, Any]) -> str:
    """A row's outcome in words; a row slower than its limit is not `ok` either."""
    if "ok" not in row:
        return str(row.get("runs_bare", "not run"))
    if row["runs_bare"] != "ok":
        return "fails without Tandem too"
    if row["runs_managed"] == "ok":
        said = f"results {row['same_results']}, {_beside_that(row)}"
    else:
        said = row["runs_managed"]
    return said if row["ok"] else f"**{said}**"


def _beside_that(row: Mapping[str, Any]) -> str:
    """What else a row tells: how fast it ran, or how it went together with other programs."""
    if "ratio" in row:
        return f"{row['ratio']} of the throughput"
    how = row["runs_together"]
    joined = "and under one with all others" if how == "ok" else f"(with all others: {how})"
    return f"under a daemon of its own {joined}"


if __name__ == "__main__":
    sys.exit(main())
