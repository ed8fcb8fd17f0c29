"""How the kubelet comes to know of a plugin, also after it has started anew.

A plugin serves a socket in the kubelet's folder and says so on the kubelet's own. A kubelet that
starts knows of none, empties the folder and makes its socket anew: whoever sees that begins again.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc

from tandem._paths import fits_socket_address
from tandem._wire import deviceplugin_pb2 as pb
from tandem._wire import deviceplugin_pb2_grpc as services
from tandem.errors import AccessError, StateError, TandemError, UnavailableError, UsageError
from tandem.kubernetes.inventory import Say
from tandem.kubernetes.service import OPTIONS, DevicePlugin
from tandem.kubernetes.slices import RESOURCE
from tandem.kubernetes.sockets import ANSWER_S, dial

VERSION = "v1beta1"
SOCKET = "tandem-slice.sock"
KUBELET_SOCKET = "kubelet.sock"


class Registration:
    """Our socket, and that the kubelet knows of it. For one event loop."""

    def __init__(self, folder: Path, plugin: DevicePlugin, *, say: Say) -> None:
        """`folder`: the kubelet's.

        Raises:
            UsageError: its path is too long for sockets.
        """
        self._kubelet = folder / KUBELET_SOCKET
        self._socket = folder / SOCKET
        self._plugin = plugin
        self._say = say
        self._trouble = ""  # the last that was said
        self._server: grpc.aio.Server | None = None
        self._known_by: tuple[int, ...] = ()
        if not fits_socket_address(self._socket):
            raise UsageError(f"{self._socket} is too long for a socket")

    async def keep(self) -> None:
        """Begin again if the kubelet has; where that fails, the next call tries again."""
        if self._is_valid():
            return
        try:
            await self.renew()
        except TandemError as exc:
            if str(exc) != self._trouble:
                self._trouble = str(exc)
                self._say(f"{exc}; waiting for it")

    async def renew(self) -> None:
        """Serve the socket, and tell the kubelet.

        Raises:
            AccessError: no socket can be made in the folder.
            StateError: the kubelet does not want it.
            UnavailableError: no kubelet answers.
        """
        await self.end()
        seen = _identity(self._kubelet)
        if not seen:
            raise UnavailableError(
                f"no kubelet listens at {self._kubelet}; start it, or name its folder of plugins "
                "with --kubelet"
            )
        self._server = await self._serve()
        await asyncio.to_thread(_register, self._kubelet)
        self._known_by, self._trouble = seen, ""
        self._say(f"the kubelet knows of {RESOURCE}")

    async def end(self) -> None:
        """Serve no longer; the socket is gone then, and the kubelet counts no slices any more."""
        self._known_by = ()
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
            self._socket.unlink(missing_ok=True)

    def _is_valid(self) -> bool:
        """Whether the kubelet still is the one that was told, and our socket is there."""
        return self._socket.exists() and self._known_by == _identity(self._kubelet)

    async def _serve(self) -> grpc.aio.Server:
        server = grpc.aio.server()
        services.add_DevicePluginServicer_to_server(self._plugin, server)
        try:
            server.add_insecure_port(f"unix:{self._socket}")
        except RuntimeError as exc:
            raise AccessError(
                f"no socket can be made at {self._socket}; only root may, as a rule"
            ) from exc
        await server.start()
        return server


def _register(kubelet: Path) -> None:
    request = pb.RegisterRequest(
        version=VERSION, endpoint=SOCKET, resource_name=RESOURCE, options=OPTIONS
    )
    with dial(kubelet) as channel:
        try:
            services.RegistrationStub(channel).Register(request, timeout=ANSWER_S)
        except grpc.RpcError as exc:
            why = exc.details() or exc.code().name
            if exc.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise UnavailableError(f"the kubelet at {kubelet} does not answer: {why}") from exc
            raise StateError(f"the kubelet at {kubelet} takes no {RESOURCE}: {why}") from exc


def _identity(socket: Path) -> tuple[int, ...]:
    """Of the file, empty where there is none. A number of an inode alone may be used again."""
    try:
        found = socket.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_ctime_ns
