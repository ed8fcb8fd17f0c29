"""The control daemon of MPS, as people speak to it: commands on the stdin of its program.

Both the daemon and `tandem doctor` ask it. See NVIDIA's "Multi-Process Service".
"""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

PROGRAM = "nvidia-cuda-mps-control"
PIPES = "CUDA_MPS_PIPE_DIRECTORY"
USUAL_PIPES = Path("/tmp/nvidia-mps")  # where they are unless the variable says otherwise


def pipes_of(environment: Mapping[str, str]) -> Path:
    """Where a program of this environment looks for it."""
    return Path(environment.get(PIPES) or USUAL_PIPES)


def can_start(environment: Mapping[str, str]) -> bool:
    """Whether its program is on the PATH; it comes with NVIDIA's driver."""
    return shutil.which(PROGRAM, path=environment.get("PATH")) is not None


def ask(
    place: Path, command: str, *, environment: Mapping[str, str], timeout_s: float
) -> str | None:
    """What the one with its pipe in `place` says to a command; None: nobody answers in time."""
    if not (place / "control").exists():
        return None
    try:
        done = subprocess.run(
            [PROGRAM],
            env={**environment, PIPES: str(place)},
            input=f"{command}\n",
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def owner_of(place: Path) -> int | None:
    """The uid whose control daemon has its pipe there; None: there is none."""
    try:
        return (place / "control").stat().st_uid
    except OSError:
        return None


def serves(owner: int | None, uid: int) -> bool:
    """Whether a control daemon of `owner` takes clients of `uid`: that of root takes all."""
    return owner in (None, 0, uid)
