"""What was asked for a job, and what of it was changed, in words."""

from __future__ import annotations

from collections.abc import Callable

from tandemd.core.model import NO_LIMIT, JobSpec
from tandemd.core.words import size_of, span_of


def describe(spec: JobSpec) -> str:
    """Its class and group."""
    parts = [f"class {spec.job_class.name.lower()}"]
    if spec.group:
        parts.append(f"group '{spec.group}'")
    return ", ".join(parts)


def changes_of(old: JobSpec, new: JobSpec) -> str:
    """`memory 20 GiB -> 10 GiB, priority normal -> batch`, by the words of `tandem set`."""
    changed = (
        f"{word} {told(getattr(old, field))} -> {told(getattr(new, field))}"
        for field, (word, told) in _FIELDS.items()
        if getattr(old, field) != getattr(new, field)
    )
    return ", ".join(changed) or "nothing changed"


def _size(size_bytes: int) -> str:
    return "none" if size_bytes in (0, NO_LIMIT) else size_of(size_bytes)


def _span(duration_ns: int) -> str:
    return span_of(duration_ns) if duration_ns else "none"


def _percent(percent: int) -> str:
    return f"{percent}%" if percent else "none"


def _yes_or_no(said: object) -> str:
    return "not said" if said is None else "yes" if said else "no"


# field of JobSpec -> word of `tandem set`, and how its value is told
_FIELDS: dict[str, tuple[str, Callable[..., str]]] = {
    "job_class": ("priority", lambda job_class: job_class.name.lower()),
    "memory_bytes": ("memory", _size),
    "memory_min_bytes": ("memory_min", _size),
    "wait_memory_ns": ("wait_memory", _span),
    "idle_release_ns": ("idle_release", _span),
    "persistent_bytes": ("persistent", _size),
    "ephemeral_bytes": ("ephemeral", _size),
    "sm_percent": ("sm", _percent),
    "slo_p99_ns": ("slo", _span),
    "preemptible": ("preemptible", _yes_or_no),
}
