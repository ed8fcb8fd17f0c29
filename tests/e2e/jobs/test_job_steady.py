"""Three jobs under constant load: sizes and plans settle and stay. On the virtual clock.

Requests arrive at random and vary in size at random. The settling time is bounded by the options to
try, some windows for each size of each job and for each plan: 40 windows. The rate of requests is
measured over half a minute, and a plan's promises depend on it, so the last plan may come that
late. The objectives leave some room: one that just holds would be missed by chance in some window,
at any time (tests/property/test_steady_model.py has other loads, and shares of time).
"""

from itertools import groupby

import pytest
from running_job import HERE

from tandem import softgpu
from tandemd.core.tuner.latency import SPAN_NS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # seconds of real time, on a busy machine

WINDOW_S = 0.5
SETTLING_S, CONSTANT_S = SPAN_NS / 1e9 + 40 * WINDOW_S, 60
TRAINED_BLOCKS = 25_000  # 20 ms on all SMs
SERVERS = {"often": (2_500, 25.0, 30), "rarely": (7_500, 6.0, 120)}  # blocks, 1/s, SLO in ms


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "steady.so"
    softgpu.compile_kernels(HERE / "steady.cu", path)
    return path


def play(place):
    """Run everything for as long as it takes to settle and to see that nothing changes."""
    place.env |= {"TANDEM_SOFTGPU_MODE": "mps", "TANDEM_SOFTGPU_PROFILE": "h200"}
    config = place.folder / "config.toml"
    config.write_text(
        '[scheduler]\npolicy = "fair"\nprobe_sets = false\nquantum_ms = 5\n'
        '[gpu."*"]\nmode = "mps+green"\n'
        f'[partition]\ntuner = "on"\nplanner = "on"\nwindow_s = {WINDOW_S}\n'
    )
    place.start_daemon("--config", str(config))
    trainer = place.job("trainer")
    jobs = {
        name: place.job(name, "--slo", f"p99={slo_ms}ms")
        for name, (_, _, slo_ms) in SERVERS.items()
    }
    trainer.go_on(f"lambda: __import__('steady').train(gpu, {TRAINED_BLOCKS})")
    for seed, (name, (blocks, rate, _)) in enumerate(SERVERS.items()):
        facts = f"{blocks}, rate={rate}, seed={seed}, seconds={SETTLING_S + CONSTANT_S}"
        jobs[name].start(f"__import__('steady').serve(gpu, {facts})")
    end_ns = min(job.result() for job in jobs.values())
    return [trainer, *jobs.values()], end_ns - CONSTANT_S * 1_000_000_000, end_ns


def kernels_of(place, job):
    rows = sorted(place.ran(job.pid), key=lambda row: row["t_start_ns"])
    return [row for row in rows if row["name"] == "divisible"]


def sets(kernels):
    """Return the sets they ran in, in order: since when, the driver's stream, and the SMs."""
    runs = groupby(kernels, key=lambda row: (row["stream"], row["sms"]))
    return [(next(run)["t_start_ns"], *where) for where, run in runs]


@pytest.mark.long
def test_on_sets_of_sms_by_plan_nothing_changes_for_a_minute(fresh_place):
    jobs, since_ns, until_ns = play(fresh_place)

    assert "plan: progress" in fresh_place.explain("trainer")
    kernels = {job.name: kernels_of(fresh_place, job) for job in jobs}
    for ran in kernels.values():  # they ran all the time
        assert ran[0]["t_start_ns"] < since_ns
        assert ran[-1]["t_start_ns"] > until_ns - 1_000_000_000
    # The first plan may be right by chance; test_steady_model checks that wrong ones are dropped.
    found = {name: sets(ran) for name, ran in kernels.items()}
    late = [at_ns for one in found.values() for at_ns, *_ in one if since_ns < at_ns < until_ns]
    assert not late, found
