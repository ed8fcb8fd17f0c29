"""When a group that has long been idle gives its memory up."""

from __future__ import annotations

from tandemd.core.model import Group, Options


def released_at_ns(group: Group, options: Options) -> int | None:
    """Return when it gives its memory up if nothing of it happens until then."""
    if group.busy or group.wants:
        return None
    said = [options.idle_release_of(job.spec) for job in group.jobs.values()]
    return group.last_wanted_ns + max(said) if all(said) else None


def is_released(group: Group, options: Options, now_ns: int) -> bool:
    """Tell whether it was idle so long that it gives its memory up."""
    at_ns = released_at_ns(group, options)
    return at_ns is not None and now_ns >= at_ns
