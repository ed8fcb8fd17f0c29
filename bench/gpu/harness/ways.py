"""Runs a program bare, as a job, and as a job that is only observed, to measure Tandem's cost."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.gpu.figures.workload_rows import BARE, OBSERVED
from tandem.demo.process import Daemon


@contextmanager
def environment_of(
    mode: str, environment: Mapping[str, str], folder: Path
) -> Iterator[dict[str, str]]:
    """Yield the program's environment; unless it is bare, run a daemon for it during the block.

    Raises:
        WorkerError: the daemon does not come up.
    """
    if mode == BARE:
        yield dict(environment)
        return
    runtime_dir = folder / mode
    runtime_dir.mkdir(mode=0o700)
    config = runtime_dir / "tandemd.toml"  # ours, not the settings of the machine's daemon
    config.write_text("version = 1\n")
    ours = {**environment, "TANDEM_RUNTIME_DIR": str(runtime_dir)}
    daemon = Daemon(
        arguments=["--config", str(config)],
        env=ours,
        runtime_dir=runtime_dir,
        log=folder / f"{mode}-tandemd.log",
    )
    try:
        yield ours | ({"TANDEM_OBSERVE": "1"} if mode == OBSERVED else {})
    finally:
        daemon.close()


def command_of(
    mode: str, command: Sequence[str], *, name: str, options: Sequence[str] = ()
) -> list[str]:
    """The command; unless bare, run by `tandem run` with these options as a job of that name."""
    if mode == BARE:
        return list(command)
    run = [sys.executable, "-m", "tandem.cli", "run", "--require", "-p", "batch", "-J", name]
    return [*run, *options, "--", *command]
