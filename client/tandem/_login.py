"""The login socket: proves the caller's uid by a token that is valid during the connection."""

import socket
from pathlib import Path

from tandem._attach import set_timeout
from tandem._paths import fits_socket_address
from tandem.errors import CapacityError, DeadlineError, UnavailableError

_MAX_TOKEN_BYTES = 512
_REFUSED = "refused: "  # followed by the reason


class Login:
    """A token, and the connection that keeps it valid.

    The daemon learns the uid from the kernel, answers with one line of text and keeps the
    connection open; the token expires when this process closes the connection or dies.
    """

    def __init__(self, path: Path, *, timeout_s: float) -> None:
        """Connect and wait for the token.

        Raises:
            UnavailableError: nobody listens at `path`, or the daemon sent no token.
            CapacityError: this user has as many clients as the daemon allows.
            DeadlineError: no token within the timeout.
        """
        if not fits_socket_address(path):
            raise UnavailableError(f"{path} is too long for a socket; set TANDEM_RUNTIME_DIR")
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._connect(path, timeout_s)
            self._connection.settimeout(timeout_s)
            self.token = self._read_line()
            self._connection.settimeout(0)  # from now on it is only polled
        except BaseException as exc:
            self._connection.close()
            if isinstance(exc, TimeoutError):
                raise DeadlineError(f"no token within {timeout_s:.2g} s") from exc
            if isinstance(exc, OSError):
                raise UnavailableError(f"{path}: {exc.strerror or exc}") from exc
            raise

    def alive(self) -> bool:
        """Whether the daemon still holds the connection; False after it ended or restarted."""
        try:
            return self._connection.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Close the connection, which ends the token."""
        self._connection.close()

    def _connect(self, path: Path, timeout_s: float) -> None:
        set_timeout(self._connection, timeout_s)
        try:
            self._connection.connect(str(path))
        except BlockingIOError as exc:
            raise TimeoutError from exc

    def _read_line(self) -> str:
        received = b""
        while not received.endswith(b"\n"):
            part = self._connection.recv(_MAX_TOKEN_BYTES)
            received += part
            if not part or len(received) > _MAX_TOKEN_BYTES:
                raise UnavailableError(
                    "the daemon closed the login connection without a token: it is stopping, is "
                    "out of descriptors, or this user has too many clients; its log says which"
                )
        line = received.decode("ascii", errors="replace").strip()
        if line.startswith(_REFUSED):
            raise CapacityError(line.removeprefix(_REFUSED), reason="TOO_MANY_CLIENTS")
        return line
