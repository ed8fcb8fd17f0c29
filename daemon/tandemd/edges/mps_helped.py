"""MPS that the helper runs for a daemon that is not root's: it serves all users, in turns.

The daemon finds it by its pipe and watches it as it does one of root's that somebody else has
started; what only root may do with it, it asks the helper for.
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
    """One at most. For one thread at a time; `place` for any."""

    def __init__(self, helper: Helper, environment: Mapping[str, str]) -> None:
        """`environment`: of programs that are not to be jobs."""
        self.place: Path | None = None  # of its pipe, once the helper has it for us
        self._helper = helper
        self._environment = environment

    @property
    def is_there(self) -> bool:
        """The helper has one, as far as its pipe says, also if no daemon has asked for it yet."""
        return self._helper.is_there and _mps.has_pipe(self._helper.pipes)

    def start(self, gpus: Sequence[str]) -> Path | None:
        """Have one for these GPUs; empty: all. Where its pipe is; None: the log says why not.

        That may also be one that somebody else has started meanwhile where programs look.
        """
        self.place = None
        if not self._helper.is_there:
            log.info("mps of the daemon's own serves no other users", remedy=WANTED)
            return None
        try:
            place = self._helper.start_mps(gpus)
        except TandemError as error:
            log.warning("the helper starts no mps, trying it without", reason=str(error))
            return None
        self.place = place if place == self._helper.pipes else None
        log.info("the helper says where mps is", pipes=str(place))
        return place

    def trim(self) -> None:
        """End servers of it that nobody uses."""
        try:
            self._helper.trim_mps()
        except TandemError as error:
            log.warning("servers of mps stay", reason=str(error))

    def end(self) -> str:
        """Unless it has clients. Why it runs on; empty: it has ended, or is none of the helper's.

        Nothing is asked of the helper while it would only refuse.
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
