"""Recordings: what is written can be read, and anything else is refused with a message."""

import json

import pytest
from recordings import PID, VADD, Thread, end, file_of, header, recording_of

from tandem.errors import NotFoundError, UsageError
from tandem.trace.file import parse, read
from tandem.trace.records import RECORD_BYTES, DamagedError


def vadd():
    return (
        Thread()
        .call("cuMemAlloc_v2", 0x10, 0x7F00, 4096, number=1)
        .function()
        .launch(number=2, stream=0x55, device_ns=12288)
        .call("cuMemAlloc_v2", 0x10, 0, 1 << 50, number=3, result=2)
    )


def test_calls_have_their_arguments_results_and_times():
    recording = recording_of(vadd())
    alloc, launch, refused = recording.calls

    assert (alloc.type.base, alloc.pid, alloc.start_ns, alloc.duration_ns) == (
        "cuMemAlloc",
        PID,
        1000,
        10,
    )
    assert alloc.words == (0x10, 0x7F00, 4096)
    assert launch.function.name == "vadd"
    assert launch.function.parameters == ((0, 8), (8, 4))
    assert (launch.stream, launch.device_ns) == (0x55, 12288)
    assert (refused.result, refused.failed, alloc.failed) == (2, True, False)
    assert recording.is_complete


def test_calls_of_several_threads_are_in_the_order_in_which_they_began():
    first, second = Thread(tid=1), Thread(tid=2)
    first.call("cuCtxSynchronize", number=1).call("cuCtxSynchronize", number=4)
    second.call("cuCtxSynchronize", number=2).call("cuCtxSynchronize", number=3)

    calls = recording_of(first, second).calls

    assert [call.tid for call in calls] == [1, 2, 2, 1]


def test_a_function_is_that_of_its_thread_and_time():
    first = Thread(tid=1).function(name=b"old").launch(number=1, stream=1)
    first.function(name=b"new").launch(number=2, stream=1)
    second = Thread(tid=2).launch(number=3, stream=1)

    calls = recording_of(first, second).calls

    assert [call.function and call.function.name for call in calls] == ["old", "new", None]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_device_time_may_come_from_another_thread_and_before_its_call(swapped):
    words = (VADD, 1, 1, 1, 32, 1, 1, 0, 1, 0, 0)
    launching = Thread(tid=1).call("cuLaunchKernel", *words, number=1, stream=1, flags=4)
    waiting = Thread(tid=2).device_time(number=1, device_ns=77)
    threads = (waiting, launching) if swapped else (launching, waiting)

    (call,) = recording_of(*threads).calls

    assert call.device_ns == 77


def test_a_long_name_takes_several_records():
    name = b"_Z" + b"x" * 500
    (call,) = recording_of(Thread().function(name=name).launch(number=1, stream=1)).calls

    assert call.function.name == name.decode()


@pytest.mark.parametrize("cut", [1, 63, 64, 200, 320])
def test_a_file_that_ends_early_has_what_came_before(cut):
    whole = file_of(vadd(), finish=False)

    recording = parse(whole[:-cut])

    assert not recording.is_complete
    assert [c.number for c in recording.calls] == [1, 2, 3][: len(recording.calls)]
    assert len(recording.calls) >= 1


def test_lost_calls_are_counted():
    assert recording_of(Thread().lost(7)).lost == 7
    assert parse(header() + end(lost=9)).lost == 9


def test_what_follows_the_end_is_not_read():
    assert parse(file_of(vadd()) + b"\xff" * 640).is_complete


def changed_header(**changes):
    value = json.loads(header()) | changes
    return json.dumps(value).encode() + b"\n"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is not a recording of `tandem trace calls`: it has no header line"),
        (b"\x7fELF\n", "is not a recording of `tandem trace calls`: its first line is not JSON"),
        (b'{"a": 1}\n', "is not a recording of `tandem trace calls`: its header does not say so"),
        (b"[" * 100_000 + b"\n", "its first line is not JSON"),
        (changed_header(version=2), "is a recording of version 2 .* this tandem reads version 1"),
        (changed_header(calls=[{}]), "' has a table of calls in which 'parameters' is missing"),
        (changed_header(calls=[1]), "' has a table of calls in which a value is of another type"),
        (changed_header(enums=[]), "' has a table of calls in which a value is of another type"),
        (
            changed_header(enums={"CUresult": {"x": "y"}}),
            "' has a table of calls that is wrong: invalid literal",
        ),
        (changed_header(command="x"), "has a header without the command or the time"),
        (changed_header(started_unix_s=10**400), "has a header without the command or the time"),
    ],
)
def test_what_is_no_recording_is_refused_in_words(data, words, tmp_path):
    path = tmp_path / "x.trace"
    path.write_bytes(data)

    with pytest.raises(UsageError, match=words) as error:
        read(path)

    assert str(error.value).startswith(f"'{path}'")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(NotFoundError, match=r"there is no recording '.*none.trace'"):
        read(tmp_path / "none.trace")


@pytest.mark.parametrize(
    ("record", "field", "value", "words"),
    [
        (0, 8, 3, "has kind 3 where a chunk begins"),
        (1, 8, 77, "has kind 77"),
        (3, 11, 255, r"is of call 65\d+; there are"),
        (3, 40, 97, "has 97 words and 0 bytes of text"),
        (3, 40, 1, "has 1 words for cuMemAlloc_v2, which takes 3"),
        (4, 8, 17, "has kind 17 where 16 continues a call"),
    ],
)
def test_a_damaged_record_is_named(record, field, value, words, tmp_path):
    data = bytearray(file_of(vadd()))
    data[len(header()) + record * RECORD_BYTES + field] = value
    path = tmp_path / "x.trace"
    path.write_bytes(data)

    with pytest.raises(DamagedError, match=words) as error:
        parse(bytes(data))
    with pytest.raises(UsageError, match=rf"'{path}' is damaged: record {record} {words}"):
        read(path)

    assert error.value.record == record


def test_the_handle_of_a_launch_is_that_of_its_function():
    (call,) = recording_of(Thread().function().launch(number=1, stream=1)).calls

    assert call.type.value(call.words, "f") == VADD == call.function.handle
