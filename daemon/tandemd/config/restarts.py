"""What changes with a new configuration, and what of it needs a restart of the daemon."""

from __future__ import annotations

from operator import attrgetter

from tandemd.config.config import Config, keyed

AT_START = (
    "daemon.max_processes_per_uid",
    "daemon.state",
    "metrics.hpc_job_mapping_dir",
    "metrics.listen",
)


def keys_changed(before: Config, after: Config) -> list[str]:
    """Return the keys on which the two differ."""
    one, other = (
        dict(keyed(config.model_dump(by_alias=True, exclude_none=True)))
        for config in (before, after)
    )
    return sorted(key for key in one | other if one.get(key) != other.get(key))


def keys_for_restart(begun: Config, said: Config) -> list[str]:
    """Return the keys whose values differ from those with which the daemon was started."""
    return [key for key in AT_START if attrgetter(key)(begun) != attrgetter(key)(said)]
