"""sd_notify: sends one datagram to the service manager, if there is one."""

from __future__ import annotations

import os
import socket

import structlog

log = structlog.get_logger(__name__)


def notify(state: str) -> None:
    """Send `READY=1`, `WATCHDOG=1`, `STOPPING=1`..; does nothing outside systemd."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager:
            manager.sendto(state.encode(), address)
    except OSError as error:
        log.warning("the service manager does not listen, continuing without it", error=str(error))


def watchdog_period_s() -> float | None:
    """Return how often to send `WATCHDOG=1`: half of the granted period; None = never."""
    granted_us = int(os.environ.get("WATCHDOG_USEC", "0"))
    return granted_us / 2e6 if granted_us > 0 else None
