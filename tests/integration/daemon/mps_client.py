"""A client of the software GPU's MPS that needs no GPU."""

import socket

PATIENCE_S = 20


def client_of(place):
    """Say to a control daemon what the software GPU's driver says, and check its answer."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(PATIENCE_S)
    connection.connect(str(place / "control"))
    connection.send(b"client")
    assert connection.recv(512).startswith(b"ok ")
    return connection
