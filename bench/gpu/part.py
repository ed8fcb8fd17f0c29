"""What the parts share: their arguments, the folder they work in, and the daemon they use."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.demo.place import Place, find_place
from tandem.demo.scenario import Program, Work, calibrate, demo_program

SERVER_LOAD = 0.28


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The device, and which programs play the roles: torch on a GPU, the demo's in a dry run."""

    place: Place
    folder: Path
    dry: bool
    work: Work | None  # of the demo's programs

    def program(self, *, seconds: float, gap_ns: int = 0, iterations: int = 0) -> Program:
        """The command of each role."""
        if self.work is not None:
            return demo_program(self.place, self.work, seconds=seconds)
        orders = {"seconds": seconds, "gap_ns": gap_ns, "iterations": iterations}

        def command(role: str) -> list[str]:
            text = json.dumps({"role": role, **orders})
            return [sys.executable, "-m", "bench.gpu.torch_worker", text]

        return command


def main(measure: Callable[[Bench], dict[str, Any]]) -> None:
    """Parse the arguments of a part, run it, write its figures. Exit code 1 when it says not ok."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    with bench(dry=arguments.dry) as it:
        figures = measure(it)
    arguments.out.write_text(json.dumps(figures))
    sys.exit(0 if figures.get("ok", True) else 1)


@contextmanager
def bench(*, dry: bool) -> Iterator[Bench]:
    """Find the device. Anything but an NVIDIA GPU is an error, unless this is a dry run."""
    folder = Path(tempfile.mkdtemp(prefix="tandem-gpu-"))
    try:
        place = find_place(clock="real", folder=folder)
        if not dry and place.kind != "nvidia":
            sys.exit("error: no NVIDIA GPU here; DRY=1 tries the plumbing on the software GPU")
        yield Bench(place=place, folder=folder, dry=dry, work=_work(place, folder, dry=dry))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _work(place: Place, folder: Path, *, dry: bool) -> Work | None:
    if not dry:
        return None
    measured = calibrate(place, folder / "calibrate")
    request_ns = int(measured["request_ns"])
    gap_ns = int(request_ns / SERVER_LOAD)
    return Work(blocks=int(measured["blocks"]), request_ns=request_ns, gap_ns=gap_ns)


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def deterministic() -> None:
    """Ask cuBLAS for repeatable results; before torch is imported."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
