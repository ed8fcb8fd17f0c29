"""Names, merges and shows the results of the parts; takes one verb per call.

`label [WHERE]` prints <date>-<gpu>. `machine FILE` writes what ran here: GPU, driver, versions.
`merge PARTS FILE` merges the parts' files into one, which keeps its results of other parts.
`join FILE... TARGET` joins several such files into one.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import pynvml

from bench.gpu.figures.headline import headline
from bench.gpu.figures.tables import is_table, table
from bench.gpu.harness.part import GPU, NO_GPU
from tandem.demo.place import probe

PACKAGES = (
    *("torch", "triton", "jax", "cupy-cuda13x", "numba-cuda", "cuda-bindings"),
    *("grpcio", "protobuf"),
)
SMI = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
# Settings that others may have changed, and that matter to two processes at once.
SETTINGS = "compute_mode,mig.mode.current,persistence_mode,clocks.max.sm,power.limit"
SMI_SETTINGS = ("nvidia-smi", f"--query-gpu={SETTINGS}", "--format=csv")
COMMIT = ("git", "rev-parse", "--short=12", "HEAD")

NO_FIGURES = {"commit", "gpu", "failed", "failed_again", "unreadable"}  # a part's other keys

NOT_BEGUN = "not_begun"  # a key beside the parts, for parts that too little time was left for

Figures = Mapping[str, Any]


def main() -> None:
    """Execute the verb given as the first argument."""
    verb, *words = sys.argv[1:]
    match verb:
        case "label":
            print(label(where=words[0] if words else GPU))
        case "machine":
            Path(words[0]).write_text(json.dumps(machine()))
        case "merge":
            merge(Path(words[0]), Path(words[1]))
        case "join":
            join([Path(w) for w in words[:-1]], Path(words[-1]))
        case _:
            sys.exit(f"error: unknown verb {verb!r}\n{__doc__}")


def label(*, where: str) -> str:
    """Date and device, as a file name; exits if a GPU is wanted and missing."""
    if where != GPU:
        device = f"dry-run-{where}"
    else:
        found = probe(os.environ)
        if found is None:
            sys.exit(NO_GPU)
        device = re.sub(r"[^a-z0-9]+", "-", str(found["name"]).lower()).strip("-")
    return f"{datetime.now(UTC):%Y-%m-%d}-{device}"


def machine() -> dict[str, Any]:
    """Describe the machine that the figures depend on; None for what it lacks."""
    memory = psutil.virtual_memory()
    return {
        "gpu": _said_by(SMI) or _said_by_nvml(),
        "settings": _said_by(SMI_SETTINGS),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "memory_mib": memory.total >> 20,
        "memory_available_mib": memory.available >> 20,
        **{name: _version(name) for name in PACKAGES},
    }


def merge(parts: Path, output: Path) -> None:
    """Merge a run's parts into one object with a key per part; a failed part's figures say so.

    Parts that were not begun, and have no earlier results, are together under one key.
    """
    merged = _read(output)
    # Stored with each part, since the file may hold parts of several runs and machines.
    about_run = {
        "commit": _said_by(COMMIT) or os.environ.get("COMMIT"),
        "gpu": _read(parts / "machine.json").get("gpu"),
    }
    waiting = {path.stem: path.read_text().strip() for path in parts.glob(f"*.{NOT_BEGUN}")}
    for name in sorted({path.stem for path in parts.iterdir()} - waiting.keys()):
        failure, figures = (_read(parts / f"{name}.{kind}") for kind in ("failed", "json"))
        merged[name] = better(merged.get(name, {}), {**about_run, **figures, **failure})
    _write(_with_not_begun(merged, waiting), output)


def join(sources: list[Path], target: Path) -> None:
    """Join several files; of a part that several of them have, keep the better run."""
    merged: dict[str, Any] = {}
    waiting: dict[str, str] = {}
    for path in sources:
        content = json.loads(path.read_text())
        waiting |= content.pop(NOT_BEGUN, {})
        for name, figures in content.items():
            merged[name] = better(merged.get(name, {}), figures)
    _write(_with_not_begun(merged, waiting), target)


def _with_not_begun(merged: dict[str, Any], waiting: Mapping[str, str]) -> dict[str, Any]:
    """Append why parts without any results were not begun."""
    all_waiting = {**merged.pop(NOT_BEGUN, {}), **waiting}
    left = {name: why for name, why in all_waiting.items() if name not in merged}
    return {**merged, NOT_BEGUN: left} if left else merged


def better(earlier: Figures, later: Figures) -> Figures:
    """Choose the later of a part's two runs, unless it is worse: failed, or left no figures.

    In that case the earlier run gets the later one's figures as `failed_again`, so nothing is lost
    and nobody is misled.
    """
    if _worth(later) >= _worth(earlier):
        return later
    return {**earlier, "failed_again": later}


def _worth(figures: Figures) -> int:
    """Rate a run: 2 if it did not fail, 1 if it failed but left figures, 0 if it left none."""
    if not figures.keys() - NO_FIGURES:
        return 0
    return 1 if "failed" in figures else 2


def _write(merged: Figures, output: Path) -> None:
    output.write_text(json.dumps(merged, indent=1) + "\n")
    for name, figures in merged.items():
        print(f"{name}")
        _show(figures, depth=1)
    if lines := headline(merged):
        table_file = output.with_suffix(".md")
        table_file.write_text(about(merged) + "\n".join(lines) + "\n")
        print("\n".join(["", *lines, "", f"table: {table_file}"]))
    print(f"results: {output}")


def about(merged: Figures) -> str:
    """The text above the table: where and with what it was measured."""
    machine_ = merged.get("machine", {})
    device = merged["colocation"]["device"]
    versions = ", ".join(f"{name} {machine_[name]}" for name in PACKAGES if machine_.get(name))
    return (
        f"# Ways to share {merged['colocation'].get('gpu') or device['name']}\n\n"
        f"An inference server and two trainers (`make gpu PART=colocation,workloads,swap`), commit "
        f"{merged['colocation'].get('commit')}; {versions}. Made of the file beside this one.\n\n"
    )


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:  # the part was killed while it wrote
        return {"unreadable": f"{path.name}: {error}"}
    return content


def _show(figures: Figures, *, depth: int) -> None:
    for name, value in figures.items():
        if is_table(value):
            print("  " * depth + name)
            print("\n".join("  " * (depth + 1) + line for line in table(value)))
        elif isinstance(value, dict):
            print("  " * depth + name)
            _show(value, depth=depth + 1)
        elif not isinstance(value, list):
            print("  " * depth + f"{name:<32} {value}")


def _said_by(command: tuple[str, ...]) -> str | None:
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return child.stdout.strip()


def _said_by_nvml() -> str | None:
    """The same text without nvidia-smi."""
    try:
        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        name, driver = pynvml.nvmlDeviceGetName(device), pynvml.nvmlSystemGetDriverVersion()
        size_mib = pynvml.nvmlDeviceGetMemoryInfo(device).total >> 20
    except pynvml.NVMLError:
        return None
    return f"{name}, {driver}, {size_mib} MiB"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
