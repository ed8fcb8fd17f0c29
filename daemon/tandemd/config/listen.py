"""Addresses for servers without access control of their own: this machine only."""

from __future__ import annotations

from ipaddress import ip_address

from tandem.errors import UsageError

UNIX = "unix:"  # followed by a path


def loopback(listen: str) -> tuple[str, int]:
    """Parse `127.0.0.1:9446` or `[::1]:9446` into address and port.

    Raises:
        UsageError: it is no such pair, or not a loopback address.
    """
    said, _, port = listen.rpartition(":")
    is_bracketed = said.startswith("[") and said.endswith("]")
    address = said[1:-1] if is_bracketed else said
    try:
        parsed = ip_address(address)
        is_loopback = parsed.is_loopback and (parsed.version == 6) is is_bracketed
    except ValueError:
        is_loopback = False
    if not is_loopback or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(
            f"'{listen}' is neither unix:/path nor a loopback address and port such as "
            "127.0.0.1:9446; let a proxy with access control serve other machines"
        )
    return address, int(port)
