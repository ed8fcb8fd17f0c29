"""Part `frameworks`: how frameworks use the driver, and how much of it the shim can see.

How they look up its functions, whether the ways to do so agree, what is known about their kernels'
parameters, which streams and contexts they use, and which contexts captured graphs name. Nothing is
judged; a question that fails records why.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from bench.gpu.figures import trace_facts
from bench.gpu.figures.asked import unlisted
from bench.gpu.figures.workload_rows import NOT_RUN
from bench.gpu.harness import children, native, recorded, running, sources
from bench.gpu.harness.beliefs import Belief
from bench.gpu.harness.part import Bench, main, progress, say
from bench.gpu.harness.questions import answered
from tandem.demo.process import Message, WorkerError
from tandem.errors import TandemError
from tandem.trace.file import read

sys.path.insert(0, str(native.SHIM))

import call_table
import generate_versions

ITERATIONS = 6
# Each runs in two processes: one whose calls are recorded, one whose look-ups are.
PROGRAMS = ("cuda_bindings", "vision", "language", "jax", "cupy", "triton", "numba")
RUNNING = ("cuda_bindings", "vision", "language", "jax")  # these run under a daemon, too
GRAPHS = {"driver": "cuda_bindings", "torch": "graph", "compiled": "compiled"}
BUDGET_S = 200.0  # for all questions; those not begun by then are not asked
DEADLINE_S = 60.0
RESERVE_S = 30.0
COLUMNS = (
    *("recorded", "launches", "sized_share", "resolved_share"),
    *("processes", "contexts", "in_legacy", "in_per_thread", "in_own"),
    *(
        "own_blocking",
        "own_non_blocking",
        "linked",
        "dlsym",
        "looked_up",
        "unlisted",
        "export_tables",
    ),
)
RUNNING_COLUMNS = (
    *("learnt", "iterations", "launches"),
    *("sampled_share", "with_buffers_share", "all_known_share"),
)

BELIEFS = (
    Belief(
        question="By which ways do programs find the driver's functions: names that libraries are "
        "linked to, names by dlsym, names by cuGetProcAddress",
        believed="cuda.bindings and the CUDA runtime: one by dlsym, all others by "
        "cuGetProcAddress; ctypes and old runtimes: dlsym; few are linked to it",
        used_by=("shim/lookup.cpp", "docs/interception.md"),
        answers=(
            "programs.cuda_bindings.dlsym",
            "programs.cuda_bindings.looked_up",
            "programs.vision.linked",
            "programs.vision.dlsym",
            "programs.vision.looked_up",
            "programs.jax.dlsym",
            "programs.jax.looked_up",
            "programs.cupy.dlsym",
            "programs.cupy.looked_up",
        ),
    ),
    Belief(
        question="Which look-ups name a function or a version that the shim's table lacks?",
        believed="those of OpenGL, EGL and VDPAU, cuProfilerInitialize, and of 13.5 "
        "cuSubgrid..; so the runtimes 11.7 to 13.5 ask, seen without a GPU",
        used_by=("shim/calls.def", "shim/lookup.cpp"),
        answers=(
            "programs.cuda_bindings.unlisted",
            "programs.vision.unlisted",
            "programs.jax.unlisted",
            "programs.cupy.unlisted",
        ),
    ),
    Belief(
        question="Do dlsym and cuGetProcAddress give the same function for the same name?",
        believed="not known; the shim does not rely on it for a base name of one revision",
        used_by=("shim/handlers/lookups.h",),
        answers=(
            "agreement.same",
            "agreement.different",
            "agreement.only_exported",
            "agreement.only_looked_up",
        ),
    ),
    Belief(
        question="Does the runtime launch through tables of cuGetExportTable?",
        believed="it asks for some, and launches by the driver's functions",
        used_by=("docs/interception.md",),
        answers=("programs.vision.export_tables", "programs.vision.launches"),
    ),
    Belief(
        question="Of which share of launches are the sizes of the kernel's parameters known?",
        believed="of all; cuFuncGetParamInfo answers for cuBLAS and cuDNN too",
        used_by=("shim/trace/tracing_functions.cpp", "csrc/core/dag/parameters.h"),
        answers=(
            "programs.cuda_bindings.sized_share",
            "programs.vision.sized_share",
            "programs.language.sized_share",
            "kernels.vision",
            "kernels.language",
        ),
    ),
    Belief(
        question="Which share of the words that could be addresses lead to known allocations?",
        believed="nearly all; of cuBLAS and cuDNN some are in structures",
        used_by=("csrc/core/dag/parameters.h", "docs/dag.md"),
        answers=(
            "programs.cuda_bindings.resolved_share",
            "programs.vision.resolved_share",
            "programs.language.resolved_share",
        ),
    ),
    Belief(
        question="Of how many launches of a running job's iteration does the graph know a buffer, "
        "and of how many all that they touch?",
        believed="a buffer of nearly all; all of those whose names say their parameters' types",
        used_by=("daemon/tandemd/observers/windows.py", "docs/dag.md"),
        answers=(
            "running.cuda_bindings.with_buffers_share",
            "running.cuda_bindings.all_known_share",
            "running.vision.with_buffers_share",
            "running.vision.all_known_share",
            "running.language.all_known_share",
        ),
    ),
    Belief(
        question="Which streams and contexts do frameworks work in?",
        believed="torch in the legacy stream of one context, JAX in non-blocking ones of its own",
        used_by=("shim/partition/streams.cpp", "csrc/core/dag/order.h"),
        answers=(
            "programs.vision.in_legacy",
            "programs.vision.in_own",
            "programs.vision.contexts",
            "programs.jax.own_non_blocking",
            "programs.cupy.in_legacy",
        ),
    ),
    Belief(
        question="Which contexts do nodes of captured graphs name?",
        believed="all of them the one of the stream that captured them",
        used_by=("shim/partition/streams.cpp", "docs/partitions.md"),
        answers=(
            "graphs.driver.nodes",
            "graphs.driver.kernel_parameters",
            "graphs.driver.contexts",
            "graphs.torch",
            "graphs.compiled",
        ),
    ),
)


def measure(bench: Bench) -> dict[str, Any]:
    """Ask every question, each independent of the others."""
    end_s = progress.end_s(reserve_s=RESERVE_S, most_s=BUDGET_S)
    figures: dict[str, Any] = {
        "agreement": answered("agreement", lambda: _agreement(bench)),
        "programs": {},
        "kernels": {},
        "lookups": {},
    }
    for name in PROGRAMS:
        reason = sources.why_not(bench, name) or _late(end_s)
        recording, lookups = _asked(bench, name, reason)
        figures["programs"][name] = row_of(recording, lookups)
        figures["kernels"][name] = recording.get("kernels", recording)
        figures["lookups"][name] = lookups
        bench.save(figures)
        say(f"{name}: {figures['programs'][name]['recorded']}")
    for name in RUNNING:
        learnt = _learnt(bench, name, sources.why_not(bench, name) or _late(end_s))
        figures.setdefault("running", {})[name] = running_row(learnt)
        figures.setdefault("running_kernels", {})[name] = learnt.get("families", {})
        bench.save(figures)
    figures["graphs"] = _graphs_of_all(bench, end_s)
    return {**figures, "ok": True}


def _asked(bench: Bench, name: str, reason: str) -> tuple[Message, Message]:
    """Get a program's recording and its look-ups; `reason`, if any, is why it is not run."""
    if reason:
        told = {"error": f"{NOT_RUN}: {reason}"}
        return told, told
    recording, lookups = _together(
        {
            f"{name}: recording": partial(_recording, bench, name),
            f"{name}: look-ups": partial(_lookups, bench, name),
        }
    )
    return recording, lookups


def _together(questions: Mapping[str, Callable[[], Message]]) -> list[Message]:
    """Ask several questions at once, since starting a framework takes longer than the question."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(answered, questions.keys(), questions.values()))


def _learnt(bench: Bench, name: str, reason: str) -> Message:
    if reason:
        return {"error": f"{NOT_RUN}: {reason}"}
    return answered(f"running.{name}", lambda: running.iteration(bench, name))


def running_row(learnt: Message) -> dict[str, Any]:
    """A running job's figures under RUNNING_COLUMNS; what is not known says so."""
    row: dict[str, Any] = dict.fromkeys(RUNNING_COLUMNS, NOT_RUN)
    known = {name: learnt[name] for name in RUNNING_COLUMNS if name in learnt}
    return row | {"learnt": learnt.get("error", "ok")} | known


def row_of(recording: Message, lookups: Message) -> dict[str, Any]:
    """A program's figures under COLUMNS; what is not known says so."""
    row: dict[str, Any] = dict.fromkeys(COLUMNS, NOT_RUN)
    row["recorded"] = recording.get("error", "ok")
    if "kernels" in recording:
        row |= totals(recording["kernels"]) | recording["streams"]
    row |= {name: lookups[name] for name in ("linked", "dlsym", "looked_up") if name in lookups}
    row |= {n: len(lookups[n]) for n in ("unlisted", "export_tables") if n in lookups}
    return row


def totals(kernels: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Figures for the kernels of all families together."""
    launches = sum(family["launches"] for family in kernels.values())
    addresses = sum(family["addresses"] for family in kernels.values())
    sized = sum(family["sized_share"] * family["launches"] for family in kernels.values())
    resolved = sum(
        family.get("resolved_share", 0) * family["addresses"] for family in kernels.values()
    )
    return {
        "launches": launches,
        "sized_share": round(sized / launches, 4) if launches else NOT_RUN,
        "resolved_share": round(resolved / addresses, 4) if addresses else NOT_RUN,
    }


def most(answers: list[Message]) -> Message:
    """The program's process that looked up most, and how many processes had the driver.

    Raises:
        WorkerError: no process had it.
    """
    if not answers:
        raise WorkerError("no process had the driver")
    main_one = max(answers, key=lambda said: said["look_ups"] + said["dlsym"])
    versions = sorted(int(version) for version in main_one["versions"])
    span = {"oldest": versions[0], "newest": versions[-1]} if versions else {}
    said = {name: value for name, value in main_one.items() if name != "asked"}
    return said | {
        "versions": {**span, "count": len(versions)},
        "unlisted": unlisted(main_one["asked"], shims_table()),
        "processes": len(answers),
    }


def shims_table() -> str:
    """The driver functions that the shim knows, as lines "base exported since per_thread"."""
    rows = call_table.read(call_table.TABLE.read_text())
    lines = generate_versions.versions(rows).splitlines()
    return "".join(line[len("CU_VERSION(") : -1].replace(",", "") + "\n" for line in lines)


def _late(end_s: float) -> str:
    return "no time was left" if time.monotonic() > end_s else ""


def _agreement(bench: Bench) -> Message:
    names = bench.folder / "names"
    names.write_text(shims_table())
    command = [str(native.program(bench, "agreement")), str(names)]
    env = bench.place.env(bench.folder / "agreement-gpu")
    return children.ask(command, env, deadline_s=DEADLINE_S)


def _recording(bench: Bench, name: str) -> Message:
    try:
        recording = read(recorded.record(bench, name, ITERATIONS))
    except TandemError as failure:
        raise WorkerError(str(failure)) from failure
    return {
        "kernels": trace_facts.parameters(recording),
        "streams": trace_facts.streams(recording),
    }


def _lookups(bench: Bench, name: str) -> Message:
    folder = bench.folder / f"{name}-lookups"
    folder.mkdir()
    env = recorded.environment(bench, folder / "gpu") | {
        "LD_PRELOAD": str(native.preloaded(bench, "lookups")),
        "LOOKUPS_FILE": str(folder / "said"),
    }
    children.run(recorded.program(bench, name, 1), env, deadline_s=DEADLINE_S)
    return most([json.loads(path.read_text()) for path in sorted(folder.glob("said.*"))])


def _graphs_of_all(bench: Bench, end_s: float) -> dict[str, Message]:
    late = _late(end_s)
    reasons = {what: sources.why_not(bench, program) or late for what, program in GRAPHS.items()}
    asked = [what for what, reason in reasons.items() if not reason]
    found = _together({f"graphs of {what}": partial(_graphs, bench, what) for what in asked})
    told = dict(zip(asked, found, strict=True))
    return {w: told.get(w, {"error": f"{NOT_RUN}: {reason}"}) for w, reason in reasons.items()}


def _graphs(bench: Bench, what: str) -> Message:
    env = recorded.environment(bench, bench.folder / f"{what}-graph-gpu")
    drawn = bench.keep / "graphs" / f"{what}.dot"
    drawn.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "bench.gpu.programs.graph_nodes", what]
    command += [bench.device, str(drawn)]
    return children.ask(command, env, deadline_s=DEADLINE_S)


if __name__ == "__main__":
    main(measure)
