"""A client of the software GPU's MPS, without a GPU."""

import socket

PATIENCE_S = 20


def client_of(place):
    """What the driver of the software GPU says to a control daemon, and its answer."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(PATIENCE_S)
    connection.connect(str(place / "control"))
    connection.send(b"client")
    assert connection.recv(512).startswith(b"ok ")
    return connection
