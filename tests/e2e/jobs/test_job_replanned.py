"""Three jobs on sets of SMs: how soon their kernels run on other sets after an event.

On the virtual clock.
"""

import pytest
from running_job import HERE

from tandem import softgpu

pytestmark = pytest.mark.slow

SOON_NS = 10_000_000
WINDOW_MS, SHORT_MS = 100, 30
LONG_MS = 250  # a window ends in that time, even if it is checked only every 100 ms
CONFIG = f"""
[scheduler]
size_sets = false  # by how jobs scale, which is told only after many seconds;
probe_sets = false  # so nothing but the tuner changes sizes, and who comes
[partition]
tuner = "on"
window_s = {WINDOW_MS / 1000}
[gpu."*"]
mode = "mps+green"
"""
SERVER = ("server", "-p", "latency", "--slo", "p99=300us")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "resizing.so"
    softgpu.compile_kernels(HERE / "resizing.cu", path)
    return path


@pytest.fixture
def place(fresh_place):
    fresh_place.env |= {"TANDEM_SOFTGPU_MODE": "mps", "TANDEM_SOFTGPU_PROFILE": "h200"}
    config = fresh_place.folder / "config.toml"
    config.write_text(CONFIG)
    fresh_place.start_daemon("--config", str(config))
    return fresh_place


def serve(job, *loads):
    return job.do(f"__import__('resizing').serve(gpu, *{loads})")


def works_always(job):
    job.go_on("lambda: __import__('resizing').compute(gpu, 4)")


def kernels(place, job):
    rows = (row for row in place.ran(job.pid) if row["name"] == "divisible")
    return sorted(rows, key=lambda row: row["t_start_ns"])


def moved(place, job, since_ns, until_ns):
    """Return how long it took until a kernel began in the job's final set, and that set's SMs.

    In each set a stream's work runs in a different stream of the driver's.
    """
    rows = [row for row in kernels(place, job) if row["t_start_ns"] < until_ns]
    before = [row for row in rows if row["t_start_ns"] < since_ns][-1]
    assert rows[-1]["stream"] != before["stream"], f"'{job.name}' is where it was"
    there = [row for row in rows[rows.index(before) :] if row["stream"] == rows[-1]["stream"]]
    return there[0]["t_start_ns"] - since_ns, there[-1]["sms"]


def test_from_an_event_to_the_first_kernels_in_new_sets_it_is_less_than_ten_milliseconds(place):
    server, other = place.job(*SERVER), place.job("other", "-p", "latency")
    works_always(other)

    third = place.job("third", "-p", "latency", "--sm", "50%")
    came_ns = third.do("came_ns")
    works_always(third)
    loads = ("light", 1, LONG_MS), ("heavy", 2, SHORT_MS), ("light", 1, SHORT_MS)
    light_ns, heavy_ns, light_again_ns, end_ns = serve(server, *loads)

    arrived = {other: moved(place, other, came_ns, light_ns)}
    loaded, lighter = (
        {job: moved(place, job, *between) for job in (server, other)}
        for between in ((heavy_ns, light_again_ns), (light_again_ns, end_ns))
    )
    waits_ns = [wait for event in (arrived, loaded, lighter) for wait, _ in event.values()]
    assert max(waits_ns) <= SOON_NS, waits_ns
    assert {row["sms"] for row in kernels(place, third)} == {64}
    assert arrived[other][1] == 64  # shared with the server
    assert (loaded[server][1], loaded[other][1]) == (40, 24)
    assert (lighter[server][1], lighter[other][1]) == (32, 32)
