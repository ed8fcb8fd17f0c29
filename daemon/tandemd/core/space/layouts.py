"""Layouts that an admin writes to cut a GPU by MIG: `0=3g.71gb,2g.35gb`, or `0=off`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_INSTANCES = 7  # of a GPU
OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What one GPU is to be cut into."""

    gpu: str  # index or UUID
    profiles: tuple[str, ...]  # in the order of creation; empty: MIG is to be off

    @property
    def text(self) -> str:
        """The layout as an admin writes it."""
        return f"{self.gpu}={','.join(self.profiles) or OFF}"


@dataclass(frozen=True, slots=True)
class Place:
    """Neighbouring memory slices that an instance can occupy."""

    start: int
    size: int

    def overlaps(self, other: Place) -> bool:
        """Tell whether the places share a slice, so that two instances cannot have one each."""
        return self.start < other.start + other.size and other.start < self.start + self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An instance of a GPU."""

    profile: str
    name: str = ""  # such as `0:1`; empty: it does not exist yet

    def __str__(self) -> str:
        return f"{self.name} ({self.profile})" if self.name else self.profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What was done for a layout, or would be."""

    destroyed: tuple[Part, ...]
    created: tuple[Part, ...]
    is_done: bool = False
    turned: str = ""  # on, off; empty: MIG stays as it is


def arranged(choices: Sequence[Sequence[Place]]) -> tuple[Place, ...] | None:
    """Return one choice for each such that none overlap; None: they do not fit together."""
    return _beside((), choices)


def _beside(
    taken: tuple[Place, ...], choices: Sequence[Sequence[Place]]
) -> tuple[Place, ...] | None:
    if not choices:
        return taken
    for place in choices[0]:
        if not any(place.overlaps(other) for other in taken):
            found = _beside((*taken, place), choices[1:])
            if found is not None:
                return found
    return None


def fitting(choices: Sequence[Sequence[Place]]) -> list[int]:
    """Return which of them fit together, preferring earlier ones."""
    kept: list[int] = []
    for number in range(len(choices)):
        if arranged([choices[one] for one in (*kept, number)]) is not None:
            kept.append(number)
    return kept


def parse_layout(text: str) -> Layout:
    """Parse a layout.

    Raises:
        ValueError: it is no layout; the text says why.
    """
    gpu, equals, words = text.partition("=")
    if not (gpu and equals and words):
        raise ValueError(
            f"'{text}' is not a layout; write one such as 0=3g.71gb,2g.35gb, or 0={OFF}"
        )
    if words.strip().lower() == OFF:
        return Layout(gpu=gpu, profiles=())
    profiles = tuple(word.strip() for word in words.split(","))
    if not all(profiles):
        raise ValueError(f"'{text}' names an empty profile; leave out the comma")
    if len(profiles) > MOST_INSTANCES:
        raise ValueError(
            f"'{text}' has {len(profiles)} instances; a gpu has at most {MOST_INSTANCES}"
        )
    return Layout(gpu=gpu, profiles=profiles)
