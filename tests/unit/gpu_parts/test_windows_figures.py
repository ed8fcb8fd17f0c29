"""What both programs measured in a configuration, relative to each running alone."""

from array import array

import pytest
from bench.gpu.figures.slices import Ran
from bench.gpu.figures.windows_figures import Told, server_figures, together, verdict
from bench.gpu.figures.windows_rows import Row
from bench.gpu.parts.windows_pair import SMALL, Pair

MS = 1_000_000


def told(latencies_ns, *, seconds=1.0, ready_ns=0, unfinished=0):
    """A launch every millisecond, with these latencies."""
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


class Program:
    """A program that stamps kernels by the device clock, which it has compared with the host's."""

    pid = 1

    def __init__(self, path, stamps, *, offset_ns, error_ns):
        words = [word for begin, end in stamps for word in (1, 2, 3, begin, end, 0)]
        path.write_bytes(array("Q", words).tobytes())
        self._said = {
            "compared": {
                "has_device_clock": True,
                "step_ns": 32,
                "offset_ns": offset_ns,
                "error_ns": error_ns,
            },
            "calibrated": {"kernel_us": 50, "iterations": 1},
            "ran": {"unfinished": 0, "gaps_lost": 0, "deepest": 1, "longest_call_us": 3.5},
        }

    def tell(self, line):
        pass

    def wait_for(self, event, *, deadline_s):
        return self._said[event]


def test_both_programs_stamps_stay_on_the_one_clock_of_the_device(tmp_path):
    stamped = {"server": [(1_000, 2_000)], "trainer": [(2_500, 3_000)]}
    offsets = {"server": (100, 40), "trainer": (900, 500)}  # (offset, its error bound)
    programs = {
        role: Program(tmp_path / f"{role}.rows", stamped[role], offset_ns=offset, error_ns=error)
        for role, (offset, error) in offsets.items()
    }
    up = {"sms": 132, "threads_per_sm": 2048}

    told = Pair(SMALL, programs, up, tmp_path).run(dict.fromkeys(programs, "order"), 0.1)

    assert told["server"].kernels[0].stretches == ((900, 1_900),)
    assert told["trainer"].kernels[0].stretches == ((2_400, 2_900),)
    assert {one.clock_error_us for one in told.values()} == {0.04}
