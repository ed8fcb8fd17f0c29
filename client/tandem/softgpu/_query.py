"""Asks a running device process for its state, over its socket.

The messages are those of csrc/softgpu/protocol.h: HELLO, WELCOME, QUERY, QUERY_REPLY.
"""

import socket
import struct
from pathlib import Path

from tandem.errors import UnavailableError

_HEADER = struct.Struct("<HHI")
_HELLO = struct.Struct("<HHI II 64s")
_QUERY = struct.Struct("<HHI Q II")
_REPLY = struct.Struct("<HHI Q II")
_TYPE_HELLO, _TYPE_QUERY, _TYPE_QUERY_REPLY = 1, 18, 19
_PROTOCOL, _QUERY_ONLY = 4, 2
_MAX_PACKET_BYTES = 60 * 1024
_TIMEOUT_S = 5.0


def device_status(folder: Path) -> str:
    """The state that the device process in `folder` reports, as JSON.

    Raises:
        UnavailableError: none runs there, or it does not answer within five seconds.
    """
    path = folder / "softgpu.sock"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.connect(str(path))
            hello = _HELLO.pack(
                _TYPE_HELLO, _HELLO.size, 0, _PROTOCOL, _QUERY_ONLY, b"tandem softgpu status"
            )
            connection.send(hello)
            connection.recv(_MAX_PACKET_BYTES)
            connection.send(_QUERY.pack(_TYPE_QUERY, _QUERY.size, 0, 1, 0, 0))
            reply = connection.recv(_MAX_PACKET_BYTES)
    except (FileNotFoundError, ConnectionRefusedError) as exc:
        raise UnavailableError(
            f"no software GPU runs in '{folder}'; it starts with its first program and ends two "
            "seconds after its last"
        ) from exc
    except OSError as exc:
        raise UnavailableError(f"the software GPU in '{folder}' does not answer: {exc}") from exc
    if len(reply) < _REPLY.size or _HEADER.unpack_from(reply)[0] != _TYPE_QUERY_REPLY:
        raise UnavailableError(f"what answers in '{folder}' is not a software GPU of this version")
    text_bytes = _REPLY.unpack_from(reply)[4]
    return reply[_REPLY.size : _REPLY.size + text_bytes].decode()
