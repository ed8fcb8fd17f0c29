"""What Tandem believes of NVIDIA's driver, and which figure of `make gpu` settles it.

A part that settles something has a tuple BELIEFS. `packaging/generate_driver_facts.py` makes
docs/driver-facts.md of them and of the results that are committed; a belief that no GPU has
answered says so there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

# Parts with beliefs, in the order of the page.
SETTLING: tuple[str, ...] = (
    "markers",
    "windows",
    "mps",
    "vmm",
    "sm_sets",
    "lifecycle",
    "programs",
    "workloads",
    "frameworks",
)


@dataclass(frozen=True, kw_only=True)
class Belief:
    """One thing that was read and not seen.

    `answers` are dotted paths into the part's figures; every one of them is there in a dry run too,
    which tests/gpu/test_beliefs.py looks at.
    """

    question: str
    believed: str
    used_by: tuple[str, ...]  # files that would have to change
    answers: tuple[str, ...]


def beliefs_of(part: str) -> tuple[Belief, ...]:
    """Those of one part."""
    found: tuple[Belief, ...] = import_module(f"bench.gpu.parts.{part}").BELIEFS
    return found


def answer(figures: Mapping[str, object], path: str) -> object:
    """What the figures say at a dotted path; None: nothing."""
    found: object = figures
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found


def why_not(figures: Mapping[str, object], path: str) -> str:
    """Why they say nothing there: the nearest reason above it, or above all that of the part."""
    reason = ""
    found: object = figures
    for name in (*path.split("."), ""):
        if not isinstance(found, Mapping):
            break
        own = next((found[key] for key in ("error", "why_not") if found.get(key)), "")
        reason = str(own).splitlines()[0] if own else reason
        found = found.get(name)
    if not reason and "failed" in figures:
        reason = f"the part ended with code {figures['failed']}"
    return reason
