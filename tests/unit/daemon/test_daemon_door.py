"""Whoever can see the socket of a door gets in."""

import selectors
import socket
import stat

from tandemd.edges.door import Door


def test_a_socket_has_its_name_only_once_it_listens(tmp_path, monkeypatch):
    path, seen, listen = tmp_path / "a.sock", [], socket.socket.listen

    def look_first(listener, backlog):
        seen.append(path.exists())
        listen(listener, backlog)

    monkeypatch.setattr(socket.socket, "listen", look_first)
    with selectors.DefaultSelector() as selector:
        door = Door(path, kind=socket.SOCK_STREAM, backlog=1, selector=selector, data=None)

        with socket.socket(socket.AF_UNIX) as newcomer:
            newcomer.connect(str(path))
        door.close()
    assert seen == [False]
    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    assert list(tmp_path.iterdir()) == [path]
