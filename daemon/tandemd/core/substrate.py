"""What a mode of a GPU means, and the table of all modes there are in this version.

Whether a GPU is in one, and what has to run for that, is found out at the edges (`edges/modes.py`,
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
    """How the GPU is divided between jobs."""

    @property
    def description(self) -> str:
        """What runs beside what, for people."""

    @property
    def warning(self) -> str:
        """What a job has to be told when it comes to the GPU; empty: nothing."""

    @property
    def divides_space(self) -> bool:
        """`--sm` is a part of the SMs; else a share of time."""

    @property
    def is_live(self) -> bool:
        """What `--sm` said can be changed while the job runs."""

    def variables(self, spec: JobSpec, sm_count: int) -> dict[str, str]:
        """What the environment of a job has to say when it starts. `sm_count`: 0 = not known."""


SUBSTRATES: dict[str, Substrate] = {
    "time": TimeSlices(),
    "mps": Mps(),
    "mps+green": MpsGreen(),
    "mig": Mig(),
}


def divides_space(gpus: Iterable[int], options: Options) -> bool:
    """On all of these `--sm` is a part of the SMs; else a share of time."""
    return SUBSTRATES[options.mode_of(gpus)].divides_space
