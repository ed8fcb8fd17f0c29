"""Servers of MPS that nobody uses: they keep a GPU, and end without anybody's missing them."""

from __future__ import annotations

import time

from tandem._mps import Control

ENDING_S = 5.0  # for what is being shut down to be gone
POLL_S = 0.02


def idle_servers(control: Control) -> frozenset[int]:
    """Pids of those that have no clients.

    A server of the new interface is none of them: it would be made again at once.
    """
    servers = control.servers() or []
    if control.version != 2:
        return frozenset()
    return frozenset(one.pid for one in servers if control.clients(one) == [])


def end_servers(control: Control, pids: frozenset[int]) -> None:
    """Have these end, and wait for it, `ENDING_S` at most; the next client gets another."""
    end_s = time.monotonic() + ENDING_S
    for pid in pids:
        control.shut_down(pid)
    while any(one.pid in pids for one in control.servers() or []):
        if time.monotonic() >= end_s:
            return
        time.sleep(POLL_S)
