"""Where tandemd-helper is, which does what takes root, and how it is asked: a message, an answer.

The daemon asks it, and `tandem doctor` whether it answers. What may be said is the daemon's side of
it: `tandemd.helper.wire`.
"""

import contextlib
import os
import socket
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from tandem import _peer
from tandem.errors import AccessError, DeadlineError, UnavailableError

SOCKET = Path("/run/tandem-helper/helper.sock")
VARIABLE = "TANDEM_HELPER"  # for one that is not the machine's
MPS = "mps"  # beside its socket: the pipe of the MPS that it has started
MOST_BYTES = 4096  # of a message
ENABLE = "systemctl enable --now tandemd-helper.socket"


def socket_of(environment: Mapping[str, str]) -> Path:
    """Where it listens, if it is installed."""
    return Path(environment.get(VARIABLE) or SOCKET)


def owner_of(path: Path) -> int | None:
    """The uid that it serves beside root; None: there is no socket."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_uid if stat.S_ISSOCK(facts.st_mode) else None


def exchange(
    path: Path, message: bytes, *, descriptors: Sequence[int] = (), timeout_s: float
) -> bytes:
    """What it answers to a message with these descriptors.

    Raises:
        UnavailableError: nobody listens there, or it went without an answer.
        AccessError: it lets this user not ask, or is one of neither root nor this user.
        DeadlineError: it did not answer in time; what was asked may be done yet.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(path))
            _check_owner(connection, path)
            # A refusal may be there before anything was said; then there is nobody to send to.
            with contextlib.suppress(BrokenPipeError):
                socket.send_fds(connection, [message], descriptors)
            answer = connection.recv(MOST_BYTES)
        except TimeoutError as error:
            raise DeadlineError(f"tandemd-helper did not answer in {timeout_s:g} s") from error
        except PermissionError as error:
            raise AccessError(f"{path}: {error.strerror}") from error
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            raise UnavailableError(f"tandemd-helper cannot be asked: {path}: {error}") from error
    if not answer:
        raise UnavailableError("tandemd-helper has ended without an answer; its log says why")
    return answer


def _check_owner(connection: socket.socket, path: Path) -> None:
    """Of a socket that systemd has made it is root."""
    uid = _peer.uid_of(connection)
    if uid not in (0, os.geteuid()):
        raise AccessError(f"{path}: uid {uid} listens there, who is neither root nor we")
