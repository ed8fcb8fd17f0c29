"""What of a configuration a daemon that runs cannot go over to."""

from __future__ import annotations

from operator import attrgetter

from tandemd.config.config import Config

AT_START = (
    "daemon.max_processes_per_uid",
    "daemon.state",
    "metrics.hpc_job_mapping_dir",
    "metrics.listen",
)


def keys_for_restart(begun: Config, said: Config) -> list[str]:
    """Those that `said` has otherwise than the one with which the daemon was started."""
    return [key for key in AT_START if attrgetter(key)(begun) != attrgetter(key)(said)]
