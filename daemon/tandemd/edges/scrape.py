"""Serves the metrics to Prometheus over HTTP, if configured.

Without configuration nothing listens. If configured, it listens only on a unix socket or a loopback
address, because whoever reaches it sees every job's name and figures.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer

from tandemd.config.listen import UNIX, loopback
from tandemd.left_sockets import take_away_left

PATH = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SOCKET_MODE = 0o660  # owner and group; the administrator may choose the group


class ScrapeServer:
    """Answers GET /metrics with what `render` returns. A thread of its own calls `run`."""

    def __init__(self, listen: str, *, render: Callable[[], str]) -> None:
        """Bind `unix:/path` or `address:port`.

        Raises:
            OSError: the address is not available.
            UsageError: it is neither, or is reachable from other machines.
        """
        handler = _handler(render)
        self._path: Path | None = None
        if listen.startswith(UNIX):
            self._path = Path(listen.removeprefix(UNIX))
            take_away_left(self._path)
            self._server: _UnixServer | ThreadingHTTPServer = _UnixServer(str(self._path), handler)
            self._path.chmod(SOCKET_MODE)
        else:
            address, port = loopback(listen)
            kind = _Ip6Server if ":" in address else ThreadingHTTPServer
            self._server = kind((address, port), handler)

    @property
    def address(self) -> str:
        """Return the address on which it listens, with the actual port."""
        name = self._server.socket.getsockname()
        if isinstance(name, str):
            return f"{UNIX}{name}"
        return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"

    def run(self) -> None:
        """Serve until `stop` is called."""
        self._server.serve_forever()

    def stop(self) -> None:
        """End `run` and close the socket."""
        self._server.shutdown()
        self._server.server_close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


class _Ip6Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6


class _UnixServer(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        request, _ = super().get_request()
        return request, ("", 0)  # the handler expects a pair


def _handler(render: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One scrape."""

        timeout = 10.0  # seconds a client may take for its request

        def do_GET(self) -> None:
            """Send the metrics, or an error that says why not."""
            if self.path.partition("?")[0] != PATH:
                self.send_error(404, explain=f"the metrics are at {PATH}")
                return
            try:
                body = render().encode()
            except TimeoutError:
                self.send_error(503, explain="the scheduler does not answer")
                return
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: scrapes are routine."""

    return Handler
