"""Forward, backward and update in iterations of a recording or a job, against their labels."""

import io
import json
import xml.etree.ElementTree as ElementTree
import zlib
from dataclasses import replace

import pytest
from iterations.phases import INFERENCE, TRAINING
from recordings import Thread, recording_of

from tandem._marks import PHASE_BEGIN, PHASE_END, fnv1a
from tandem._results import Window
from tandem.dag import html, json_form, svg
from tandem.dag.drawing import draw
from tandem.dag.from_job import from_job
from tandem.dag.from_trace import from_trace
from tandem.dag.graph import graph_of
from tandem.dag.iterations import with_iterations
from tandem.dag.stats import stats_of
from tandem.trace.records import RECORD

NAMESPACE = "{http://www.w3.org/2000/svg}"
STREAM, ITERATIONS, LAYERS, KERNEL_NS = 0x55, 6, 8, 1000
LAUNCH, MARK = 1, 11


def handle(name):
    return zlib.crc32(name.encode()) << 12


class Recorder:
    """Records a program, and keeps the labels of its launches by iteration."""

    def __init__(self):
        self.thread, self.labels = Thread(), [[]]
        self._label, self._known, self._number = "", set(), 0

    def take(self, kind, *rest):
        getattr(self, f"_{kind}")(*rest)

    def _step(self):
        self.labels.append([])

    def _phase(self, name):
        self._label = name

    def _launch(self, name):
        if name not in self._known:
            self.thread.function(handle(name), name.encode())
            self._known.add(name)
        self.labels[-1].append(self._label)
        where = {"stream": STREAM, "device_ns": KERNEL_NS, "function": handle(name)}
        self.thread.launch(number=self._next(), **where)

    def _to_device(self):
        self._call("cuMemcpyHtoDAsync_v2", handle("batch"), 9, 64, STREAM, stream=STREAM)

    def _to_host(self):
        self._call("cuMemcpyDtoHAsync_v2", 9, handle("loss"), 64, STREAM, stream=STREAM)
        self._call("cuStreamSynchronize", STREAM, stream=STREAM)

    def _alloc(self, name, size):
        self._call("cuMemAlloc_v2", 9, handle(name), int(size))

    def _free(self, name):
        self._call("cuMemFree_v2", handle(name))

    def _call(self, name, *words, **where):
        self.thread.call(name, *words, number=self._next(), **where)

    def _next(self):
        self._number += 1
        return self._number


def recorded(program):
    """Return the window of a program's recording, and its launches' labels by iteration."""
    recorder = Recorder()
    for operation in program:
        recorder.take(*operation)
    window = with_iterations(from_trace(recording_of(recorder.thread), "x.trace"))
    return window, recorder.labels


@pytest.mark.parametrize("name", ["train_without_cache", "train_from_cache"])
def test_the_phases_of_a_recorded_iteration_are_found(name):
    window, labels = recorded(TRAINING[name](ITERATIONS, LAYERS))

    graph = graph_of(window, 3)

    found = list(graph.phases.values())
    assert len(found) == len(labels[2])
    wrong = sum(one != other for one, other in zip(found, labels[2], strict=True))
    assert wrong <= len(found) / 20
    stats = stats_of(graph)
    assert list(stats.phases) == ["forward", "backward", "update"]
    assert sum(part.launches for part in stats.phases.values()) == len(found)
    assert stats.phases["update"].gpu_ns == stats.phases["update"].launches * KERNEL_NS
    assert sum(part.share for part in stats.phases.values()) == pytest.approx(1)


def test_phases_are_bands_below_the_lanes():
    window, _ = recorded(TRAINING["train_from_cache"](ITERATIONS, LAYERS))
    graph = graph_of(window, 3)

    drawn = draw(graph)

    assert [band.name for band in drawn.bands] == ["forward", "backward", "update"]
    assert drawn.bands[0].end_ns == drawn.bands[1].start_ns
    assert drawn.bands[1].end_ns == drawn.bands[2].start_ns
    picture, page = io.StringIO(), io.StringIO()
    svg.write(graph, picture)
    html.write(graph, page)
    root = ElementTree.fromstring(picture.getvalue())
    shown = [g for g in root.iter(f"{NAMESPACE}g") if g.get("class", "").startswith("band")]
    assert [g.findtext("{*}title") for g in shown] == ["forward", "backward", "update"]
    assert float(shown[0].find("{*}svg").get("y")) < svg.height_of(drawn) - svg.BAND_HEIGHT
    assert ">Phases<" in page.getvalue()
    assert page.getvalue().count('class="band') == 3


@pytest.mark.parametrize("name", ["infer_without_cache", "embed_only"])
def test_nothing_is_said_of_inference(name):
    window, _ = recorded(INFERENCE[name](ITERATIONS, LAYERS))

    for iteration in range(1, len(window.iterations) + 1):
        assert graph_of(window, iteration).phases == {}


def test_nothing_is_said_of_more_than_an_iteration_or_where_calls_are_missing():
    window, _ = recorded(TRAINING["train_from_cache"](ITERATIONS, LAYERS))
    first, last = window.iterations[2]

    assert graph_of(window).phases == {}
    assert draw(graph_of(window)).bands == ()
    assert graph_of(replace(window, gaps=((first + last) // 2,)), 3).phases == {}
    assert graph_of(replace(window, gaps=(last + 1,)), 3).phases


def job_window(names, *, iterations=1):
    records = b""
    for at, name in enumerate(names):
        records += RECORD.pack(at, MARK, PHASE_BEGIN, 0, 5, 0, fnv1a(name.encode()), 0, 0, 0, 0, 0)
        records += RECORD.pack(at, LAUNCH, 1, 0, 5, 0x1000, 7, 0, 8, 32, 10, 1 << 32)
        records += RECORD.pack(at, MARK, PHASE_END, 0, 5, 0, fnv1a(name.encode()), 0, 0, 0, 0, 0)
    told = {"lost_records": 0, "is_cut": False, "first_iteration": 3, "kernels": ()}
    return Window(
        pid=1, gpus=(0,), begin_ns=0, end_ns=1, iterations=iterations, records=records, **told
    )


def test_the_marks_of_a_job_say_its_phases():
    window = job_window(["forward", "forward", "logging", "backward", "update"])

    graph = graph_of(from_job([window], "train"))

    assert graph.phases == {0: "forward", 1: "forward", 3: "backward", 4: "update"}
    assert stats_of(graph).phases["forward"].launches == 2
    told = io.StringIO()
    json_form.write(graph, told)
    phases = [operation.get("phase") for operation in json.loads(told.getvalue())["operations"]]
    assert phases == ["forward", "forward", None, "backward", "update"]


def test_of_several_processes_or_iterations_no_phases_are_said():
    window = job_window(["forward", "backward"])

    assert graph_of(from_job([window, replace(window, pid=2)], "train")).phases == {}
    assert graph_of(from_job([replace(window, iterations=2)], "train")).phases == {}
