"""Names, merges and shows the results of the parts; one verb a call.

`label [WHERE]` prints <date>-<gpu>. `machine FILE` writes what ran here: GPU, driver, versions.
`merge PARTS FILE` puts the parts' files into one, which keeps what it has of other parts.
`join FILE... TARGET` makes one of several such files.
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
# What others may have set, and two processes at once would mind.
SETTINGS = "compute_mode,mig.mode.current,persistence_mode,clocks.max.sm,power.limit"
SMI_SETTINGS = ("nvidia-smi", f"--query-gpu={SETTINGS}", "--format=csv")
COMMIT = ("git", "rev-parse", "--short=12", "HEAD")

NO_FIGURES = {"commit", "gpu", "failed", "failed_again", "unreadable"}  # of a part

NOT_BEGUN = "not_begun"  # a key beside the parts: for which too little time was left

Figures = Mapping[str, Any]


def main() -> None:
    """Do what the first argument says."""
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
    """Date and device, as a file name; ends the program where a GPU is wanted and missing."""
    if where != GPU:
        device = f"dry-run-{where}"
    else:
        found = probe(os.environ)
        if found is None:
            sys.exit(NO_GPU)
        device = re.sub(r"[^a-z0-9]+", "-", str(found["name"]).lower()).strip("-")
    return f"{datetime.now(UTC):%Y-%m-%d}-{device}"


def machine() -> dict[str, Any]:
    """What the figures depend on; None for what is not there."""
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
    """One object with a key per part; a failed part says so beside what it had written.

    Parts that were not begun, and never ran, stand together under one key.
    """
    merged = _read(output)
    # With each part: the file may hold parts of several runs, and of several machines.
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
    """Of a part that several files have, the better run."""
    merged: dict[str, Any] = {}
    waiting: dict[str, str] = {}
    for path in sources:
        content = json.loads(path.read_text())
        waiting |= content.pop(NOT_BEGUN, {})
        for name, figures in content.items():
            merged[name] = better(merged.get(name, {}), figures)
    _write(_with_not_begun(merged, waiting), target)


def _with_not_begun(merged: dict[str, Any], waiting: Mapping[str, str]) -> dict[str, Any]:
    """With why there is nothing of those parts of which there is nothing, last."""
    all_waiting = {**merged.pop(NOT_BEGUN, {}), **waiting}
    left = {name: why for name, why in all_waiting.items() if name not in merged}
    return {**merged, NOT_BEGUN: left} if left else merged


def better(earlier: Figures, later: Figures) -> Figures:
    """Of two runs of a part the later, unless it failed and the earlier did not, or says nothing.

    What it says then stands in the earlier as `failed_again`: nothing is lost, nobody is misled.
    """
    if _worth(later) >= _worth(earlier):
        return later
    return {**earlier, "failed_again": later}


def _worth(figures: Figures) -> int:
    """2: it did not fail; 1: it did, and left figures; 0: it left none."""
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
    """What stands above the table: where and with what it was measured."""
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
    except ValueError as error:  # of a part that was killed while it wrote
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
    """The same words, where there is no nvidia-smi."""
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
