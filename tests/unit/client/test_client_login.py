"""The login socket; the test plays the daemon."""

import socket
import threading
from contextlib import ExitStack, suppress

import pytest

from tandem._login import Login
from tandem.errors import DeadlineError, UnavailableError

FOREVER_S = 3600.0


@pytest.fixture
def listener(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # pytest's folders are too long for a socket address
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("login.sock")
        listener.listen()
        yield listener


def connect(listener, *parts, timeout_s=FOREVER_S):
    """Return a login and the daemon's end of it, which has sent `parts`."""
    ends = []

    def serve():
        end, _ = listener.accept()
        for part in parts:
            end.send(part)
        ends.append(end)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        login = Login(listener.getsockname(), timeout_s=timeout_s)
    finally:
        thread.join()
        if not parts[-1].endswith(b"\n"):
            ends[0].close()
    return login, ends[0]


@pytest.fixture
def logged_in(listener):
    login, end = connect(listener, b"abc", b"def\n")
    yield login, end
    login.close()
    end.close()


def test_the_token_is_one_line_however_it_arrives(logged_in):
    assert logged_in[0].token == "abcdef"


def test_looking_after_a_login_never_waits(logged_in):
    login, _ = logged_in

    assert login.alive()  # although its timeout is an hour


def test_a_login_is_dead_once_the_daemon_hung_up(logged_in):
    login, end = logged_in

    end.close()

    assert not login.alive()


def test_a_closed_login_is_dead(logged_in):
    logged_in[0].close()

    assert not logged_in[0].alive()


def test_closing_tells_the_daemon(logged_in):
    login, end = logged_in

    login.close()

    assert end.recv(1) == b""


def test_a_token_without_end_is_refused(listener):
    with pytest.raises(
        UnavailableError, match=r"without a token: it is stopping, is .* too many clients"
    ):
        connect(listener, b"x" * 2000)


def test_a_daemon_that_says_nothing_is_too_slow(listener):
    with pytest.raises(DeadlineError, match=r"within 0\.05 s"):
        Login(listener.getsockname(), timeout_s=0.05)


def test_a_place_in_a_line_that_is_full_is_waited_for(listener):
    listener.listen(0)
    with ExitStack() as line:
        with suppress(BlockingIOError):
            while True:
                waiting = line.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                waiting.settimeout(0)
                waiting.connect(listener.getsockname())

        with pytest.raises(DeadlineError, match=r"within 0\.05 s"):
            Login(listener.getsockname(), timeout_s=0.05)


def test_nobody_listening_is_unavailable(tmp_path):
    with pytest.raises(UnavailableError, match="No such file"):
        Login(tmp_path / "x", timeout_s=FOREVER_S)


def test_a_path_too_long_is_said_before_connecting(tmp_path):
    with pytest.raises(UnavailableError, match="too long for a socket; set TANDEM_RUNTIME_DIR"):
        Login(tmp_path / ("x" * 120), timeout_s=FOREVER_S)
