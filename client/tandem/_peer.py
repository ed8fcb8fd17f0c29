"""The user at the other end of a unix socket, according to the kernel."""

import socket
import struct

_UCRED = struct.Struct("3i")  # pid, uid, gid


def uid_of(connection: socket.socket) -> int:
    """The uid of the peer process; for a listener, the uid at the time it began to listen."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(peer)[1])
