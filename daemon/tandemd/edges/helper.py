"""The daemon's side of tandemd-helper, which does what needs root for a daemon without it.

The helper is optional and may be installed or started at any time, so each use checks for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tandem import _helper
from tandem.errors import BugError
from tandemd.core.space.layouts import Cut, Layout
from tandemd.edges.checkpoint_driver import Call
from tandemd.helper import wire
from tandemd.helper.wire import Answer, Question

CUT_S = 120.0
QUICK_S = 30.0  # a lock waits for ten, and MPS has that long to start
END_S = 10.0  # shorter, for the daemon itself may be about to exit
MOVES = ("Checkpoint", "Restore")  # calls that copy all of a process's memory
MOVE_S = 600.0
# Appended to messages where root is needed and there is no helper.
WANTED = f"tandemd-helper does it for a daemon that is not root's ({_helper.ENABLE})"


class Helper:
    """Each method blocks until its answer or a deadline. For any thread but the loop's."""

    def __init__(self, socket: Path) -> None:
        """`socket` is the path on which the helper listens, if it is running."""
        self._socket = socket

    @property
    def is_there(self) -> bool:
        """Tell whether a helper that serves this user is there."""
        return _helper.owner_of(self._socket) == os.geteuid()

    def cut(self, layout: Layout) -> Cut:
        """Cut a GPU, which the layout names by UUID.

        Raises:
            TandemError: it was refused, as by `MigLayouts.apply`; or the helper does not answer.
        """
        question = wire.CutGpu(gpu=layout.gpu, profiles=layout.profiles)
        cut = self._ask(question, timeout_s=CUT_S).cut
        if cut is None:
            raise BugError("tandemd-helper answers nothing of the cut")
        return cut

    def checkpoint(self, call: Call, pidfd: int) -> int:
        """Make a checkpoint call of the driver for a process; returns its state, for GetState.

        Raises:
            TandemError: it was refused, or the driver does not do it; or the helper does not
                answer, and may still be at it.
        """
        question = wire.Checkpoint(call=call)
        timeout_s = MOVE_S if call in MOVES else QUICK_S
        return self._ask(question, descriptors=[pidfd], timeout_s=timeout_s).state

    @property
    def pipes(self) -> Path:
        """Return the pipe directory of the MPS that the helper starts."""
        return self._socket.parent / _helper.MPS

    def start_mps(self, gpus: Sequence[str]) -> Path:
        """Start root's MPS for these GPUs, by UUID, or for all; returns its pipe directory.

        Raises:
            TandemError: it was refused, does not start, or the helper does not answer.
        """
        question = wire.StartMps(gpus=tuple(gpus))
        return Path(self._ask(question, timeout_s=QUICK_S).pipes)

    def trim_mps(self) -> None:
        """End idle servers of the MPS that the helper has started.

        Raises:
            TandemError: as `start_mps`.
        """
        self._ask(wire.TrimMps(), timeout_s=QUICK_S)

    def end_mps(self) -> None:
        """End the MPS that the helper has started, if any.

        Raises:
            TandemError: it keeps running, for instance because it has clients; or as `start_mps`.
        """
        self._ask(wire.EndMps(), timeout_s=END_S)

    def _ask(
        self, question: Question, *, descriptors: Sequence[int] = (), timeout_s: float
    ) -> Answer:
        message = wire.encode(question)
        answer = _helper.exchange(
            self._socket, message, descriptors=descriptors, timeout_s=timeout_s
        )
        return wire.read_answer(answer)


def find_helper(environment: Mapping[str, str], *, uid: int) -> Helper | None:
    """Return the helper; None: a daemon of this user needs none."""
    return None if uid == 0 else Helper(_helper.socket_of(environment))
