"""The meaning of a GPU's mode, and the table of all modes in this version.

Whether a GPU is in a mode, and what must run for it, is found out at the edges (`edges/modes.py`,
`edges/mps.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tandemd.core.model import JobSpec, Options
from tandemd.core.substrates.mig import Mig
from tandemd.core.substrates.mps import Mps
from tandemd.core.substrates.mps_green import MpsGreen
from tandemd.core.substrates.time_slices import TimeSlices


class Substrate(Protocol):
    """How a GPU is divided between jobs."""

    @property
    def description(self) -> str:
        """What runs beside what, for people."""

    @property
    def warning(self) -> str:
        """What to tell a job that arrives on the GPU; empty: nothing."""

    @property
    def divides_space(self) -> bool:
        """Tell whether `--sm` means a part of the SMs; otherwise it is a share of time."""

    @property
    def is_live(self) -> bool:
        """Tell whether the value of `--sm` can change while the job runs."""

    def variables(self, spec: JobSpec, sm_count: int) -> dict[str, str]:
        """Environment variables that a job needs at its start. `sm_count`: 0 = not known."""


SUBSTRATES: dict[str, Substrate] = {
    "time": TimeSlices(),
    "mps": Mps(),
    "mps+green": MpsGreen(),
    "mig": Mig(),
}


def divides_space(gpus: Iterable[int], options: Options) -> bool:
    """Tell whether `--sm` is a part of the SMs on all of these GPUs; else a share of time."""
    return SUBSTRATES[options.mode_of(gpus)].divides_space
