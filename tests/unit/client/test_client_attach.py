"""REGISTER as `tandem run` packs it, checked against the contract in csrc/core/wire.h."""

import os
import re
import socket
import struct
from pathlib import Path

import pytest

from tandem import _attach
from tandem import _native as native
from tandem._attach import (
    Refused,
    Registered,
    Request,
    UntrustedError,
    decode_answer,
    encode_register,
)
from tandem.errors import UnavailableError

WIRE = (Path(__file__).parents[3] / "csrc/core/wire.h").read_text()
WHOLE = Request(
    priority="latency",
    memory_bytes=20 * 2**30,
    memory_min_bytes=2**30,
    memory_percent=40,
    wait_memory_ns=1_500_000_000,
    sm_percent=30,
    slo_p99_ns=50_000_000,
    preemptible=False,
    name="llama",
    group="serving",
    persistent_bytes=5 * 2**30,
    ephemeral_bytes=7 * 2**30,
    sm_count=40,
    isolation="mps+green",
    idle_release_ns=60_000_000_001,
)


def answer(kind, body, *, magic=_attach.MAGIC, version=1, size=None):
    size = 16 + len(body) if size is None else size
    return _attach.HEADER.pack(magic, version, kind, size, 0) + body


def test_numbers_are_those_of_the_header():
    def constant(name):
        return int(re.search(rf"{name} = (\w+);", WIRE)[1], 0)

    def member(name):
        return int(re.search(rf"\b{name} = (\d+)", WIRE)[1])

    assert constant("kMagic") == _attach.MAGIC
    assert constant("kProtocolVersion") == _attach.PROTOCOL_VERSION
    assert constant("kNameBytes") == _attach.NAME_BYTES
    assert constant("kCommandBytes") == _attach.COMMAND_BYTES
    assert constant("kEnvironmentBytes") == _attach.ENVIRONMENT_BYTES
    assert constant("kMaxMessageBytes") == _attach.MAX_MESSAGE_BYTES
    assert member("kRefused") == _attach.TYPE_REFUSED
    assert member("kRegister") == _attach.TYPE_REGISTER
    assert member("kRegistered") == _attach.TYPE_REGISTERED
    assert member("kIdentity") == _attach.REFUSED_IDENTITY
    assert member("kNoRoom") == _attach.REFUSED_NO_ROOM
    assert constant("kRegisterNoWait") == _attach.FLAG_NO_WAIT
    assert member("kUnfit") == _attach.REFUSED_UNFIT
    words = {"time": "kTime", "mps": "kMps", "mps+green": "kMpsGreen", "mig": "kMig"}
    assert {word: member(name) for word, name in words.items()} == _attach.ISOLATIONS


def test_sizes_are_those_of_the_header():
    sizes = dict(re.findall(r"sizeof\((\w+)\) == (\d+)\b(?! \+)", WIRE))

    assert _attach.HEADER.size == int(sizes["Header"])
    assert _attach.REQUEST.size == int(sizes["Request"])
    reason_bytes = int(re.search(r"kReasonBytes = (\d+)", WIRE)[1])
    registered = _attach.HEADER.size + _attach.REGISTERED.size + _attach.ENVIRONMENT_BYTES
    assert registered + reason_bytes == int(sizes["Registered"])
    assert _attach.HEADER.size + _attach.REFUSED.size + reason_bytes == int(sizes["Refused"])
    assert len(encode_register(Request(), command="")) == int(sizes["Register"])


def test_the_daemon_reads_what_we_write():
    packet = native.decode(encode_register(WHOLE, command="python serve.py", gpu="GPU-1"))

    assert isinstance(packet, native.Register)
    assert packet.command == "python serve.py"
    assert packet.request.job_class == 1
    assert packet.request.memory_bytes == WHOLE.memory_bytes
    assert packet.request.memory_min_bytes == WHOLE.memory_min_bytes
    assert packet.request.memory_percent == 40
    assert packet.request.wait_memory_s == 2  # in whole seconds, rounded up
    assert packet.request.sm_percent == 30
    assert packet.request.slo_p99_ns == 50_000_000
    assert packet.request.preemptible == 2
    assert (packet.request.name, packet.request.group) == ("llama", "serving")
    assert packet.promise == (WHOLE.persistent_bytes, WHOLE.ephemeral_bytes)
    assert (packet.space, packet.gpu) == ((40, 3), "GPU-1")
    assert packet.idle_release_s == 61


@pytest.mark.parametrize("flag", ["no_wait", "asks_again", "only_asks"])
def test_a_flag_says_one_thing(flag):
    packet = native.decode(encode_register(Request(**{flag: True}), command="x"))

    said = {name: getattr(packet, name) for name in ("no_wait", "asks_again", "only_asks")}
    assert said == dict.fromkeys(said, False) | {flag: True}


@pytest.mark.parametrize("no_wait", [True, False])
def test_whether_a_job_may_stand_in_line_is_said(no_wait):
    packet = encode_register(Request(no_wait=no_wait), command="x")

    assert native.decode(packet).no_wait is no_wait


def test_whoever_does_not_say_it_may_stand_in_line():
    older = encode_register(Request(no_wait=True), command="x")[: -_attach.FLAGS.size]
    resized = older[:8] + struct.pack("=I", len(older)) + older[12:]

    assert native.decode(resized).no_wait is False


def test_we_read_what_the_daemon_writes():
    assert decode_answer(native.encode_registered(job_id=0x7F3A)) == Registered(job_id=0x7F3A)
    less = native.encode_registered(job_id=7, job_class=2)
    assert decode_answer(less) == Registered(job_id=7, priority="normal")
    text = "CUDA_MPS_CLIENT_PRIORITY=1\nA=b=c"
    told = decode_answer(native.encode_registered(job_id=1, environment=text))
    assert told.environment == {"CUDA_MPS_CLIENT_PRIORITY": "1", "A": "b=c"}
    assert told.told == ()
    noted = decode_answer(native.encode_registered(job_id=1, environment=text, told="a\nb"))
    assert (noted.environment, noted.told) == (told.environment, ("a", "b"))
    refused = native.encode_refused(code=4, reason="no room")
    assert decode_answer(refused) == Refused(code=4, reason="no room")


def test_a_reason_of_several_sentences_arrives_whole():
    reason = "mode mps+green is not available on gpu 0, " * 10 + "see `tandem doctor`"

    assert decode_answer(native.encode_refused(code=7, reason=reason)).reason == reason


def test_an_older_daemon_says_less():
    packet = answer(_attach.TYPE_REFUSED, _attach.REFUSED.pack(4, 0) + b"no room".ljust(160, b"\0"))

    assert decode_answer(packet) == Refused(code=4, reason="no room")


def test_what_was_not_said_is_zero():
    packet = encode_register(Request(), command="")

    assert set(packet[_attach.HEADER.size :]) == {0}


def test_bytes_of_a_command_that_are_no_text_keep_no_job_from_starting():
    packet = encode_register(Request(), command="cat a\udcff", gpu="\udcff")

    told = native.decode(packet)
    assert (told.command, told.gpu) == ("cat a?", "?")


def test_a_long_command_is_cut_between_characters():
    packet = encode_register(Request(), command="ä" * 200)

    behind = _attach.PROMISE.size + _attach.SPACE.size + _attach.FLAGS.size
    command = packet[:-behind][-_attach.COMMAND_BYTES :].rstrip(b"\0")
    assert command.decode() == "ä" * 127


def test_a_newer_daemon_may_say_more():
    longer = answer(_attach.TYPE_REGISTERED, _attach.REGISTERED.pack(7, 0) + b"more")

    assert decode_answer(longer) == Registered(job_id=7)


@pytest.mark.parametrize(
    ("packet", "complaint"),
    [
        (b"", "closed the connection"),
        (b"short", "closed the connection"),
        (b"x" * 40, "another protocol"),
        (answer(8, _attach.REGISTERED.pack(7, 0), version=2), r"another protocol \(version 2\)"),
        (answer(8, _attach.REGISTERED.pack(7, 0), size=999), "another protocol"),
        (answer(8, b""), "unexpected answer"),
        (answer(6, b"\0" * 10), "unexpected answer"),
        (answer(2, b"\0" * 64), r"unexpected answer \(type 2\)"),
    ],
)
def test_garbage_is_no_answer(packet, complaint):
    with pytest.raises(UnavailableError, match=complaint):
        decode_answer(packet)


def test_a_reason_of_any_bytes_is_text():
    packet = answer(6, _attach.REFUSED.pack(4, 0) + b"\xff\xfe full".ljust(160, b"\0"))

    assert decode_answer(packet).reason.endswith(" full")


def test_nobody_there_is_unavailable(tmp_path):
    with pytest.raises(UnavailableError, match="No such file"):
        _attach.register(tmp_path / "attach.sock", Request(), command="x")


@pytest.mark.parametrize(
    ("folder", "owner", "is_trusted"),
    [("/tmp", 0, True), ("/tmp", 1000, True), ("/tmp", 1001, False), ("/run/tandem", 1001, True)],
)
def test_in_a_directory_of_everybodys_only_ones_own_daemon_and_roots_are_trusted(
    folder, owner, is_trusted, monkeypatch
):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    path = Path(folder) / "lab/attach.sock"
    if is_trusted:
        _attach._check_owner(path, owner)
        return
    with pytest.raises(UntrustedError, match="the daemon belongs to uid 1001, and in /tmp only"):
        _attach._check_owner(path, owner)


def test_a_path_too_long_for_a_socket_is_unavailable(tmp_path):
    with pytest.raises(UnavailableError, match="too long"):
        _attach.register(tmp_path / ("x" * 120), Request(), command="x")


class Hasty:
    """A connection whose peer says something and hangs up, before or after we send."""

    def __init__(self, ours, other, said, *, is_before):
        self._ours, self._other = ours, other
        self._said, self._is_before = said, is_before

    def _hang_up(self):
        if self._said:
            self._other.send(self._said)
        self._other.close()

    def send(self, packet):
        if self._is_before:
            self._hang_up()
        self._ours.send(packet)
        if not self._is_before:
            self._hang_up()  # without having read what we sent

    def recv(self, size):
        return self._ours.recv(size)


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("said", [b"no room", b""])
def test_who_hangs_up_before_it_has_read_anything_is_heard(said, is_before):
    ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, other:
        connection = Hasty(ours, other, said, is_before=is_before)

        assert _attach._exchange(connection, b"REGISTER") == said
