"""Whatever the bytes of a recording are, reading it ends, with a recording or in words."""

from hypothesis import given, settings
from hypothesis import strategies as st
from recordings import TABLE, Thread, file_of, header

from tandem.trace.chrome import events
from tandem.trace.file import parse
from tandem.trace.lines import Printer
from tandem.trace.plan import make_plan
from tandem.trace.summary import summarise

WHOLE = file_of(
    Thread()
    .call("cuMemAlloc_v2", 0x10, 0x7F00, 4096, number=1)
    .function()
    .launch(number=2, stream=0x55, device_ns=12288)
    .call("cuGetProcAddress", 1, 2, 3, 4, 5, number=3, text=b"cuInit"),
    Thread(tid=7).call("cuEventRecord", 0x44, 0x55, number=4, stream=0x55).lost(3),
)
BODY = len(header())
PLACES = st.integers(BODY, len(WHOLE) - 1)


def use(data):
    """Everything that is done with recordings, but to play them."""
    try:
        recording = parse(data)
    except ValueError:
        return
    table = recording.header.table
    for call in recording.calls:
        Printer(table).line(call)
        Printer(table, as_json=True).line(call)
    list(events(recording))
    summarise(recording.calls).lines()
    make_plan(recording)


@settings(max_examples=60)
@given(st.lists(st.tuples(PLACES, st.integers(0, 255)), min_size=1, max_size=8))
def test_changed_bytes_of_records(changes):
    data = bytearray(WHOLE)
    for place, value in changes:
        data[place] = value

    use(bytes(data))


@given(st.integers(0, len(WHOLE)), st.binary(max_size=200))
def test_cut_and_continued_with_garbage(length, rest):
    use(WHOLE[:length] + rest)


@given(st.lists(st.tuples(st.integers(0, BODY - 2), st.integers(32, 126)), max_size=4))
def test_changed_letters_of_the_header(changes):
    data = bytearray(WHOLE)
    for place, value in changes:
        data[place] = value

    use(bytes(data))


def test_the_unchanged_file_is_used_whole():
    assert len(parse(WHOLE).calls) == 4
    assert len(TABLE.calls) > 100
