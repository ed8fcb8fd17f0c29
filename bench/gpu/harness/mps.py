"""NVIDIA's Multi-Process Service, for measurements without Tandem or with Tandem under MPS."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.gpu.harness.part import Bench
from tandem._mps import PIPES, PROGRAM, Control
from tandem.demo.place import Place

LOGS = "CUDA_MPS_LOG_DIRECTORY"
PRIORITY = "CUDA_MPS_CLIENT_PRIORITY"  # 0: normal, 1: below normal ("MPS", Environment Variables)
START_S = 10.0


def without_mps(bench: Bench) -> Bench:
    """The same bench without MPS: clients do not find a control daemon even if one runs."""
    place = replace(bench.place, mode="time")
    if place.kind == "nvidia":
        nowhere = str(bench.folder / "no-mps")
        place = replace(place, base_env={**place.base_env, PIPES: nowhere})
    return replace(bench, place=place)


@contextmanager
def mps(bench: Bench) -> Iterator[tuple[Place | None, str]]:
    """Provide the device under MPS while the block runs; or None, and why that is not possible.

    On a GPU, starts a control daemon of our own in a folder of our own, and ends it afterwards. One
    that runs already is used and left alone, as is the software GPU's mode.
    """
    place = bench.place
    if place.kind != "nvidia" or place.mode == "mps":
        yield replace(place, mode="mps"), ""
        return
    folder = Path(tempfile.mkdtemp(prefix="mps-", dir=bench.folder))  # an earlier one may hang
    with control_daemon(folder, os.environ) as (found, why):
        ours = {} if found is None else found.variables
        base_env = {**place.base_env, **ours}
        yield None if found is None else replace(place, mode="mps", base_env=base_env), why


@dataclass(frozen=True, kw_only=True)
class Mps:
    """A control daemon with its pipes in a folder of its own."""

    folder: Path
    outside: Mapping[str, str]  # the environment it was started from

    @property
    def variables(self) -> dict[str, str]:
        """The variables by which clients find it."""
        return {PIPES: str(self.folder), LOGS: str(self.folder)}

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its clients."""
        return {**self.outside, **self.variables}

    def control(self) -> Control:
        """Connect to it; the result is for use by one thread."""
        return Control(self.folder, environment=self.environment, timeout_s=START_S)


@contextmanager
def control_daemon(
    folder: Path, environment: Mapping[str, str]
) -> Iterator[tuple[Mps | None, str]]:
    """Run a control daemon while the block runs; or None, and why that is not possible."""
    program = shutil.which(PROGRAM, path=environment.get("PATH"))
    if program is None:
        yield None, f"'{PROGRAM}' is not installed here"
        return
    found = Mps(folder=folder, outside=environment)
    # Its output goes to a file, since the daemon outlives this call and would keep a pipe open.
    with (folder / "said").open("wb") as said:
        child = subprocess.Popen([program, "-d"], env=found.environment, stdout=said, stderr=said)
        try:
            code = child.wait(timeout=START_S)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait()
    try:
        if code != 0 or not _answers(found.control()):
            words = (folder / "said").read_text(errors="replace").strip()[-300:]
            yield None, f"'{PROGRAM} -d' ended with {code} and does not answer: {words}"
            return
        yield found, ""
    finally:
        found.control().quit()


def _answers(control: Control) -> bool:
    end = time.monotonic() + START_S
    while control.servers() is None:
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True
