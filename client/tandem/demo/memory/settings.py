"""Who takes part, the order each worker gets, and the shape of the work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

SEED = 7
GRID_NS = 100_000_000  # on the virtual clock, jobs begin at a multiple of this
STAGGER_NS = 500_000_000  # between the starts of two jobs, so that the first has its memory by then
TURNS = 4  # at least, of a trainer in a run of the default length
STALLS = 50  # length of a turn relative to the time that passing it on takes
LONGEST_TURN_S = 20.0  # the daemon's `max_hold_s`
CELLS = 4  # in a notebook
CELL_PART = 0.1  # length of a cell relative to a trainer's run
GAP_CELLS = 3  # a notebook's thinking time, as a multiple of a cell's time alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A set of jobs of the same kind that run together."""

    name: str
    roles: tuple[str, ...]
    share: float  # of the device's memory, for each job


TRAINERS = Kind(name="trainers", roles=("first", "second"), share=0.7)
NOTEBOOKS = Kind(name="notebooks", roles=("red", "green", "blue"), share=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order to one worker, passed as JSON on its command line."""

    image: str  # path of the compiled kernels
    share: float  # fraction of the device's memory to fill
    iterations: int = 0  # per cell; 0 = measure the device instead
    cells: int = 1
    gap_ns: int = 0  # between two cells
    delay_ns: int = 0  # delay of the start relative to the others
    start_grid_ns: int = 0  # as in Settings of tandem.demo.settings

    def to_json(self) -> str:
        """The order as one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Order:
        """The inverse of `to_json`."""
        return Order(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The work of a job: `cells` cells of `iterations` iterations, with gaps in between."""

    iterations: int
    cells: int = 1
    gap_ns: int = 0


def paces(*, seconds: float, iteration_ns: Sequence[int]) -> tuple[Pace, Pace]:
    """The paces of trainers and of notebooks, whose iterations take `iteration_ns`."""
    trainer_ns, notebook_ns = iteration_ns
    cell = max(1, round(CELL_PART * seconds * 1e9 / notebook_ns))
    return (
        Pace(iterations=max(1, round(seconds * 1e9 / trainer_ns))),
        Pace(iterations=cell, cells=CELLS, gap_ns=GAP_CELLS * cell * notebook_ns),
    )


def default_seconds(*, memory_bytes: int, link_bytes_s: float) -> float:
    """Long enough for TURNS turns of a trainer, each STALLS times as long as passing it on."""
    excess_bytes = (len(TRAINERS.roles) * TRAINERS.share - 1) * memory_bytes
    turn_s = min(STALLS * excess_bytes / link_bytes_s, LONGEST_TURN_S)
    return TURNS * turn_s
