"""How to reach tandemd-helper, which does what takes root: one message, one answer.

The daemon makes requests; `tandem doctor` only checks whether the helper answers. The messages are
defined on the daemon's side: `tandemd.helper.wire`.
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
VARIABLE = "TANDEM_HELPER"  # names another socket
MPS = "mps"  # beside its socket: the pipe directory of the MPS that it started
MOST_BYTES = 4096  # of a message
ENABLE = "systemctl enable --now tandemd-helper.socket"


def socket_of(environment: Mapping[str, str]) -> Path:
    """The helper's socket, whether or not the helper is installed."""
    return Path(environment.get(VARIABLE) or SOCKET)


def owner_of(path: Path) -> int | None:
    """The uid that the helper serves besides root; None: there is no socket."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_uid if stat.S_ISSOCK(facts.st_mode) else None


def exchange(
    path: Path, message: bytes, *, descriptors: Sequence[int] = (), timeout_s: float
) -> bytes:
    """Send a message with these file descriptors to the helper, and return its answer.

    Raises:
        UnavailableError: nobody listens there, or the helper hung up without an answer.
        AccessError: the helper does not admit this user, or belongs to neither root nor this user.
        DeadlineError: no answer in time; the request may still be carried out.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(path))
            _check_owner(connection, path)
            # The helper may refuse and hang up before reading; then sending fails, and the answer
            # is there.
            with contextlib.suppress(BrokenPipeError):
                socket.send_fds(connection, [message], descriptors)
            answer = connection.recv(MOST_BYTES)
        except TimeoutError as error:
            raise DeadlineError(f"tandemd-helper did not answer in {timeout_s:g} s") from error
        except PermissionError as error:
            raise AccessError(f"{path}: {error.strerror}") from error
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            raise UnavailableError(f"cannot reach tandemd-helper: {path}: {error}") from error
    if not answer:
        raise UnavailableError("tandemd-helper ended without an answer; its log says why")
    return answer


def _check_owner(connection: socket.socket, path: Path) -> None:
    """Refuse a listener of another user; a socket made by systemd belongs to root."""
    uid = _peer.uid_of(connection)
    if uid not in (0, os.geteuid()):
        raise AccessError(f"{path}: uid {uid} listens there, which is neither root nor this user")
