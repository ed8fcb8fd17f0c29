"""The daemon's settings from TOML: one file, then drop-ins in the order of their names.

An unknown key is an error that names its path. Only settings that this version obeys are accepted.
"""

from __future__ import annotations

import grp
import os
import pwd
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field, ValidationError

from tandem.errors import UsageError
from tandem.units import format_bytes, parse_bytes
from tandemd.config.faults import faults_of
from tandemd.config.limits import Limits
from tandemd.config.schema import (
    ClassName,
    ClassTable,
    DaemonTable,
    GpuName,
    GpuTable,
    LimitsTable,
    MemoryTable,
    MetricsTable,
    Mode,
    PartitionTable,
    SchedulerTable,
    idle_release_ns,
    reserve_bytes,
)
from tandemd.config.tables import Table
from tandemd.config.watchdog import WatchdogTable
from tandemd.core.memory.reserves import Reserve
from tandemd.core.model import JobClass, Options
from tandemd.edges.gpus import Gpu
from tandemd.identities import Identities

DEFAULT_FILE = Path("/etc/tandem/config.toml")


class Config(Table):
    """The whole configuration."""

    version: Literal[1] = 1
    daemon: DaemonTable = DaemonTable()
    gpu: dict[GpuName, GpuTable] = Field(default={})
    scheduler: SchedulerTable = SchedulerTable()
    partition: PartitionTable = PartitionTable()
    classes: dict[ClassName, ClassTable] = Field(default={}, alias="class")
    memory: MemoryTable = MemoryTable()
    limits: LimitsTable = LimitsTable()
    metrics: MetricsTable = MetricsTable()
    watchdog: WatchdogTable = WatchdogTable()

    def mode_of(self, index: int, uuid_text: str) -> Mode:
        """Return the mode set for a GPU: by its UUID, else by its index, else for all."""
        section = self.section_of("mode", index, uuid_text)
        return self.gpu[section].mode if section else "auto"

    def reserve_of(self, index: int, uuid_text: str) -> Reserve:
        """Return the memory of the GPU to keep free of jobs, as configured; 0 bytes if none."""
        section = self.section_of("reserve_memory", index, uuid_text)
        size_bytes = reserve_bytes(self.gpu[section].reserve_memory) if section else 0
        return Reserve(size_bytes=size_bytes, key=f"gpu.{section}.reserve_memory")

    def section_of(self, key: str, index: int, uuid_text: str) -> str:
        """Return the name of the section that sets this key for a GPU; empty: none does."""
        names = (uuid_text, str(index), "*")
        said = (name for name in names if name in self.gpu)
        return next((name for name in said if key in self.gpu[name].model_fields_set), "")

    def options(
        self,
        mps_gpus: frozenset[int] = frozenset(),
        sm_counts: Mapping[int, int] = MappingProxyType({}),
    ) -> Options:
        """Return the core's options; facts about the GPUs come from elsewhere."""
        table = self.scheduler
        weights = dict(Options().weights)
        classes = {_job_class(name): entry for name, entry in self.classes.items()}
        weights |= {of: entry.weight for of, entry in classes.items() if entry.weight is not None}
        return Options(
            policy=table.policy,
            window_segments=table.window_segments,
            segment_ns=int(table.segment_us * 1e3),
            quantum_ns=int(table.quantum_ms * 1e6),
            linger_ns=int(table.linger_us * 1e3),
            linger_limit_ns=int(table.linger_max_us * 1e3),
            drain_ns=int(table.drain_ms * 1e6),
            max_hold_ns=int(table.max_hold_s * 1e9),
            critical_ns=int(table.critical_ms * 1e6),
            nonpreemptible_ns=int(table.nonpreemptible_ms * 1e6),
            min_share=table.min_share,
            throttle_loss=table.throttle_loss,
            presence_across_users=table.presence_across_users,
            find_iterations=table.find_iterations,
            forecast_gaps=table.forecast_gaps,
            classify_kernels=table.classify_kernels,
            size_sets=table.size_sets,
            probe_sets=table.probe_sets,
            lane_order=table.lane_order,
            mps_gpus=mps_gpus,
            sm_counts=sm_counts,
            planner=self.partition.planner == "on",
            tuner=self.partition.tuner == "on",
            tuner_window_ns=int(self.partition.window_s * 1e9),
            tuner_band=self.partition.dead_band,
            host_limit_bytes=parse_bytes(self.memory.host_limit),
            file_limit_bytes=self.memory.file_limit_bytes,
            idle_release_ns=idle_release_ns(self.memory.idle_release),
            weights=tuple(weights.items()),
            swappable_classes=frozenset(of for of, entry in classes.items() if entry.memory_swap),
            nonpreemptible_classes=frozenset(
                of for of, entry in classes.items() if not entry.preemptible
            ),
        )

    def overridden(self, scheduler: dict[str, Any]) -> Config:
        """Return a copy with other values in `[scheduler]`.

        Raises:
            UsageError: a value is out of range.
        """
        try:
            table = SchedulerTable.model_validate(self.scheduler.model_dump() | scheduler)
        except ValidationError as error:
            raise UsageError(faults_of(error, SchedulerTable, {}, Path("command line"))) from error
        return self.model_copy(update={"scheduler": table})

    def limits_for(self, own_uid: int, identities: Identities) -> Limits:
        """Return the users' ceilings; root and the daemon's own uid have none."""
        table = self.limits
        return Limits(
            identities=identities,
            default=table.default.limit("limits.default"),
            users={user: said.limit(f"limits.user.{user}") for user, said in table.user.items()},
            groups={name: said.limit(f"limits.group.{name}") for name, said in table.group.items()},
            trusted_uids=frozenset({0, own_uid}),
            admin_group=self.daemon.admin_group,
        )


def unknown_gpus(config: Config, gpus: Sequence[Gpu]) -> str:
    """Report sections for GPUs that do not exist, and list those that do; empty: none, or unknown.

    The UUID of a GPU in MIG mode is not known, only its index.
    """
    there = sorted({gpu.instance.gpu if gpu.instance else gpu.index for gpu in gpus})
    known = {"*", *map(str, there), *(gpu.uuid_text for gpu in gpus)}
    if any(gpu.instance for gpu in gpus):
        known |= {name for name in config.gpu if name.startswith("GPU-")}
    unknown = sorted(config.gpu.keys() - known)
    if not there or not unknown:
        return ""
    names = ", ".join(f"gpu.{name}" for name in unknown)
    return (
        f"{names}: this machine has no such gpu; it has {', '.join(map(str, there))}, whose "
        "UUIDs are shown by `tandem gpus --json`; correct the section or remove it"
    )


def reserves_on(config: Config, gpus: Sequence[Gpu]) -> dict[int, Reserve]:
    """Return the reserves by GPU, except those that would take the whole GPU."""
    said = {gpu.index: config.reserve_of(gpu.index, gpu.uuid_text) for gpu in gpus}
    return {
        gpu.index: said[gpu.index]
        for gpu in gpus
        if 0 < said[gpu.index].size_bytes < gpu.memory_total_bytes
    }


def too_much_kept_free(config: Config, gpus: Sequence[Gpu]) -> str:
    """Report GPUs that would have no memory left for jobs, a line each; empty: none, or unknown."""
    return "\n".join(
        f"{reserve.key}: {format_bytes(reserve.size_bytes)} is all that gpu {gpu.name} has "
        f"({format_bytes(gpu.memory_total_bytes)}), so nothing is left for jobs; write less, or "
        f"set reserve_memory for this gpu alone in [gpu.{_own_section(gpu)}]"
        for gpu in gpus
        if gpu.memory_total_bytes
        and (reserve := config.reserve_of(gpu.index, gpu.uuid_text)).size_bytes
        >= gpu.memory_total_bytes
    )


def _own_section(gpu: Gpu) -> str:
    return gpu.uuid_text if gpu.instance else str(gpu.index)


def unknown_names(config: Config) -> str:
    """Report named users and groups that the user database does not know now; empty: none."""
    sections = [f"limits.user.{name}" for name in config.limits.user if not _is_user(name)]
    sections += [f"limits.group.{name}" for name in config.limits.group if not _is_group(name)]
    admins = config.daemon.admin_group
    # The default group need not exist: then only root is an admin.
    if admins != DaemonTable.model_fields["admin_group"].default and not _is_group(admins):
        sections.append(f"daemon.admin_group = {admins!r}")
    if not sections:
        return ""
    return f"{', '.join(sections)}: this machine knows no such user or group"


def _is_user(name: str) -> bool:
    try:
        pwd.getpwuid(int(name)) if name.isascii() and name.isdigit() else pwd.getpwnam(name)
    except (KeyError, OverflowError, ValueError):  # ValueError: characters that no name has
        return False
    return True


def _is_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except (KeyError, ValueError):
        return False
    return True


def load(path: Path | None) -> Config:
    """Read a file and its drop-ins (`config.d/*.toml` beside it); None = the usual place, if any.

    Raises:
        UsageError: a file cannot be read or parsed, or has something unknown or out of range.
    """
    config, _ = load_with_origins(path)
    return config


def load_with_origins(path: Path | None) -> tuple[Config, dict[str, Path]]:
    """Do what `load` does, and also return which file sets each key.

    Raises:
        UsageError: as `load`.
    """
    merged: dict[str, Any] = {}
    origin: dict[str, Path] = {}
    for source in files_of(path):
        table = read_toml(source)
        _merge(merged, table)
        origin |= dict.fromkeys(dict(keyed(table)), source)
    try:
        return Config.model_validate(merged), origin
    except ValidationError as error:
        raise UsageError(faults_of(error, Config, origin, path or DEFAULT_FILE)) from error


def files_of(path: Path | None) -> list[Path]:
    """Return the files that `load` reads, in order; the default one only if it exists.

    Raises:
        UsageError: a directory cannot be read.
    """
    drop_ins = _drop_ins((path or DEFAULT_FILE).parent / "config.d")
    return [path or DEFAULT_FILE, *drop_ins] if path or _is_there(DEFAULT_FILE) else drop_ins


def keyed(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield each value with its key in the form of error messages, such as `scheduler.policy`."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from keyed(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:  # the file may exist, so its contents must not be ignored
        raise UsageError(f"{path}: {error.strerror}") from error
    return True


def _drop_ins(directory: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UsageError(f"{directory}: {error.strerror}") from error
    return [directory / name for name in names if name.endswith(".toml")]


def read_toml(path: Path) -> dict[str, Any]:
    """Return the contents of a file.

    Raises:
        UsageError: it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error


def _merge(into: dict[str, Any], table: dict[str, Any]) -> None:
    for key, value in table.items():
        old = into.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            _merge(old, value)
        else:
            into[key] = value


def _job_class(name: str) -> JobClass:
    return JobClass[name.upper()]
