"""Tells dcgm-exporter which jobs are on which GPU, so that its metrics carry them (`hpc_job`).

The exporter reads a directory with one file per GPU, named by the index (`0`; for a MIG instance
`0.2`), which has one job id per line (DCGM Exporter, `--hpc-job-mapping-dir`).
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

PERIOD_S = 1.0
_FILE = re.compile(r"\d+(\.\d+)?")

JobsOn = Mapping[str, Sequence[str]]  # ids of jobs, by name of GPU; every GPU is there

log = structlog.get_logger()


class JobFiles:
    """Keeps the files up to date as jobs come and go. A thread of its own calls `run`."""

    def __init__(self, folder: Path, *, jobs_on: Callable[[], JobsOn]) -> None:
        """Take over a directory, creating it if missing, and clear the files of all GPUs.

        Raises:
            OSError: the directory, or a file in it, cannot be made.
        """
        self._folder = folder
        self._jobs_on = jobs_on
        self._stopping = threading.Event()
        self._written: dict[str, str] = {}
        self._is_failing = False
        _own(folder)
        left = [each.name for each in folder.iterdir() if _FILE.fullmatch(each.name)]
        try:
            gpus = [*map(_name, jobs_on())]
        except TimeoutError:  # the core is busy; the first look does it
            gpus = []
        self._write(dict.fromkeys([*left, *gpus], ""))

    def run(self) -> None:
        """Look until `stop` is called; then clear all files."""
        while not self._stopping.wait(PERIOD_S):
            with suppress(TimeoutError):  # the core is busy or ending; the next look does it
                self.look()
        self._try(dict.fromkeys(self._written, ""))

    def look(self) -> None:
        """Look once, and write what changed."""
        found = {
            _name(gpu): "".join(f"{job}\n" for job in jobs) for gpu, jobs in self._jobs_on().items()
        }
        gone = dict.fromkeys(self._written.keys() - found.keys(), "")
        self._try({**gone, **found})

    def stop(self) -> None:
        """End `run`. Any thread."""
        self._stopping.set()

    def _try(self, texts: Mapping[str, str]) -> None:
        try:
            self._write(texts)
            self._is_failing = False
        except OSError as error:  # retried with the next look
            if not self._is_failing:
                log.warning("metrics.hpc_job_mapping_dir cannot be written", reason=str(error))
            self._is_failing = True

    def _write(self, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            if self._written.get(name) == text:
                continue
            # The exporter ignores names that begin with a dot.
            fresh = self._folder / f".{name}.{os.getpid()}"
            fresh.unlink(missing_ok=True)
            with fresh.open("x") as file:  # "x", so that a link planted there is not followed
                file.write(text)
            fresh.chmod(0o644)  # regardless of the umask, because the exporter runs as another user
            fresh.replace(self._folder / name)
            self._written[name] = text


def _own(folder: Path) -> None:
    folder.mkdir(mode=0o755, exist_ok=True)
    about = folder.stat()
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "it is another user's, or others may write to it")
    if about.st_mode & 0o055 == 0o055 or about.st_uid != os.geteuid():
        return
    if others := sorted(e.name for e in folder.iterdir() if not _FILE.fullmatch(e.name)):
        raise PermissionError(
            errno.EPERM, f"others may not read it, and it holds more than such files: {others[0]}"
        )
    folder.chmod(stat.S_IMODE(about.st_mode) | 0o055)  # regardless of the umask


def _name(gpu: str) -> str:
    return gpu.replace(":", ".")
