"""How a GPU is to be cut by MIG, as an admin writes it: `0=3g.71gb,2g.35gb`, or `0=off`."""

from __future__ import annotations

from dataclasses import dataclass

MOST_INSTANCES = 7  # of a GPU
OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What one GPU is to be cut into."""

    gpu: str  # index or UUID
    profiles: tuple[str, ...]  # in the order they are made in; none: MIG is to be off

    @property
    def text(self) -> str:
        """As it is written."""
        return f"{self.gpu}={','.join(self.profiles) or OFF}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What is done for a layout, or would be."""

    destroyed: tuple[str, ...]  # instances, such as `0:1 (1g.18gb)`
    created: tuple[str, ...]  # profiles, or instances once they are there
    turned: str = ""  # on, off; empty: MIG stays as it is


def parse_layout(text: str) -> Layout:
    """Read one.

    Raises:
        ValueError: it is none; the text says why.
    """
    gpu, equals, words = text.partition("=")
    if not (gpu and equals and words):
        raise ValueError(f"'{text}' is no layout; write one such as 0=3g.71gb,2g.35gb, or 0={OFF}")
    if words == OFF:
        return Layout(gpu=gpu, profiles=())
    profiles = tuple(word.strip() for word in words.split(","))
    if not all(profiles):
        raise ValueError(f"'{text}' names an empty profile; leave out the comma")
    if len(profiles) > MOST_INSTANCES:
        raise ValueError(
            f"'{text}' has {len(profiles)} instances; a gpu has {MOST_INSTANCES} at most"
        )
    return Layout(gpu=gpu, profiles=profiles)
