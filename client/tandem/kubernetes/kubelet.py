"""Registers the plugin with the kubelet, again after a restart of the kubelet.

A plugin serves a socket in the kubelet's folder, and announces it on the kubelet's own socket. A
restarted kubelet knows no plugins, empties the folder and recreates its socket; a plugin that sees
this registers again.
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
    """Our socket, and its registration with the kubelet. For one event loop."""

    def __init__(self, folder: Path, plugin: DevicePlugin, *, say: Say) -> None:
        """`folder` is the kubelet's plugin folder.

        Raises:
            UsageError: its path is too long for sockets.
        """
        self._kubelet = folder / KUBELET_SOCKET
        self._socket = folder / SOCKET
        self._plugin = plugin
        self._say = say
        self._trouble = ""  # the last that was reported
        self._server: grpc.aio.Server | None = None
        self._known_by: tuple[int, ...] = ()
        if not fits_socket_address(self._socket):
            raise UsageError(f"{self._socket} is too long a path for a socket")

    async def keep(self) -> None:
        """Register again if the kubelet has restarted; if that fails, the next call retries."""
        if self._is_valid():
            return
        try:
            await self.renew()
        except TandemError as exc:
            if str(exc) != self._trouble:
                self._trouble = str(exc)
                self._say(f"{exc}; waiting for it")

    async def renew(self) -> None:
        """Serve the socket, and announce it to the kubelet.

        Raises:
            AccessError: no socket can be made in the folder.
            StateError: the kubelet rejects the plugin.
            UnavailableError: no kubelet answers.
        """
        await self.end()
        seen = _identity(self._kubelet)
        if not seen:
            raise UnavailableError(
                f"no kubelet listens at {self._kubelet}; start it, or name its plugin directory "
                "with --kubelet"
            )
        self._server = await self._serve()
        await asyncio.to_thread(_register, self._kubelet)
        self._known_by, self._trouble = seen, ""
        self._say(f"the kubelet knows of {RESOURCE}")

    async def end(self) -> None:
        """Stop serving and remove the socket, so that the kubelet counts no slices any more."""
        self._known_by = ()
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
            self._socket.unlink(missing_ok=True)

    def _is_valid(self) -> bool:
        """Whether the kubelet is still the one we registered with, and our socket exists."""
        return self._socket.exists() and self._known_by == _identity(self._kubelet)

    async def _serve(self) -> grpc.aio.Server:
        server = grpc.aio.server()
        services.add_DevicePluginServicer_to_server(self._plugin, server)
        try:
            server.add_insecure_port(f"unix:{self._socket}")
        except RuntimeError as exc:
            raise AccessError(
                f"cannot create a socket at {self._socket}; usually only root may"
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
            raise StateError(f"the kubelet at {kubelet} rejects {RESOURCE}: {why}") from exc


def _identity(socket: Path) -> tuple[int, ...]:
    """The identity of the socket file, empty if there is none; inode numbers alone are reused."""
    try:
        found = socket.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_ctime_ns
