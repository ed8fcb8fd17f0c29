"""Windows follow the gaps that more urgent work is expected to leave."""

import pytest
from talk import BATCH, LATENCY, NORMAL, Talk

from tandemd.core.events import SetWindow
from tandemd.core.explain.explain import explain
from tandemd.core.model import Options, WaitReason

US = 1_000
SERVER, TRAINER = 1, 2
SHORT_US, MIDDLE_US, LONG_US = 150, 450, 5_000  # window and segment are 300 us each


def talk_of(job_class=BATCH, *, uid=1000, **options):
    talk = Talk(Options(**options))
    talk.attach(SERVER, LATENCY, name="chat")
    talk.attach(TRAINER, job_class, uid=uid)
    return talk


def gaps(talk, gap_us, process_id=SERVER):
    """The next look reports a process's expected gaps; returns the windows the others get."""
    talk.sample(process_id, after_ms=1, gap_p50_ns=gap_us * US, gap_p90_ns=2 * gap_us * US)
    return [(action.process_id, action.segments) for action in talk.of(SetWindow)]


def explained(talk, job_id):
    return explain(talk.core, talk.core.jobs[job_id], talk.now_ns)


@pytest.mark.parametrize("job_class", [NORMAL, BATCH])
def test_short_gaps_of_latency_work_narrow_the_windows_of_others(job_class):
    talk = talk_of(job_class)

    assert gaps(talk, SHORT_US) == [(TRAINER, 1)]


def test_with_the_forecast_off_short_gaps_change_nothing():
    talk = talk_of(forecast_gaps=False)

    assert gaps(talk, SHORT_US) == []
    assert talk.core.group_of(talk.core.jobs[SERVER]).short_gaps
    assert not any("gaps of" in line for line in explained(talk, TRAINER).lines)


@pytest.mark.parametrize("gap_us", [0, 300, LONG_US])
def test_gaps_that_are_unknown_or_hold_a_window_and_a_segment_leave_it(gap_us):
    assert gaps(talk_of(), gap_us) == []


def test_gaps_around_the_limit_do_not_make_the_window_flap():
    talk = talk_of()
    assert gaps(talk, MIDDLE_US) == []
    assert gaps(talk, 299) == [(TRAINER, 1)]
    assert gaps(talk, MIDDLE_US) == []
    assert gaps(talk, 599) == []
    assert gaps(talk, 600) == [(TRAINER, 2)]
    assert gaps(talk, MIDDLE_US) == []


def test_when_nothing_is_known_any_more_the_window_is_the_configured_one():
    talk = talk_of()
    gaps(talk, SHORT_US)

    assert gaps(talk, 0) == [(TRAINER, 2)]


def test_the_window_widens_when_the_latency_job_leaves():
    talk = talk_of()
    talk.attach(3, NORMAL)
    gaps(talk, SHORT_US)

    talk.leave(SERVER)

    assert [(a.process_id, a.segments) for a in talk.of(SetWindow)] == [(2, 2), (3, 2)]


def test_of_several_latency_jobs_the_briefest_gaps_count():
    talk = talk_of()
    talk.attach(3, LATENCY)
    assert gaps(talk, SHORT_US) == [(TRAINER, 1)]
    assert gaps(talk, SHORT_US, process_id=3) == []
    assert gaps(talk, LONG_US) == []
    assert gaps(talk, LONG_US, process_id=3) == [(TRAINER, 2)]


def test_of_several_processes_of_a_job_the_first_ends_a_gap():
    talk = talk_of()
    talk.attach(3, LATENCY, job_id=SERVER)

    gaps(talk, LONG_US, process_id=3)

    assert gaps(talk, SHORT_US) == [(TRAINER, 1)]


def test_the_limit_follows_the_configured_window():
    talk = talk_of(window_segments=8, segment_ns=50 * US)
    assert gaps(talk, 449) == [(TRAINER, 1)]
    assert gaps(talk, 900) == [(TRAINER, 8)]


@pytest.mark.parametrize("segments", [0, 1])
def test_a_window_that_is_off_or_no_wider_stays(segments):
    assert gaps(talk_of(window_segments=segments), SHORT_US) == []


def test_a_policy_under_which_nobody_yields_narrows_nothing():
    assert gaps(talk_of(policy="fair"), SHORT_US) == []


def test_work_that_does_not_see_the_latency_job_does_not_wait_for_its_gaps():
    assert gaps(talk_of(uid=2000, presence_across_users=False), SHORT_US) == []
    assert gaps(talk_of(uid=2000), SHORT_US) == [(TRAINER, 1)]


def test_on_another_gpu_gaps_are_nobodys():
    talk = Talk()
    talk.attach(SERVER, LATENCY, gpu=1)
    talk.attach(3, BATCH, gpu=1)
    talk.attach(TRAINER, BATCH)
    talk.attach(4, BATCH)

    assert gaps(talk, SHORT_US) == [(3, 1)]


def test_explain_says_why_the_window_is_narrow_and_what_the_gaps_are():
    talk = talk_of()
    gaps(talk, SHORT_US)

    assert (
        "window: 1 segment of 100 us, not 2: gaps of j-1 'chat' typically end 150 us after "
        "others may start"
    ) in explained(talk, TRAINER).lines
    assert (
        "gaps in its work: once others may start, half of them end within 150 us, nine in ten "
        "within 300 us"
    ) in explained(talk, SERVER).lines


def test_explain_says_how_many_segments_make_the_window_full():
    talk = talk_of()
    talk.waits(TRAINER, reason=WaitReason.WINDOW)
    assert explained(talk, TRAINER).summary == "its window of 2 segments is full"

    gaps(talk, SHORT_US)

    assert explained(talk, TRAINER).summary == "its window of 1 segment is full"


def test_switching_the_forecast_off_widens_the_window_again():
    talk = talk_of()
    gaps(talk, SHORT_US)

    actions = talk.core.change_options(Options(forecast_gaps=False), now_ns=talk.now_ns)

    windows = [a for a in actions if isinstance(a, SetWindow)]
    assert [(a.process_id, a.segments) for a in windows] == [(TRAINER, 2)]
