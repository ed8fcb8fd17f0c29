"""Who is at the other end of a unix socket, as the kernel says."""

import socket
import struct

_UCRED = struct.Struct("3i")  # pid, uid, gid


def uid_of(connection: socket.socket) -> int:
    """Whose process it is; of who listens, as it was when it began to."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(peer)[1])
