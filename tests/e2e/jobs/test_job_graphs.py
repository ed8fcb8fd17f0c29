"""Graphs: one in flight where there is a window, and each charged for as long as it ran."""

import re
import shutil
import tempfile
from pathlib import Path

import pytest
from running_job import Place, until

ROUND_NS = 1_000_000  # how often the daemon looks on the virtual clock
CHAINS = """
def chains(kernels):
    '''Two streams and a graph of a chain of kernels for each.'''
    made = []
    for _ in range(2):
        stream, word = ok(cu.cuStreamCreate(1)), gpu.word(1)
        graph, last = ok(cu.cuGraphCreate(0)), []
        for _ in range(kernels):
            last = [gpu.add_kernel(graph, last, word, 2, 1, slow=True)]
        made.append((stream, ok(cu.cuGraphInstantiate(graph, 0)), word))
    return made
def launch_graphs(made):
    for stream, executable, _ in made:
        ok(cu.cuGraphLaunch(executable, stream))
    ok(cu.cuCtxSynchronize())
def launch_kernels(made):
    for stream, _, word in made:
        gpu.affine(word, 2, 1, stream=stream, slow=True)
    ok(cu.cuCtxSynchronize())
"""


@pytest.fixture
def place(image):
    folder = Path(tempfile.mkdtemp(prefix="tandem-"))
    place = Place(folder, image, clock="virtual")
    try:
        yield place
    finally:
        place.close()
        shutil.rmtree(folder, ignore_errors=True)


def _window(client):
    shown = "\n".join(client.explain("trainer").lines)
    found = re.search(r"window: (\d+) segments", shown)
    return int(found[1]) if found else 0


def _overlaps(place, pid, since):
    """Tell whether kernels of different streams ran at the same time."""
    ran = [one for one in place.ran(pid)[since:] if one["kind"] == "kernel"]
    return any(
        one["stream"] != other["stream"]
        and one["t_start_ns"] < other["t_end_ns"]
        and other["t_start_ns"] < one["t_end_ns"]
        for one in ran
        for other in ran
    )


def _best_effort(place, *options):
    """A job with a window, because a job of the latency class, now idle, is beside it."""
    place.start_daemon(*options)
    server = place.job("server", "-p", "latency")
    server.do("compute()")
    trainer = place.job("trainer", "-p", "batch")
    trainer.do(f"exec({CHAINS!r}, globals())")
    return trainer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "work", "together"),
    [
        (8, "launch_graphs", False),
        (8, "launch_kernels", True),  # the window has room for them
        (0, "launch_graphs", True),
    ],
)
def test_one_graph_is_in_flight_where_there_is_a_window(place, window, work, together):
    trainer = _best_effort(place, "--window-segments", str(window))
    trainer.do("exec('made = chains(2)', globals())")
    with place.client() as client:
        until(lambda: _window(client) == window, what=f"it gets a window of {window}")
    before = len(place.ran(trainer.pid))

    trainer.do(f"{work}(made)")

    assert _overlaps(place, trainer.pid, before) is together


@pytest.mark.slow
def test_a_graph_is_charged_as_long_as_it_ran(place):
    place.start_daemon()
    job = place.job("graphs")
    job.do(f"exec({CHAINS!r}, globals())")
    job.do("exec('made = chains(3)[:1]', globals())")
    with place.client() as client:

        def charged_ns():
            return client.job("graphs").gpu_time_ns

        for _ in range(3):
            # Work that ended earlier is charged in the following rounds; wait for those.
            job.do(f"__import__('waiting').pause({3 * ROUND_NS / 1e6})")
            before, charged_before = len(place.ran(job.pid)), charged_ns()
            job.do("launch_graphs(made)")
            ran = place.ran(job.pid)[before:]
            took_ns = ran[-1]["t_end_ns"] - ran[0]["t_start_ns"]
            until(
                lambda charged=charged_before, took=took_ns: (
                    charged_ns() - charged >= took - ROUND_NS
                ),
                what="it is charged for its graph",
            )
            job.do("ok(cu.cuCtxSynchronize())")
            assert len(ran) == 3
            assert abs(charged_ns() - charged_before - took_ns) <= ROUND_NS
