"""What the helper may be asked and by whom: it refuses all else, and logs that."""

import os
import socket
import struct
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tandem import _helper
from tandem.errors import (
    AccessError,
    BugError,
    CapacityError,
    DeadlineError,
    StateError,
    UnavailableError,
    UsageError,
)
from tandemd.core.space.layouts import Cut, Layout, Part
from tandemd.edges.checkpoint_driver import CheckpointDriver
from tandemd.edges.helper import Helper, find_helper
from tandemd.helper import wire
from tandemd.helper.service import ENOUGH, MOST_CONNECTIONS, Service
from tandemd.helper.verbs import Verbs
from tandemd.helper.wire import Answer, CutGpu, Hello

UUID = "GPU-5f9b8cd0-1111-2222-3333-444455556666"
DEADLINE_S = 30
CUT = b'{"verb":"cut-gpu","gpu":"%s","profiles":%s}'


def say(path, *messages, descriptors=()):
    """Return the answer to one connection that sends these messages."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(DEADLINE_S)
        connection.connect(str(path))
        for message in messages:
            socket.send_fds(connection, [message], descriptors)
        return msgspec.json.decode(connection.recv(_helper.MOST_BYTES))


class Serving:
    """A helper that records what it is asked to do, and its log."""

    def __init__(self, path):
        self.path = path
        self.asked = []
        self.answers = {}  # by class of question: its answer, or what it raises

    def do(self, question, descriptors):
        self.asked.append((question, len(descriptors)))
        answer = self.answers.get(type(question), Answer())
        if isinstance(answer, Exception):
            raise answer
        return answer

    def start(self, *uids):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(self.path))
        listener.listen()
        self.service = Service(listener, uids=frozenset(uids or (os.geteuid(),)), do=self.do)
        threading.Thread(target=self.service.run, daemon=True).start()
        return self


@pytest.fixture
def serving(tmp_path):
    with capture_logs() as said:
        made = Serving(tmp_path / "s")
        made.said = said
        yield made


def refused_of(said):
    return [line["reason"] for line in said if line["event"] == "refused"]


def test_a_question_is_done_answered_and_logged(serving):
    cut = Cut(destroyed=(), created=(Part(profile="3g.71gb", name="0:1"),), is_done=True)
    serving.answers[CutGpu] = Answer(cut=cut)
    serving.start()

    told = Helper(serving.path).cut(Layout(gpu=UUID, profiles=("3g.71gb", "1g.18gb+me")))

    assert told == cut
    assert serving.asked == [(CutGpu(gpu=UUID, profiles=("3g.71gb", "1g.18gb+me")), 0)]
    (line,) = serving.said
    assert line == {
        "event": "done",
        "log_level": "info",
        "verb": "cut-gpu",
        "gpu": UUID,
        "profiles": "3g.71gb,1g.18gb+me",
        "uid": os.geteuid(),
        "pid": os.getpid(),
    }


def test_whoever_is_of_another_uid_is_refused_whatever_is_said(serving):
    serving.start(4242)

    answer = say(serving.path, b'{"verb":"hello"}')

    assert answer["kind"] == "AccessError"
    assert answer["problem"] == f"uid {os.geteuid()} may not ask; these uids may: 4242"
    assert (serving.asked, refused_of(serving.said)) == ([], [answer["problem"]])


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "Input data was truncated"),
        (b"mps start", "JSON is malformed"),
        (b'"hello"', "Expected `object`"),
        (b"{}", "missing required field `verb`"),
        (b'{"verb":"run"}', "Invalid value 'run'"),
        (b'{"verb":"hello","path":"/etc"}', "contains unknown field `path`"),
        (b'{"verb":"cut-gpu","gpu":"%s"}' % UUID.encode(), "missing required field `profiles`"),
        (b'{"verb":"checkpoint","call":"Kill"}', "Invalid enum value 'Kill'"),
        (b'{"verb":"checkpoint","call":"Lock","pid":1}', "contains unknown field `pid`"),
        (CUT % (b"0", b"[]"), "matching regex"),
        (CUT % (b"GPU-1", b"[]"), "matching regex"),
        (CUT % (UUID.encode() + b"\\n", b"[]"), "length <= 40"),
        (CUT % (UUID.upper().encode(), b"[]"), "matching regex"),
        (CUT % (UUID.encode(), b'["3g.71gb;reboot"]'), "matching regex"),
        (CUT % (UUID.encode(), b'["3g.71gb\\n"]'), "matching regex"),
        (CUT % (UUID.encode(), b'["../x"]'), "matching regex"),
        (CUT % (UUID.encode(), b"[3]"), "Expected `str`"),
        (CUT % (UUID.encode(), b"[%s]" % b",".join([b'"1g.18gb"'] * 8)), "length <= 7"),
    ],
)
def test_what_is_no_question_is_refused(message, why):
    with pytest.raises(UsageError, match="the message is not a valid question") as refusal:
        wire.read_question(message)

    assert why in str(refusal.value)


@given(
    st.one_of(
        st.binary(max_size=200),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=20),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["verb", "gpu", "gpus", "call", "a"]), inner)
            ),
        ).map(msgspec.json.encode),
    )
)
@example(b'{"a":' + b"[" * 2000 + b"]" * 2000 + b',"verb":"hello"}')
def test_whatever_comes_is_a_question_that_is_one_or_refused(message):
    try:
        question = wire.read_question(message)
    except UsageError:
        return

    assert wire.read_question(wire.encode(question)) == question


def test_a_message_that_is_too_long_is_refused(serving):
    serving.start()
    question = b'{"verb":"hello"' + b" " * _helper.MOST_BYTES + b"}"

    answer = say(serving.path, question)

    assert answer["problem"] == f"the message has more than {_helper.MOST_BYTES} bytes"
    assert serving.asked == []


def test_several_messages_at_once_are_refused_and_none_is_done(serving, monkeypatch):
    gate = threading.Event()
    check = Service._check
    monkeypatch.setattr(
        Service, "_check", lambda self, peer: (gate.wait(DEADLINE_S), check(self, peer))[1]
    )
    serving.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(str(serving.path))
        for _ in range(2):
            connection.send(b'{"verb":"hello"}')
        gate.set()
        answer = msgspec.json.decode(connection.recv(_helper.MOST_BYTES))

    assert "several messages came at once" in answer["problem"]
    assert serving.asked == []


@pytest.mark.parametrize("count", [2, ENOUGH + 1])
def test_descriptors_that_nobody_asked_for_are_refused_and_closed(serving, count):
    serving.start()
    read, write = os.pipe()

    answer = say(serving.path, b'{"verb":"hello"}', descriptors=[write] * count)

    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b""  # the other end is closed
    assert "more than one descriptor" in answer["problem"]
    assert serving.asked == []


def test_one_who_says_nothing_is_let_go(serving, monkeypatch):
    monkeypatch.setattr("tandemd.helper.service.HEAR_S", 0.05)
    serving.start()

    answer = say(serving.path)

    assert answer["problem"] == "no question came within 0.05 s"


def test_too_many_at_a_time_are_refused(serving):
    serving.start()
    serving.service._open = MOST_CONNECTIONS

    answer = say(serving.path, b'{"verb":"hello"}')

    assert answer["kind"] == "CapacityError"
    assert serving.asked == []


@pytest.mark.parametrize("error", [StateError("in use", reason="GPU_IN_USE"), CapacityError("no")])
def test_an_error_of_the_helper_is_the_daemons(serving, error):
    serving.answers[CutGpu] = error
    serving.start()

    with pytest.raises(type(error), match=str(error)) as caught:
        Helper(serving.path).cut(Layout(gpu=UUID, profiles=()))

    assert caught.value.reason == error.reason
    assert refused_of(serving.said) == [str(error)]


def test_a_mistake_of_the_helper_is_a_bug_and_its_words_stay_in_the_log(serving):
    serving.answers[CutGpu] = ZeroDivisionError("secret")
    serving.start()

    with pytest.raises(BugError, match="its log says why"):
        Helper(serving.path).cut(Layout(gpu=UUID, profiles=()))

    assert [line["event"] for line in serving.said] == ["failed"]


@pytest.fixture
def held(serving):
    """Holds a connection in the middle of its answer until the gate is set."""
    begun, gate = threading.Event(), threading.Event()

    def do(_question, _descriptors):
        begun.set()
        assert gate.wait(DEADLINE_S)
        return Answer()

    serving.do = do
    serving.start()
    asking = threading.Thread(target=say, args=(serving.path, b'{"verb":"hello"}'))
    asking.start()
    assert begun.wait(DEADLINE_S)
    yield SimpleNamespace(gate=gate)
    gate.set()
    asking.join(DEADLINE_S)
    assert not asking.is_alive()


def test_it_ends_only_when_nobody_was_there_for_long_enough(serving, held):
    assert not serving.service.close()
    held.gate.set()
    serving.service.finish(DEADLINE_S)

    assert not serving.service.close(idle_s=3600)
    assert serving.service.close()


def test_it_is_still_there_when_it_did_not_end(serving):
    serving.start()

    assert not serving.service.close(idle_s=3600)
    say(serving.path, b'{"verb":"hello"}')


def test_at_its_end_it_waits_for_answers_that_are_on_their_way(serving, held):
    serving.service.finish(0.01)  # the answer may take longer than this
    finished = threading.Thread(target=serving.service.finish, args=(DEADLINE_S,))
    finished.start()
    assert finished.is_alive()

    held.gate.set()

    finished.join(DEADLINE_S)
    assert not finished.is_alive()


def test_it_does_not_end_while_somebody_is_in_line(tmp_path):
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as early,
    ):
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        early.connect(str(tmp_path / "s"))
        service = Service(listener, uids=frozenset(), do=None)

        assert not service.close()
        service._listener.accept()[0].close()
        assert service.close()


def test_hello_says_the_version_and_takes_nothing_with_it():
    verbs = Verbs(CheckpointDriver(), None)
    assert verbs.do(Hello(), ()).version
    with pytest.raises(UsageError, match="hello takes no descriptor"):
        verbs.do(Hello(), (0,))


def test_a_daemon_of_root_needs_none_and_one_that_is_not_there_is_not_asked(tmp_path):
    assert find_helper({}, uid=0) is None
    path = tmp_path / "nobody"
    helper = find_helper({"TANDEM_HELPER": str(path)}, uid=1000)
    assert not helper.is_there

    with pytest.raises(UnavailableError, match="cannot reach tandemd-helper"):
        helper.cut(Layout(gpu=UUID, profiles=()))
    path.write_text("")
    assert not helper.is_there  # a file that is no socket


def test_one_that_serves_another_user_is_none(serving, monkeypatch):
    serving.start()
    helper = Helper(serving.path)
    assert helper.is_there

    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    assert not helper.is_there


def test_one_that_does_not_answer_is_given_up_after_the_deadline(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()

        with pytest.raises(DeadlineError, match=r"did not answer in 0\.01 s"):
            _helper.exchange(tmp_path / "s", b"", timeout_s=0.01)


@pytest.mark.parametrize(("uid", "is_believed"), [(0, True), (1000, True), (1001, False)])
def test_one_of_neither_root_nor_our_own_user_is_not_believed(monkeypatch, uid, is_believed):
    peer = SimpleNamespace(getsockopt=lambda *_: struct.pack("3i", 1, uid, uid))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with (
        nullcontext()
        if is_believed
        else pytest.raises(AccessError, match="neither root nor this user")
    ):
        _helper._check_owner(peer, "/s")
