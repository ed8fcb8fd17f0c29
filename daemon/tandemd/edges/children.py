"""What every program that the daemon starts needs at its start."""

from __future__ import annotations

import signal


def unblock_signals() -> None:
    """As `preexec_fn`: the daemon waits for its own; blocked, they would end no child of it."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
