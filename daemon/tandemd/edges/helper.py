"""The daemon's side of tandemd-helper: what takes root is asked of it where the daemon is not root.

It need not be there, and may be installed or started at any time, so that is looked at each time.
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
QUICK_S = 30.0  # a lock waits for ten, and MPS has as long to start
END_S = 10.0  # the daemon itself may be about to end
MOVES = ("Checkpoint", "Restore")  # calls that copy all of a process's memory
MOVE_S = 600.0
# What is added where root is needed and there is no helper.
WANTED = f"tandemd-helper does it for a daemon that is not root's ({_helper.ENABLE})"


class Helper:
    """Each method waits for its answer, until a deadline. For any thread but the loop's."""

    def __init__(self, socket: Path) -> None:
        """`socket`: where it listens, if it is there."""
        self._socket = socket

    @property
    def is_there(self) -> bool:
        """Whether there is somebody to ask, who serves this user."""
        return _helper.owner_of(self._socket) == os.geteuid()

    def cut(self, layout: Layout) -> Cut:
        """Cut a GPU, which the layout names by UUID.

        Raises:
            TandemError: it was refused, as `MigLayouts.apply` does; or the helper does not answer.
        """
        question = wire.CutGpu(gpu=layout.gpu, profiles=layout.profiles)
        cut = self._ask(question, timeout_s=CUT_S).cut
        if cut is None:
            raise BugError("tandemd-helper answers nothing of the cut")
        return cut

    def checkpoint(self, call: Call, pidfd: int) -> int:
        """Make a checkpoint call of the driver for a process; its state, where that is asked.

        Raises:
            TandemError: it was refused, or the driver does not do it; or the helper does not
                answer, and may still be at it.
        """
        question = wire.Checkpoint(call=call)
        timeout_s = MOVE_S if call in MOVES else QUICK_S
        return self._ask(question, descriptors=[pidfd], timeout_s=timeout_s).state

    @property
    def pipes(self) -> Path:
        """Where the MPS that it has started has its pipe."""
        return self._socket.parent / _helper.MPS

    def start_mps(self, gpus: Sequence[str]) -> Path:
        """Have MPS of root's for these GPUs, by UUID, or for all; where its pipe is.

        Raises:
            TandemError: it was refused, does not start, or the helper does not answer.
        """
        question = wire.StartMps(gpus=tuple(gpus))
        return Path(self._ask(question, timeout_s=QUICK_S).pipes)

    def trim_mps(self) -> None:
        """End servers of the MPS that it has started that nobody uses.

        Raises:
            TandemError: as `start_mps`.
        """
        self._ask(wire.TrimMps(), timeout_s=QUICK_S)

    def end_mps(self) -> None:
        """End the MPS that it has started, if it has one.

        Raises:
            TandemError: it runs on, for it has clients, say; or as `start_mps`.
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
    """None: a daemon of this user needs none."""
    return None if uid == 0 else Helper(_helper.socket_of(environment))
