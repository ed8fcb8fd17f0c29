import struct

import native_packets as packets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem import _native


def test_a_hello_is_read_field_by_field() -> None:
    decoded = _native.decode(packets.hello())

    assert isinstance(decoded, _native.Hello)
    assert (decoded.layout_min, decoded.layout_max, decoded.shim_version) == (1, 1, 0x000102)
    assert (decoded.clock, decoded.job_id) == (1, 42)
    assert decoded.device_uuids == [bytes(range(16))]
    asked = decoded.request
    assert (asked.job_class, asked.sm_percent, asked.preemptible) == (3, 50, 1)
    assert (asked.memory_bytes, asked.memory_min_bytes) == (1 << 30, 1 << 20)
    assert (asked.slo_p99_ns, asked.name, asked.group) == (10_000_000, "train-7", "")


def test_register_and_mapped_are_told_apart() -> None:
    registered = _native.decode(packets.register(command="größe\n".encode()))
    mapped = _native.decode(packets.mapped())

    assert isinstance(registered, _native.Register)
    assert registered.command == "größe\n"
    assert isinstance(mapped, _native.Mapped)


@pytest.mark.parametrize(
    ("packet", "words"),
    [
        (b"", "packet of 0 bytes is shorter than a header of 16"),
        (b"\0" * 5000, "packet of 5000 bytes is longer than 4096"),
        (packets.header(1, 16, magic=1), "magic is 0x00000001"),
        (packets.header(1, 16, version=2), "protocol version 2, this daemon speaks 1"),
        (packets.header(1, 16), "HELLO has 16 bytes, fewer than 472"),
        (packets.header(11, 16), "unknown message type 11"),
        (packets.header(9, 16), "SHARED has 16 bytes, fewer than 24"),
        (packets.header(10, 16), "USES has 16 bytes, fewer than 32"),
        (packets.shared(0), "SHARED: key is 0"),
        (packets.header(8, 16), r"type 8 \(REGISTERED\) is sent by the daemon"),
        (packets.hello()[:-1], "says it has 472 bytes, the packet has 471"),
        (packets.hello(device_uuids=(b"u" * 16,) * 17), "says it has|device_count is 17"),
        (packets.hello(body=packets.request(name=b"x" * 64)), "name is not terminated"),
        (
            packets.hello(body=packets.request(group=b"\xff")),
            r"group is not UTF-8 at byte 0 \(0xff",
        ),
        (packets.hello(body=packets.request(name=b"a\x1b[2J")), "control character 0x1b at byte 1"),
        (packets.hello(body=packets.request(job_class=4)), "job_class is 4, more than 3"),
    ],
)
def test_a_bad_packet_is_a_value_error_that_says_what(packet: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        _native.decode(packet)


@given(st.binary(max_size=600))
def test_random_bytes_never_decode(packet: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        _native.decode(packet)


@given(
    st.sampled_from([packets.hello(), packets.register(), packets.mapped()]),
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=8),
    st.integers(0, 40),
)
def test_a_damaged_packet_decodes_to_sane_values_or_not_at_all(
    packet: bytes, edits: list[tuple[int, int]], extra: int
) -> None:
    damaged = bytearray(packet + bytes(extra))
    damaged[8:12] = struct.pack("<I", len(damaged))
    for place, byte in edits:
        damaged[place % len(damaged)] = byte

    try:
        decoded = _native.decode(bytes(damaged))
    except ValueError:
        return
    if isinstance(decoded, _native.Mapped):
        return
    assert decoded.request.job_class <= 3
    assert decoded.request.sm_percent <= 100
    assert "\0" not in decoded.request.name + decoded.request.group
    if isinstance(decoded, _native.Hello):
        assert len(decoded.device_uuids) <= 16
        assert {len(uuid) for uuid in decoded.device_uuids} <= {16}


def test_welcome_has_the_layout_a_shim_expects() -> None:
    packet = _native.encode_welcome(process_id=7, job_id=3, clock=1)

    magic, version, kind, size, _, layout, clock, process, job, state_bytes = struct.unpack_from(
        "<IHHIIIIQQQ", packet
    )
    assert (magic, version, kind, size) == (packets.MAGIC, 1, packets.WELCOME, len(packet))
    assert (layout, clock, process, job) == (_native.LAYOUT_VERSION, 1, 7, 3)
    assert state_bytes == 7 * 4096 + 17 * 65536 + 512 * 1024


def test_the_other_answers_have_their_types_and_values() -> None:
    registered = _native.encode_registered(job_id=9)
    presence = _native.encode_presence(index=63, job_class=1)
    gone = _native.encode_presence(index=1, job_class=0, gone=True)
    refused = _native.encode_refused(code=3, reason="not your job")

    assert struct.unpack_from("<HI", registered, 6) == (packets.REGISTERED, 1064)
    assert struct.unpack_from("<Q", registered, 16) == (9,)
    assert struct.unpack_from("<HI", presence, 6) == (packets.PRESENCE, 24)
    assert struct.unpack_from("<II", presence, 16) == (63, 1)
    assert struct.unpack_from("<H", gone, 6) == (packets.PRESENCE_GONE,)
    assert refused[24:].rstrip(b"\0") == b"not your job"


@given(st.text(max_size=800))
def test_any_reason_fits_and_stays_text(reason: str) -> None:
    packet = _native.encode_refused(code=1, reason=reason)

    assert len(packet) == 536
    sent = packet[24:].split(b"\0")[0].decode()
    assert reason.split("\0")[0].startswith(sent)


@pytest.mark.parametrize(
    "call",
    [
        lambda: _native.encode_refused(code=0, reason=""),
        lambda: _native.encode_refused(code=9, reason=""),
        lambda: _native.encode_presence(index=64, job_class=0),
        lambda: _native.encode_presence(index=0, job_class=4),
        lambda: _native.encode_welcome(process_id=1, job_id=1, clock=2),
        lambda: _native.encode_welcome(process_id=1, job_id=1, clock=0, layout_version=2),
    ],
)
def test_an_answer_out_of_range_is_a_value_error(call) -> None:
    with pytest.raises(ValueError, match=r"not 1 to 8|more than"):
        call()
