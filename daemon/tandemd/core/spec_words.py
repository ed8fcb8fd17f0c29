"""A job's request, and changes to it, in words."""

from __future__ import annotations

from collections.abc import Callable

from tandemd.core.model import NEVER_IDLE_NS, NO_LIMIT, JobSpec
from tandemd.core.space import asked
from tandemd.core.words import size_of, span_of


def describe(spec: JobSpec) -> str:
    """The job's class and group."""
    parts = [f"class {spec.job_class.name.lower()}"]
    if spec.group:
        parts.append(f"group '{spec.group}'")
    return ", ".join(parts)


def changes_of(old: JobSpec, new: JobSpec) -> str:
    """`memory 20 GiB -> 10 GiB, priority normal -> batch`, in the words of `tandem set`."""
    changed = (
        f"{word} {told(old)} -> {told(new)}"
        for word, (fields, told) in _WORDS.items()
        if any(getattr(old, field) != getattr(new, field) for field in fields)
    )
    return ", ".join(changed) or "nothing changed"


def _memory(spec: JobSpec) -> str:
    if spec.memory_bytes == NO_LIMIT and spec.memory_percent:
        return f"{spec.memory_percent}%"
    return "none" if spec.memory_bytes == NO_LIMIT else size_of(spec.memory_bytes)


def _size(size_bytes: int) -> str:
    return size_of(size_bytes) if size_bytes else "none"


def _span(duration_ns: int) -> str:
    return span_of(duration_ns) if duration_ns else "none"


def _idle_release(spec: JobSpec) -> str:
    if spec.idle_release_ns >= NEVER_IDLE_NS:
        return "never"
    return span_of(spec.idle_release_ns) if spec.idle_release_ns else "as configured"


def _preemptible(spec: JobSpec) -> str:
    return {None: "not said", True: "yes", False: "no"}[spec.preemptible]


# word of `tandem set` -> the fields that it sets, and how to tell them
_WORDS: dict[str, tuple[tuple[str, ...], Callable[[JobSpec], str]]] = {
    "priority": (("job_class",), lambda spec: spec.job_class.name.lower()),
    "memory": (("memory_bytes", "memory_percent"), _memory),
    "memory_min": (("memory_min_bytes",), lambda spec: _size(spec.memory_min_bytes)),
    "wait_memory": (("wait_memory_ns",), lambda spec: _span(spec.wait_memory_ns)),
    "idle_release": (("idle_release_ns",), _idle_release),
    "persistent": (("persistent_bytes",), lambda spec: _size(spec.persistent_bytes)),
    "ephemeral": (("ephemeral_bytes",), lambda spec: _size(spec.ephemeral_bytes)),
    "sm": (("sm_percent", "sm_count"), lambda spec: asked.said(spec) or "none"),
    "slo": (("slo_p99_ns",), lambda spec: _span(spec.slo_p99_ns)),
    "preemptible": (("preemptible",), _preemptible),
}
