"""What `tandem doctor` says of sets of SMs: what a daemon has proved, or else its own proof.

The doctor proves them only where that disturbs nobody: as a client of an MPS that already runs and
has no other user's work, or on a software GPU that needs no MPS. It never starts an MPS.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tandem import _fitness, _mps, _set_probe
from tandem.errors import TandemError

if TYPE_CHECKING:
    from tandem._results import SetProof

ANSWER_S = 2.0
LOGS = (
    "look at the logs of tandemd and of mps: logs/said beside the pipe of tandemd's own mps, else "
    "control.log and server.log in CUDA_MPS_LOG_DIRECTORY or /var/log/nvidia-mps"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict for one GPU."""

    text: str
    is_open: bool = False  # a probe was made, but gave no answer
    remedy: str = ""


def known_to_daemon(directory: Path) -> dict[str, SetProof]:
    """The daemon's own proofs, by UUID; empty if there is no daemon to ask."""
    try:
        from tandem._client import Client

        with Client(directory=str(directory)) as client:
            return {gpu.uuid: gpu.sets for gpu in client.gpus() if gpu.sets is not None}
    except (ImportError, TandemError):
        return {}


def verdict(
    gpu: _fitness.GpuFacts,
    own_pipes: Path,
    known: Mapping[str, SetProof],
    tell: Callable[[str], None],
) -> Verdict:
    """The verdict, after a probe if need be; blocks for at most `_set_probe.TIMEOUT_S`.

    `tell` is called before a probe. No process of ours is left behind, even after an interrupt.
    """
    if (proof := known.get(gpu.uuid)) is not None:
        return _of_daemon(proof)
    environment = _environment(gpu, own_pipes)
    if isinstance(environment, str):
        return Verdict(text=f"can work; not tried: {environment}")
    tell(f"gpu {gpu.index}: trying sets of SMs, for at most {_set_probe.TIMEOUT_S:.0f} s")
    found = _set_probe.probe(environment)
    if not found.problem:
        return Verdict(text=_works(found.groups, found.group_sms, "tried now"))
    if found.is_answer:
        return Verdict(text=f"no: {found.problem}")
    lacks_server = _set_probe.NO_SERVER_HINT in found.problem
    remedy = LOGS if lacks_server else "try again when the gpu is less busy"
    return Verdict(text=f"not known: {found.problem}", is_open=True, remedy=remedy)


def _of_daemon(proof: SetProof) -> Verdict:
    if proof.under_way:
        return Verdict(text="can work; the daemon is proving it now")
    if proof.problem:
        return Verdict(text=f"no, says the daemon: {proof.problem}")
    return Verdict(text=_works(proof.groups, proof.group_sms, "proved by the daemon"))


def _works(groups: int, group_sms: int, how: str) -> str:
    return f"works: {groups} groups of {group_sms} SMs, and disjoint sets share none ({how})"


def _environment(gpu: _fitness.GpuFacts, own_pipes: Path) -> dict[str, str] | str:
    """The environment for processes on that GPU under MPS, or the reason why there is none."""
    clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    clean |= {
        "CUDA_VISIBLE_DEVICES": gpu.uuid,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    for place in dict.fromkeys((_mps.pipes_of(clean), own_pipes)):
        if (found := _set_probe.as_client(place, clean, timeout_s=ANSWER_S)) is not None:
            return found
    if gpu.is_software and clean.get("TANDEM_SOFTGPU_MODE") == "mps":
        return clean
    return "mps does not run"
