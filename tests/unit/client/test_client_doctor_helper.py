"""What `tandem doctor` says about the helper."""

import os
import socket
import threading
from contextlib import ExitStack

import pytest

from tandem import _helper
from tandem._doctor_helper import Verdict, verdict

US, OTHER = 1000, 1001


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Return the verdict for these owners of the daemon's and helper's sockets; None: none."""
    monkeypatch.setattr(os, "geteuid", lambda: US)

    def look(daemon, helper):
        owners = {tmp_path / "attach": daemon, tmp_path / "helper": helper}
        monkeypatch.setattr(_helper, "owner_of", owners.get)
        return verdict(tmp_path / "attach", {_helper.VARIABLE: str(tmp_path / "helper")})

    return look


def test_where_there_is_neither_daemon_nor_helper_nothing_is_said(told):
    assert told(None, None) is None


@pytest.mark.parametrize("helper", [None, OTHER])
def test_a_daemon_of_root_needs_none(told, helper):
    assert told(0, helper) == Verdict(text="not needed: the daemon runs as root")


def test_without_one_it_says_what_is_missing_and_how_to_have_it(told):
    found = told(OTHER, None)

    assert not found.is_wrong
    assert found.text.startswith("there is none: no mps for other users, ")
    assert found.text.endswith(" with a daemon of uid 1001")
    assert "systemctl enable --now tandemd-helper.socket" in found.remedy


def test_one_that_serves_another_user_is_of_no_use(told):
    found = told(OTHER, US)

    assert found.is_wrong
    assert found.text.endswith("is for uid 1000, but the daemon runs as uid 1001")


def test_whom_it_does_not_serve_sees_only_that_it_is_there(told):
    found = told(OTHER, OTHER)

    assert not found.is_wrong
    assert found.text.endswith("for uid 1001; only root can see whether it answers")


@pytest.mark.parametrize(
    ("answer", "says", "is_wrong"),
    [
        (b'{"version":"1.2"}', "version 1.2 answers on", False),
        (b"[]", "", True),
        (b"?", "", True),
        (b"", "ended without an answer", True),
    ],
)
def test_whom_it_serves_hears_whether_it_answers(
    told, tmp_path, monkeypatch, answer, says, is_wrong
):
    with ExitStack() as opened:
        listener = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listener.bind(str(tmp_path / "helper"))
        listener.listen()

        def serve():
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(_helper.MOST_BYTES) == b'{"verb":"hello"}'
                connection.send(answer)

        monkeypatch.setattr(_helper, "_check_owner", lambda *_: None)
        serving = threading.Thread(target=serve)
        serving.start()
        opened.callback(serving.join)
        found = told(US, US)

    assert (says in found.text, found.is_wrong) == (True, is_wrong)
