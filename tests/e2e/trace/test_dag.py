"""The graph of the demo's trainer, built from a recording."""

import json
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from traced_program import TRAINER

pytestmark = pytest.mark.slow

ITERATIONS = 5
LAUNCHES = 230  # two micro-batches of a spread, 112 layers and a mix each; two that sum up


@pytest.fixture
def recording(tandem, tmp_path):
    path = tmp_path / "x.trace"
    program = TRAINER.replace("range(3)", f"range({ITERATIONS})")
    tandem("trace", "calls", "--device-times", "-o", path, "--", sys.executable, "-c", program)
    return path


def test_the_graph_of_the_trainer_says_what_it_does(tandem, recording, tmp_path):
    words = (recording, "--iteration", 3)
    stats = json.loads(tandem("dag", "stats", *words, "--json").out)
    graph = json.loads(tandem("dag", *words, "--format", "json").out)

    assert (stats["iteration"], stats["iterations"]) == (3, ITERATIONS)
    assert stats["nodes"]["launch"] == LAUNCHES
    assert stats["critical"]["gpu_ns"] == stats["gpu_ns"]  # one stream computes, the other loads
    assert stats["device"] == {"sm_count": 8, "bandwidth_bytes_per_s": 999_936_000}  # whole kHz
    assert 0 < stats["classes"]["small"] < 0.01  # the kernels that sum up take fewer blocks
    operations = {operation["id"]: operation for operation in graph["operations"]}
    (loaded,) = [edge for edge in graph["edges"] if edge["kind"] == "event"]
    loader, trainer = (operations[loaded[end]]["stream"] for end in ("from", "to"))
    assert operations[loaded["from"]]["kind"] == "event_record"
    assert loader != trainer
    launches = [o for o in graph["operations"] if o["kind"] == "launch"]
    assert {launch["stream"] for launch in launches} == {trainer}

    for form in ("svg", "html", "perfetto", "dot"):
        tandem("dag", *words, "--format", form, "-o", tmp_path / form)
    ElementTree.parse(tmp_path / "svg")
    assert "112 \u00d7 affine" in (tmp_path / "html").read_text(encoding="utf-8")
    events = json.loads((tmp_path / "perfetto").read_text())["traceEvents"]
    assert sum(e["ph"] == "X" and e["args"]["critical"] for e in events) > LAUNCHES
    assert (tmp_path / "dot").read_text().count(" -> ") > LAUNCHES
