"""Managed runs under tandemd: a job is paused where its program asks, and soon resumed."""

from __future__ import annotations

import select
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO

from proof_keeper import PATIENCE_S, Watched, conduct

from tandem._client import Client
from tandem.demo.process import Daemon
from tandem.errors import TandemError

PAUSE_S = 0.02  # real time: a program silent for so long waits at the gate


class Master:
    """The daemon of one run, and the user who pauses and resumes its job."""

    def __init__(self, folder: Path) -> None:
        """Create the runtime directory."""
        folder.mkdir(mode=0o700)
        self.folder = folder
        self._seen = Watched()
        self._paused = ""  # the job's name

    def watch(
        self, command: Sequence[str], env: Mapping[str, str], out: IO[str], err: IO[str]
    ) -> tuple[str, Watched]:
        own = {name: value for name, value in env.items() if name != "LD_PRELOAD"}
        clock = ["--clock", "softgpu"]
        log = self.folder / "log"
        daemon = Daemon(env=own, runtime_dir=self.folder, log=log, arguments=clock)
        try:
            with Client(directory=str(self.folder)) as client:
                serve = partial(self._serve, client)
                env = {**env, "PROOF_DAEMON_NEEDS_TIME": "1"}
                return conduct(serve, command, env, (out, err)), self._seen
        finally:
            daemon.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _serve(self, client: Client, control: socket.socket, pid: int) -> bool:
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            ready, _, _ = select.select([control], [], [], PAUSE_S if self._paused else 1)
            if not ready:
                self._resume(client)
                continue
            line = control.recv(100).decode().split()
            if not line:
                return True
            control.send(self._answer(client, pid, *line))
        return False

    def _answer(self, client: Client, pid: int, verb: str, step: str = "") -> bytes:
        if verb == "hold" and not self._paused:
            self._pause(client, pid)
        elif verb == "done" and not self._paused:
            self._seen.waited.append(int(step))
            return b"o"
        elif verb == "end":
            self._resume(client)
        return b"s"

    def _pause(self, client: Client, pid: int) -> None:
        names = [job.name for job in client.jobs() if pid in (p.pid for p in job.processes)]
        with suppress(TandemError):  # it has not attached, or only just now
            self._paused = client.pause(names[0]).name if names else ""

    def _resume(self, client: Client) -> None:
        if self._paused:
            client.resume(self._paused)
        self._paused = ""
