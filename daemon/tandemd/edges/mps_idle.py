"""Idle MPS servers: they keep a GPU in use, and can be ended without loss."""

from __future__ import annotations

import time

from tandem._mps import Control

ENDING_S = 5.0  # how long to wait for servers that are shutting down
POLL_S = 0.02


def idle_servers(control: Control) -> frozenset[int]:
    """Return the pids of servers without clients.

    Servers of the new interface are excluded: they would be created again at once.
    """
    servers = control.servers() or []
    if control.version != 2:
        return frozenset()
    return frozenset(one.pid for one in servers if control.clients(one) == [])


def end_servers(control: Control, pids: frozenset[int]) -> None:
    """End these servers and wait up to `ENDING_S`; the next client gets a new one."""
    end_s = time.monotonic() + ENDING_S
    for pid in pids:
        control.shut_down(pid)
    while any(one.pid in pids for one in control.servers() or []):
        if time.monotonic() >= end_s:
            return
        time.sleep(POLL_S)
