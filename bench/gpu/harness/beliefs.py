"""What Tandem believes about NVIDIA's driver, and which figure of `make gpu` settles it.

A part that settles beliefs has a tuple BELIEFS. `packaging/generate_driver_facts.py` generates
docs/driver-facts.md from these and the committed results; a belief that no GPU has answered says so
there.
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
    """Something known from reading only, not from observation.

    `answers` are dotted paths into the part's figures. All of them exist in a dry run, too, which
    tests/gpu/test_beliefs.py checks.
    """

    question: str
    believed: str
    used_by: tuple[str, ...]  # files that would have to change
    answers: tuple[str, ...]


def beliefs_of(part: str) -> tuple[Belief, ...]:
    """The beliefs of one part."""
    found: tuple[Belief, ...] = import_module(f"bench.gpu.parts.{part}").BELIEFS
    return found


def answer(figures: Mapping[str, object], path: str) -> object:
    """The figure at a dotted path; None if there is none."""
    found: object = figures
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found


def why_not(figures: Mapping[str, object], path: str) -> str:
    """Why there is no figure at the path: the nearest enclosing reason, finally the part's own."""
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
