"""MPS that the helper runs for a daemon without root: it serves all users, in turns.

The daemon finds it by its pipe and watches it like an MPS of root's that somebody else has started;
what only root may do with it, the daemon asks the helper for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from tandem import _mps
from tandem._mps import Control
from tandem.errors import TandemError
from tandemd.edges.helper import WANTED, Helper

ANSWER_S = 5.0

log = structlog.get_logger(__name__)


class HelpedMps:
    """The helper's MPS, one at most. For one thread at a time; `place` for any."""

    def __init__(self, helper: Helper, environment: Mapping[str, str]) -> None:
        """`environment` is one for programs that must not become jobs."""
        self.place: Path | None = None  # of its pipe, once the helper has it for us
        self._helper = helper
        self._environment = environment

    @property
    def is_there(self) -> bool:
        """Tell whether the helper has one, by its pipe, even if no daemon asked for it yet."""
        return self._helper.is_there and _mps.has_pipe(self._helper.pipes)

    def start(self, gpus: Sequence[str]) -> Path | None:
        """Start one for these GPUs; empty: all. Returns its place; None: the log says why not.

        It may also be one that somebody else has started meanwhile where programs look.
        """
        self.place = None
        if not self._helper.is_there:
            log.info("the daemon's own mps does not serve other users", remedy=WANTED)
            return None
        try:
            place = self._helper.start_mps(gpus)
        except TandemError as error:
            log.warning("the helper cannot start mps, trying without it", reason=str(error))
            return None
        self.place = place if place == self._helper.pipes else None
        log.info("the helper says where mps is", pipes=str(place))
        return place

    def trim(self) -> None:
        """End its idle servers."""
        try:
            self._helper.trim_mps()
        except TandemError as error:
            log.warning("mps servers are still running", reason=str(error))

    def end(self) -> str:
        """End it unless it has clients. Returns why it runs on; empty: ended, or not the helper's.

        The helper is not asked while it would only refuse.
        """
        control = Control(self._helper.pipes, environment=self._environment, timeout_s=ANSWER_S)
        servers = control.servers() if self.is_there else None
        if servers is None:
            return ""
        if any(control.clients(server) != [] for server in servers):
            return "it has clients"
        try:
            self._helper.end_mps()
        except TandemError as error:
            return str(error)
        self.place = None
        return ""
