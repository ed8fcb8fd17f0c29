"""What both programs saw of a configuration, against each alone."""

import pytest
from bench.gpu.slices import Ran
from bench.gpu.windows_figures import Told, server_figures, together, verdict
from bench.gpu.windows_rows import Row

MS = 1_000_000


def told(latencies_ns, *, seconds=1.0, ready_ns=0, unfinished=0):
    """A launch every millisecond, each with its latency."""
    rows = [
        Row(at, at, at + latency, Ran(at + ready_ns, ((at, at + latency),)))
        for at, latency in ((n * MS, latency) for n, latency in enumerate(latencies_ns))
    ]
    return Told(
        rows=rows,
        kernels=[row.ran for row in rows],
        unfinished=unfinished,
        seconds=seconds,
        clock_error_us=2.5,
        gaps_lost=0,
    )


def test_latencies_count_from_the_arrival():
    figures = server_figures(told([50_000] * 99 + [90_000], unfinished=2))

    assert figures == {"requests": 100, "unfinished": 2, "p50_us": 50.0, "p99_us": 90.0}


def test_a_server_that_was_never_answered_has_no_latency():
    silent = told([])

    assert server_figures(silent) == {"requests": 0, "unfinished": 0}
    assert together(silent, told([MS]), silent, told([MS]))["p99_ratio"] is None


def test_what_was_not_measured_alone_has_no_ratio():
    figures = together(told([50_000] * 10), told([MS]), None, None)

    assert (figures["p99_us"], figures["p99_ratio"], figures["trainer_share"]) == (50.0, None, None)


def test_a_configuration_is_set_against_each_alone():
    alone, beside = told([50_000] * 100), told([100_000] * 100)

    figures = together(beside, told([MS] * 50), alone, told([MS] * 100))

    assert (figures["p50_ratio"], figures["p99_ratio"]) == (2.0, 2.0)
    assert figures["trainer_share"] == 0.5


def test_what_is_drained_after_the_end_is_no_throughput():
    assert told([MS] * 20, seconds=0.01).rate_per_s == 1000


def test_the_share_of_the_servers_time_with_both_is_told():
    server, trainer = told([500_000] * 4), told([100_000] * 4)

    assert together(server, trainer, server, trainer)["overlap_share"] == 0.2


@pytest.mark.parametrize(("ratio", "exclusive"), [(1.51, True), (1.5, False)])
def test_windows_do_unless_p99_rises_by_more_than_half(ratio, exclusive):
    arms = {"time": {"short": {"depth1": {"p99_ratio": ratio}}}, "mps": {"why_not": "none here"}}

    found = verdict(arms)

    assert found["exclusive_gating"] is exclusive
    assert found["p99_ratio_short_depth1"] == {"time": ratio, "mps": None}


def test_without_a_measurement_there_is_no_verdict():
    assert verdict({"time": {"error": "it broke off"}})["exclusive_gating"] == "not measured"
