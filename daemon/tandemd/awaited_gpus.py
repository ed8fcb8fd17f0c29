"""Looks for GPUs while there are none: the driver may be loaded after the daemon has started."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from tandemd.edges.gpus import Inventory

PERIOD_S = 5.0


class AwaitedGpus:
    """Polls NVML until it lists a GPU; from then on other parts watch for changes."""

    def __init__(self, inventory: Inventory, *, tell: Callable[[], None]) -> None:
        """`tell` is called once, on the thread of `run`, when there are GPUs."""
        self._inventory = inventory
        self._tell = tell
        self._stopping = threading.Event()

    def run(self) -> None:
        """Look until there are GPUs, or until `stop` is called."""
        while not self.look():
            if self._stopping.wait(PERIOD_S):
                return
        self._tell()

    def look(self) -> bool:
        """Tell whether there are any GPUs now."""
        with contextlib.suppress(OSError):  # none so far; the failure has been logged
            self._inventory.refresh()
        return bool(self._inventory.gpus())

    def stop(self) -> None:
        """End `run`. Any thread."""
        self._stopping.set()
