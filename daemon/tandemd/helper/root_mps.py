"""Root's MPS, which serves all users: in a directory beside the helper's socket.

It is a child of the helper and outlives it: the next helper finds it there and knows that it is
ours. No helper exits by itself while it runs.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tandem._mps import PIPES, Control
from tandem.errors import StateError
from tandemd.edges.mps import ANSWER_S, MOST_SAID_BYTES, MpsControl
from tandemd.edges.mps_idle import end_servers, idle_servers
from tandemd.edges.mps_own import OwnMps

ROOT = 0  # whose MPS has the interface by which users take turns


class RootMps:
    """Root's MPS, one at most. For any thread; methods exclude one another."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        """`directory` is its place, whatever the environment says."""
        environment = {name: value for name, value in environment.items() if name != PIPES}
        self._environment = environment
        self._own = OwnMps(directory, environment)
        self._started: MpsControl | None = None  # waits for the process, which is our child
        self._lock = threading.Lock()

    def start(self, gpus: Sequence[str]) -> Path:
        """Start one for these GPUs, or for all if none is named; returns its pipe directory.

        A running one is used, whichever GPUs it is for.

        Raises:
            StateError: there is none; the log says why.
        """
        with self._lock:
            self._let_go_of_ended()
            control = MpsControl(
                own=self._own.directory,
                environment=self._environment,
                gpus=gpus,
                tell=lambda _what, _ago_s: None,
                uid=ROOT,
            )
            if not control.open() or control.directory is None:
                raise StateError("mps does not start; the log of tandemd-helper says why")
            self._started = self._started or control
            return control.directory

    def trim(self) -> None:
        """End its idle servers."""
        with self._lock:
            if self._own.pid is not None:
                control = self._control()
                end_servers(control, idle_servers(control))

    def end(self) -> None:
        """End it if it runs.

        Raises:
            StateError: it runs on, for instance because it has clients.
        """
        with self._lock:
            if why := self._own.end(self._control()):
                raise StateError(f"mps keeps running: {why}")

    def look(self) -> bool:
        """Tell whether it runs; truncates its output before that fills the memory."""
        with self._lock:
            self._let_go_of_ended()
            self._own.cut_said(MOST_SAID_BYTES)
            return self._own.pid is not None

    def _let_go_of_ended(self) -> None:
        if self._started is not None and not self._started.is_own:  # `is_own` reaps the process
            self._started = None

    def _control(self) -> Control:
        return Control(self._own.directory, environment=self._environment, timeout_s=ANSWER_S)
