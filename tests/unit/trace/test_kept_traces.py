"""Kept recordings of programs are complete, and their iterations are found without marks."""

from functools import cache

import pytest
import traces
from bench.gpu.figures.trace_facts import calls, iterations, parameters, streams
from bench.gpu.parts.traces import MOST_BYTES

from tandem.dag.from_trace import from_trace

ALL = traces.names()
SOFTWARE = "cuda_bindings-software"

load = cache(traces.load)


def test_there_is_one_of_the_software_gpu():
    assert SOFTWARE in ALL


@pytest.mark.parametrize("name", ALL)
def test_a_kept_trace_is_whole_and_small(name):
    recording = load(name)

    assert recording.is_complete
    assert recording.lost == 0
    assert calls(recording)["launches"] + calls(recording)["graphs"] > 100
    assert (traces.FOLDER / f"{name}.xz").stat().st_size <= MOST_BYTES


@pytest.mark.parametrize("name", ALL)
def test_iterations_end_where_the_program_marked_them(name):
    found = iterations(from_trace(load(name), name))

    assert found["marked"] >= 10
    assert found["right"] >= 0.9 * found["marked"]
    assert found["right"] >= 0.9 * found["found"]


def test_of_the_demos_trainer_all_parameters_are_known():
    (kernels,) = parameters(load(SOFTWARE)).values()

    assert kernels["sized_share"] == 1
    assert kernels["addresses"] == kernels["words"] >= kernels["launches"] > 2000
    assert kernels["resolved_share"] == 1
    # Its kernels' names carry no types, so their pointers may lead to further pointers.
    assert kernels["all_known_share"] == 0


def test_of_the_demos_trainer_the_streams_are_its_own():
    found = streams(load(SOFTWARE))

    assert (found["processes"], found["contexts"], found["own_non_blocking"]) == (1, 1, 2)
    assert found["in_per_thread"] == 0
    assert found["in_own"] > 100 * found["in_legacy"] > 0
