"""Graphs as text, and the part of a recording that they show."""

import io
import json

import pytest
from programs import MUL, diamond, loop
from recordings import file_of, header, recording_of

from tandem.cli.__main__ import tandem as command_line
from tandem.dag import dot, json_form, limits
from tandem.dag.from_trace import from_trace
from tandem.dag.graph import graph_of
from tandem.dag.iterations import with_iterations
from tandem.errors import UsageError
from tandem.trace.file import parse

ORDER = [
    (0, 1, "stream"),
    (1, 2, "event"),
    (1, 3, "stream"),
    (2, 4, "stream"),
    (4, 5, "stream"),
    (3, 6, "stream"),
    (5, 6, "event"),
    (6, 7, "stream"),
]
DIAMOND_DOT = """\
digraph tandem {
  rankdir=LR;
  node [shape=box, fontname=sans];
  subgraph cluster_0 {
    label="stream 1";
    n0 [label="vadd 1.000us"];
    n1 [label="event record"];
    n3 [label="vadd 1.000us"];
    n6 [label="event wait"];
    n7 [label="vadd 1.000us"];
  }
  subgraph cluster_1 {
    label="stream 2";
    n2 [label="event wait"];
    n4 [label="mul \\"<b>\\" 3.000us"];
    n5 [label="event record"];
  }
  n0 -> n1 [color=black];
  n1 -> n2 [color=blue];
  n1 -> n3 [color=black];
  n2 -> n4 [color=black];
  n4 -> n5 [color=black];
  n3 -> n6 [color=black];
  n5 -> n6 [color=blue];
  n6 -> n7 [color=black];
}
"""


def text(form, graph):
    file = io.StringIO()
    form.write(graph, file)
    return file.getvalue()


def graph(thread, iteration=None):
    window = with_iterations(from_trace(recording_of(thread), "x.trace"))
    return graph_of(window, iteration)


@pytest.fixture
def run(capsys):
    def invoke(*words):
        command_line.main(["dag", *map(str, words)], prog_name="tandem", standalone_mode=False)
        return capsys.readouterr().out

    return invoke


def test_a_diamond_in_dot():
    assert text(dot, graph(diamond())) == DIAMOND_DOT


def test_a_diamond_in_json():
    value = json.loads(text(json_form, graph(diamond())))

    assert (value["format"], value["version"]) == ("tandem-dag", 1)
    edges = [(edge["from"], edge["to"], edge["kind"]) for edge in value["edges"]]
    assert (1, 2, "event") in edges
    assert [edge for edge in edges if edge[2] in ("stream", "event")] == ORDER
    assert value["operations"][4] == {
        "id": 4,
        "kind": "launch",
        "name": 'mul "<b>"',
        "thread": 0,
        "stream": 1,
        "submitted_ns": 1040,
        "duration_ns": 3000,
        "object": MUL,
        "bytes": 0,
        "blocks": 1,
        "flags": ["unresolved"],
    }
    assert value["streams"][1] == {
        "process": 0,
        "context": 0,
        "kind": "non_blocking",
        "name": "stream 2",
    }


def test_an_iteration_is_shown_without_the_edges_into_it():
    whole, second = graph(loop(5)), graph(loop(5), iteration=2)

    assert whole.window.iterations == tuple((22 * i, 22 * i + 22) for i in range(5))
    assert second.nodes == range(22, 44)
    assert min(source for source, _, _ in second.edges()) >= 22


def test_an_iteration_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match=r"'x.trace' has iterations 1 to 5, but no 6"):
        graph(loop(5), iteration=6)
    with pytest.raises(UsageError, match=r"has no iteration 1: no iterations were found in it"):
        graph(diamond(), iteration=1)


def test_what_is_too_large_for_dot_is_refused(monkeypatch):
    monkeypatch.setitem(limits._MOST, "dot", ("dot", 7))

    with pytest.raises(
        UsageError,
        match="has 8 operations there, but dot takes at most 7; choose "
        "--format html, perfetto or json, or `tandem dag stats`",
    ):
        text(dot, graph(diamond()))
    with pytest.raises(UsageError, match="choose --iteration N, of 1 to 5, or --format html"):
        text(dot, graph(loop(5)))
    with pytest.raises(UsageError, match="choose --format html"):
        text(dot, graph(loop(5), iteration=2))


def test_what_is_too_large_is_refused_before_its_graph_is_built(run, tmp_path, monkeypatch):
    path = tmp_path / "x.trace"
    path.write_bytes(file_of(loop(5)))
    monkeypatch.setitem(limits._MOST, "html", ("a picture", 7))
    monkeypatch.setattr("tandem.dag.graph.build", None)

    with pytest.raises(UsageError, match="a picture takes at most 7"):
        run(path, "--format", "html")


def test_a_recording_without_calls_is_an_empty_graph():
    empty = graph_of(with_iterations(from_trace(parse(header()), "x.trace")))

    assert json.loads(text(json_form, empty))["operations"] == []
    assert text(dot, empty).startswith("digraph tandem {")


def test_the_form_is_that_of_the_file_s_name_unless_it_is_told(run, tmp_path):
    path, output = tmp_path / "x.trace", tmp_path / "x.json"
    path.write_bytes(file_of(diamond()))

    assert run(path) == DIAMOND_DOT
    run("draw", path, "-o", output)
    assert json.loads(output.read_text())["source"] == str(path)
    run("--format", "dot", path, "-o", output)
    assert output.read_text() == DIAMOND_DOT


def test_a_recording_is_not_written_over(run, tmp_path):
    path = tmp_path / "x.trace"
    path.write_bytes(file_of(diamond()))

    with pytest.raises(UsageError, match="is the recording itself"):
        run(path, "-o", path)


@pytest.mark.parametrize("launches", [3, 9, 100])
def test_what_a_program_does_before_its_loop_is_no_iteration(launches):
    thread = loop(5, before=launches)

    window = with_iterations(from_trace(recording_of(thread), "x.trace"))

    first = launches + 1  # includes the wait after them
    later = [(first + 22 * i, first + 22 * i + 22) for i in range(5)]
    assert set(window.iterations) <= set(later)
    assert len(window.iterations) >= 4


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("MOST_CHAINS", "has 3 streams and threads, but a graph follows at most 2"),
        ("MOST_CONTEXTS", "has 1 contexts, but a graph follows at most 0"),
    ],
)
def test_a_window_that_is_too_wide_for_a_graph_is_refused(monkeypatch, limit, said):
    monkeypatch.setattr(limits, limit, 2 if limit == "MOST_CHAINS" else 0)

    with pytest.raises(UsageError) as refused:
        graph_of(from_trace(recording_of(diamond()), "x.trace"))

    assert str(refused.value) == f"'x.trace' {said}; record a shorter part of the program"
