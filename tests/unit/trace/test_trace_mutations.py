"""Reading any bytes as a recording terminates, with a recording or an error message."""

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recordings import TABLE, Thread, file_of, header

from tandem.dag import dot, html, json_form, perfetto
from tandem.dag.from_trace import from_trace
from tandem.dag.graph import graph_of
from tandem.dag.iterations import with_iterations
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
    """Does everything that is done with recordings, except playing them."""
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
    graph = graph_of(with_iterations(from_trace(recording, "x.trace")))
    for form in (dot, html, json_form, perfetto):
        text = io.StringIO()
        form.write(graph, text)
        if form in (json_form, perfetto):
            json.loads(text.getvalue())


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


MOST = 2**64 - 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda t: t.device(MOST, MOST),
        lambda t: t.call("cuMemAlloc_v2", 1, MOST, MOST, number=1).launch(
            number=2, stream=1, parameters=(MOST, 5)
        ),
        lambda t: t.call("cuMemAllocPitch_v2", 1, MOST, 1, MOST, MOST, MOST, 4, number=1),
        lambda t: t.call("cuMemcpyHtoD_v2", MOST, 9, MOST, number=1),
        lambda t: t.call("cuMemcpy3D_v2", *[MOST] * 16, number=1),
        lambda t: t.call("cuMemsetD2D32_v2", MOST, MOST, 7, MOST, MOST, number=1),
        lambda t: t.call("cuMemFree_v2", MOST, number=1),
        lambda t: t.launch(number=MOST, stream=MOST - 1, device_ns=MOST),
    ],
)
def test_numbers_that_no_program_has(damage):
    thread = Thread(time_ns=MOST - 10).function(sizes=(8, MOST >> 32))
    damage(thread)

    use(file_of(thread))


def test_the_unchanged_file_is_used_whole():
    assert len(parse(WHOLE).calls) == 4
    assert len(TABLE.calls) > 100
