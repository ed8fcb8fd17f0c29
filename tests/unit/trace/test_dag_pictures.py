"""Graphs laid out and drawn."""

import io
import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from programs import diamond, loop
from recordings import Thread, header, recording_of

from tandem._native import EdgeKind
from tandem.dag import drawing, html, limits, perfetto, svg
from tandem.dag.boxes import Ties, boxes_of
from tandem.dag.from_trace import from_trace
from tandem.dag.graph import graph_of
from tandem.dag.iterations import with_iterations
from tandem.dag.stats import stats_of
from tandem.errors import UsageError
from tandem.trace.file import parse

FREE = Ties(entered=frozenset(), left=frozenset())
NAMESPACE = "{http://www.w3.org/2000/svg}"


def graph(thread, iteration=None):
    return graph_of(with_iterations(from_trace(recording_of(thread), "x.trace")), iteration)


def text(form, graph):
    file = io.StringIO()
    form.write(graph, file)
    return file.getvalue()


def labels(names, ties=FREE):
    return [box.label for box in boxes_of(range(len(names)), names, ties)]


def test_a_chain_of_the_same_is_one_box():
    assert labels(["a", "b", "b", "b", "c", "c"]) == ["a", "3 \u00d7 b", "c", "c"]


def test_what_another_stream_waits_for_ends_a_chain_and_what_waits_begins_one():
    names = ["a"] * 9

    assert labels(names, Ties(left=frozenset({3}), entered=frozenset())) == [
        "4 \u00d7 a",
        "5 \u00d7 a",
    ]
    assert labels(names, Ties(left=frozenset(), entered=frozenset({3}))) == [
        "3 \u00d7 a",
        "6 \u00d7 a",
    ]


def test_a_pattern_that_repeats_is_one_box_where_there_are_many():
    layer = ["norm", "gemm", "gemm", "gemm", "add"]

    assert labels(layer * 3) == ["norm", "3 \u00d7 gemm", "add"] * 3
    boxes = boxes_of(range(50), layer * 10, FREE)
    assert [box.label for box in boxes] == ["10 \u00d7 (norm, 3 \u00d7 gemm, add)"]
    assert boxes[0].nodes == tuple(range(50))


def test_every_node_is_in_one_box_of_its_lane():
    drawn = drawing.draw(graph(loop(5)))

    nodes = [node for placed in drawn.boxes for node in placed.box.nodes]
    assert sorted(nodes) == list(range(110))


def test_a_diamond_is_drawn_with_its_critical_path():
    drawn = drawing.draw(graph(diamond()))

    assert drawn.lanes == ("stream 1", "stream 2")
    hot = {placed.box.nodes[0] for placed in drawn.boxes if placed.is_critical}
    assert {0, 4, 7} <= hot
    assert 3 not in hot  # the shorter branch
    across = [(edge.kind, edge.is_critical) for edge in drawn.edges]
    assert across == [(EdgeKind.EVENT, True)] * 2
    by_node = {placed.box.nodes[0]: placed for placed in drawn.boxes}
    assert by_node[4].end_ns - by_node[4].start_ns == 3000
    assert by_node[7].start_ns >= by_node[4].end_ns


def test_without_times_every_operation_is_as_long_as_the_next():
    drawn = drawing.draw(graph(loop(1)))

    assert not drawn.is_timed
    assert drawn.length_ns == 22


def test_many_boxes_are_drawn_as_one_where_they_are_close(monkeypatch):
    monkeypatch.setattr(drawing, "_MOST_BOXES", 6)
    whole = graph(loop(5))
    drawn = drawing.draw(whole)

    assert len(drawn.boxes) <= 6
    assert any("is drawn as one" in note for note in drawn.notes)
    assert sum(len(placed.box.nodes) for placed in drawn.boxes) == len(whole)
    notes = ElementTree.fromstring(text(svg, whole)).findall(f"{NAMESPACE}text[@class='note']")
    assert [note.text for note in notes] == list(drawn.notes)


def test_what_is_too_large_for_a_picture_is_refused(monkeypatch):
    monkeypatch.setitem(limits._MOST, "svg", ("a picture", 7))

    with pytest.raises(UsageError, match="has 8 operations there, but a picture takes at most 7"):
        drawing.draw(graph(diamond()))


def test_an_svg_is_xml_with_a_box_for_each_and_its_name_in_it():
    root = ElementTree.fromstring(text(svg, graph(diamond())))

    boxes = [g for g in root.iter(f"{NAMESPACE}g") if g.get("class", "").startswith("box")]
    assert len(boxes) == 8
    titles = [box.find(f"{NAMESPACE}title").text for box in boxes]
    assert any(title.startswith('mul "<b>"\nstream 2\n') for title in titles)


def test_a_page_runs_nothing_that_a_name_says_and_asks_nobody():
    thread = Thread().function(0xF0, b"</script><img src=x onerror=alert(1)>\xe2\x80\xae")
    page = text(html, graph(thread.launch(number=1, stream=0x55, device_ns=5)))

    assert "<img" not in page
    assert page.count("</script>") == 1
    assert "\u202e" not in page
    shown = page.replace("src=x onerror", "")  # it appears only as text
    assert not re.search(r"(src|href)\s*=|@import|url\((?!#)", shown)


def test_a_page_has_the_picture_the_figures_and_what_is_not_known():
    page = text(html, graph(loop(5), iteration=2))

    assert "x.trace, iteration 2" in page
    assert "2 of 5 found" in page
    assert "20 \u00d7" not in page  # they are different kernels
    assert "No GPU times were recorded" in page
    assert "The durations of 21 GPU operations are not known" in page


def test_an_empty_recording_has_a_picture_and_figures():
    empty = graph_of(with_iterations(from_trace(parse(header()), "x.trace")))

    ElementTree.fromstring(text(svg, empty))
    assert "none known" in text(html, empty)
    assert json.loads(text(perfetto, empty))["traceEvents"] == []
    assert stats_of(empty).operations == 0


def test_a_trace_for_perfetto_has_a_track_a_stream_and_flows_between_them():
    events = json.loads(text(perfetto, graph(diamond())))["traceEvents"]

    tracks = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name"}
    assert set(tracks) == {"stream 1", "stream 2"}
    slices = {e["args"]["operation"]: e for e in events if e["ph"] == "X"}
    assert slices[4]["tid"] == tracks["stream 2"]
    assert (slices[4]["dur"], slices[4]["args"]["critical"]) == (3.0, True)
    starts = [e for e in events if e["ph"] == "s"]
    ends = [e for e in events if e["ph"] == "f"]
    assert [e["tid"] for e in starts] == [tracks["stream 1"], tracks["stream 2"]]
    assert [e["tid"] for e in ends] == [tracks["stream 2"], tracks["stream 1"]]


def test_the_figures_of_a_diamond():
    stats = stats_of(graph(diamond()))

    assert stats.nodes == {"launch": 4, "event_record": 2, "event_wait": 2}
    assert (stats.edges["stream"], stats.edges["event"]) == (6, 2)
    assert (stats.gpu_ns, stats.gpu_critical_ns, stats.critical.gpu_ns) == (6000, 5000, 5000)
    assert (stats.iteration, stats.iterations, stats.unknown.lost_calls) == (None, 0, 0)
    # Two kernels overlap for 1000 ns, which counts for both, of 6000 ns.
    assert (stats.overlap.cc, stats.overlap.ct) == (pytest.approx(1 / 3), 0)
    assert (stats.width.most, stats.width.busy_ns) == (2, 5000)
    assert sum(stats.classes.values()) == pytest.approx(1)


def one_long_kernel(*devices):
    """One block that runs for a millisecond."""
    thread = Thread().function()
    for device in devices:
        thread.device(*device)
    return thread.launch(number=1, stream=0x55, device_ns=1_000_000)


def test_a_kernel_with_fewer_blocks_than_the_recorded_device_has_multiprocessors_is_small():
    known = stats_of(graph(one_long_kernel((8, 10**9))))
    unknown = stats_of(graph(one_long_kernel()))

    assert (known.device.sm_count, known.device.bandwidth_bytes_per_s) == (8, 10**9)
    assert dict(known.facts())["device"] == "8 SMs, 1 GB/s"
    assert known.classes["small"] == pytest.approx(1)
    assert "device" not in dict(unknown.facts())
    assert unknown.classes["unknown"] == pytest.approx(1)


def test_of_different_devices_nothing_is_taken():
    stats = stats_of(graph(one_long_kernel((8, 10**9), (16, 10**9))))

    assert stats.device.sm_count == 0
    assert stats.classes["unknown"] == pytest.approx(1)


def test_a_recording_with_losses_says_so():
    window = from_trace(replace(recording_of(diamond()), lost=3, end=None), "x.trace")

    doubts = list(stats_of(graph_of(window)).doubts())

    assert doubts[:2] == ["The recording ends early.", "3 calls were not recorded."]
