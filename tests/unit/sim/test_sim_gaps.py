"""Gap histograms answer like the native ones; the cases come from the native tests."""

import pytest

from tandemd.sim.gaps import Durations, Gaps, Lingers

BASE_NS, LIMIT_NS = 300_000, 2_000_000


def lingers(*gaps_ns):
    learnt = Lingers()
    for gap_ns in gaps_ns:
        learnt.add(gap_ns)
    return learnt


def test_without_enough_gaps_the_base_is_kept():
    assert lingers(*[400_000] * 31).linger_ns(BASE_NS, LIMIT_NS) == BASE_NS
    assert lingers(*[400_000] * 32).linger_ns(BASE_NS, LIMIT_NS) >= 400_000


def test_pauses_between_queued_requests_are_covered_and_no_more_than_they():
    learnt = lingers(*[430_000, *[25_000_000] * 3] * 40)

    assert 430_000 <= learnt.linger_ns(BASE_NS, LIMIT_NS) <= 600_000


def test_requests_that_come_at_random_are_not_waited_for():
    assert lingers(*(i * 500_000 for i in range(1, 101))).linger_ns(BASE_NS, LIMIT_NS) == BASE_NS


def test_a_closed_loop_is_covered_up_to_the_limit():
    learnt = lingers(*[1_500_000] * 100)

    assert 1_500_000 <= learnt.linger_ns(BASE_NS, LIMIT_NS) <= LIMIT_NS
    assert learnt.linger_ns(BASE_NS, 1_000_000) == BASE_NS
    assert learnt.linger_ns(BASE_NS, 0) == BASE_NS


def test_what_was_long_ago_is_forgotten():
    assert lingers(*[1_500_000] * 500, *[50_000] * 5000).linger_ns(BASE_NS, LIMIT_NS) == BASE_NS


def durations(*durations_ns):
    learnt = Durations()
    for duration_ns in durations_ns:
        learnt.add(duration_ns)
    return learnt


def test_of_few_durations_nothing_is_claimed():
    assert durations(*[1_000_000] * 31).remaining_ns(0.5, 0) == 0
    assert durations(*[1_000_000] * 32).remaining_ns(0.5, 0) == pytest.approx(1_000_000, rel=1 / 8)


def test_who_lasted_a_while_goes_on_for_the_rest():
    learnt = durations(*[100_000] * 40, *[3_000_000] * 40)

    assert learnt.remaining_ns(0.5, 1_000_000) == pytest.approx(2_000_000, rel=1 / 4)
    assert learnt.remaining_ns(0.5, 10_000_000) == 0


@pytest.mark.parametrize("duration_ns", [0, 1, 1 << 15, 1 << 39, 1 << 50])
def test_durations_of_any_length_are_taken(duration_ns):
    assert durations(*[duration_ns] * 64).remaining_ns(0.9, 0) > 0


def test_gaps_that_nobody_could_use_are_none():
    gaps = Gaps()
    for at_ns in range(0, 100_000_000, 1_000_000):
        gaps.work_ended(at_ns)
        gaps.work_began(at_ns + 49_999)
    assert gaps.figures_ns(0) == (0, 0)
    for at_ns in range(0, 100_000_000, 1_000_000):
        gaps.work_ended(at_ns)
        gaps.work_began(at_ns + 200_000)
    assert gaps.figures_ns(0)[0] == pytest.approx(200_000, rel=1 / 8)
