"""What another configuration changes, and what of it a daemon that runs cannot go over to."""

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
    """Those of which the two say something else."""
    one, other = (
        dict(keyed(config.model_dump(by_alias=True, exclude_none=True)))
        for config in (before, after)
    )
    return sorted(key for key in one | other if one.get(key) != other.get(key))


def keys_for_restart(begun: Config, said: Config) -> list[str]:
    """Those that `said` has otherwise than the one with which the daemon was started."""
    return [key for key in AT_START if attrgetter(key)(begun) != attrgetter(key)(said)]
