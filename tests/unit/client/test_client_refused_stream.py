"""A daemon with more calls than it takes at once refuses some before it reads them."""

import shutil
import socket
import struct
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tandem._client import Client
from tandem.errors import NotFoundError

SOON_S = 20.0
PREFACE_BYTES = 24
HEADERS, RST_STREAM, SETTINGS = 1, 3, 4  # RFC 9113, 6
END_OF_STREAM_AND_HEADERS, REFUSED_STREAM = 5, 7
REFUSALS = 5  # gRPC itself tries once more


def frame(kind, payload=b"", *, flags=0, stream=0):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def field(name, value):
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


NOT_FOUND = (
    b"\x88"  # :status 200
    + field(b"content-type", b"application/grpc")
    + field(b"grpc-status", b"5")
    + field(b"grpc-message", b"no such job")
)


def serve(listener, login, asked):
    """Refuses some calls and answers the next one, in HTTP/2 frames."""
    logged_in, _ = login.accept()
    logged_in.sendall(b"0" * 64 + b"\n")
    connection, _ = listener.accept()
    with logged_in, connection, connection.makefile("rb") as heard, suppress(OSError):
        heard.read(PREFACE_BYTES)
        connection.sendall(frame(SETTINGS))
        while head := heard.read(9):
            length, kind, _, stream = struct.unpack(">IBBI", b"\0" + head)
            heard.read(length)
            if kind != HEADERS:
                continue
            asked.append(stream)
            if len(asked) <= REFUSALS:
                code = struct.pack(">I", REFUSED_STREAM)
                connection.sendall(frame(RST_STREAM, code, stream=stream))
            else:
                answer = frame(HEADERS, NOT_FOUND, flags=END_OF_STREAM_AND_HEADERS, stream=stream)
                connection.sendall(answer)


@pytest.fixture
def folder():
    found = Path(tempfile.mkdtemp(prefix="tandem-"))
    yield found
    shutil.rmtree(found)


def test_a_call_that_is_turned_away_unread_stands_in_line_again(folder):
    asked = []
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as login:
        for listening, name in ((listener, "tandemd.sock"), (login, "login.sock")):
            listening.bind(str(folder / name))
            listening.listen()
        thread = threading.Thread(target=serve, args=(listener, login, asked))
        thread.start()
        with Client(directory=str(folder)) as client, pytest.raises(NotFoundError, match="no such"):
            client.job("train", deadline_s=SOON_S)
        thread.join()

    assert len(asked) == REFUSALS + 1
