"""A daemon that does not know a call of its client."""

import shutil
import socket
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from tandem._client import Client
from tandem.errors import StateError


@pytest.fixture
def ancient():
    """Return the runtime directory of a daemon that knows no calls at all."""
    folder = Path(tempfile.mkdtemp(prefix="tandem-"))
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_insecure_port(f"unix:{folder / 'tandemd.sock'}")
    server.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as login:
        login.bind(str(folder / "login.sock"))
        login.listen()
        taken = []

        def take():
            taken.append(login.accept()[0])
            taken[0].sendall(b"0" * 64 + b"\n")

        thread = threading.Thread(target=take)
        thread.start()
        yield folder
        thread.join()
        taken[0].close()
    server.stop(None).wait()
    shutil.rmtree(folder)


def test_an_older_daemon_is_said_to_be_one(ancient):
    with Client(directory=str(ancient)) as client:
        with pytest.raises(
            StateError, match="is older than this client and cannot do that; "
        ) as it:
            client.cancel("train", deadline_s=20)
        assert it.value.reason == "OLDER_DAEMON"
        with pytest.raises(StateError, match="is older than this client"):
            next(client.watch(deadline_s=20))
