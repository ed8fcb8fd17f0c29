"""The cost of one marker, from rounds of runs with and without markers."""

import pytest
from bench.gpu.figures.marker_costs import costs, pairs, verdict


def rounds(**runs):
    return {
        name: {"host_ns": host_ns, "device_us": device_us}
        for name, (host_ns, device_us) in runs.items()
    }


def test_drift_between_rounds_is_no_cost_of_markers():
    # From round to round the machine slows down by more than a marker costs.
    bare_ns, bare_us = [1000, 2000, 3000], [5.0, 6.0, 7.0]

    found = costs(
        rounds(
            none=(bare_ns, bare_us),
            write_4=([n + 100 for n in bare_ns], [us + 0.25 for us in bare_us]),
        )
    )

    assert found["none"] == {"host_ns": 2000, "device_us": 6.0}
    assert found["write"]["every_4"] == {
        "host_ns_per_launch": 100,
        "device_us_per_launch": 0.25,
        "host_ns_per_marker": 400,
        "device_us_per_marker": 1.0,
        "host_pct_of_segment": 0.4,
        "device_pct_of_segment": 1.0,
    }


def test_one_wild_round_does_not_count():
    found = costs(rounds(none=([10] * 3, [1.0] * 3), event_1=([20, 21, 9000], [2.0, 2.0, 90.0])))

    assert found["event"]["every_1"]["host_ns_per_launch"] == 11


def cost(write, event):
    """Costs for two kernels in percent of a segment on the host; ten times that on the device."""
    return {
        kernel: {
            kind: {"every_4": {"host_pct_of_segment": pct, "device_pct_of_segment": pct * 10}}
            for kind, pct in (("write", write * factor), ("event", event * factor))
            if pct
        }
        for kernel, factor in (("empty", 1), ("five", 0.5))
    }


@pytest.mark.parametrize(
    ("write", "event", "cheaper", "instead"),
    [
        (0.1, 0.2, "write", False),
        (0.31, 0.2, "event", True),
        (0.3, 0.4, "write", False),
        (0, 0.2, "event", True),  # refused
    ],
)
def test_above_three_percent_events_have_to_do(write, event, cheaper, instead):
    found = verdict(cost(write, event))

    assert (found["cheaper"], found["events_instead"]) == (cheaper, instead)


def test_the_larger_share_of_both_kernels_counts():
    assert verdict(cost(0.1, 0.2))["event_pct"] == {"host": 0.2, "device": 2.0}


def test_overlap_is_kept_or_lost():
    found = pairs(
        {
            "serial_us": 40.0,
            "programmatic_us": 20.0,
            "with_write_us": 40.0,
            "with_event_us": 25.0,
            "with_timed_event_us": 20.0,
        }
    )

    assert found["overlaps"]
    kinds = ("write", "event", "timed_event")
    assert [found[f"left_with_{kind}"] for kind in kinds] == [0.0, 0.75, 1.0]


def test_where_nothing_overlaps_there_is_nothing_to_lose():
    found = pairs({"serial_us": 40.0, "programmatic_us": 39.0, "with_event_us": 39.0})

    assert not found["overlaps"]
    assert found["left_with_event"] == "no overlap to lose"
    assert "left_with_write" not in found
