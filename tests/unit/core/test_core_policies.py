import pytest
from talk import BATCH, LATENCY, NORMAL, Talk, run

from tandemd.core.errors import UnknownPolicyError
from tandemd.core.events import SetHonourPresence, SetPresence, SetWindow
from tandemd.core.explain.explain import explain
from tandemd.core.model import Options, WaitReason
from tandemd.core.policies.policy import Policy
from tandemd.core.policy import POLICIES, policy_named
from tandemd.core.space.asked import why_no_share
from tandemd.core.watchdog.rivalry import rivalry_on


def test_fair_gives_equals_equal_gpu_time():
    talk = Talk(Options(policy="fair"))
    for process_id in (1, 2, 3):
        talk.attach(process_id, BATCH)

    got = run(talk, (1, 2, 3), 1000)

    assert max(got.values()) - min(got.values()) <= 20
    assert sum(got.values()) >= 850


def test_fair_gives_gpu_time_by_weight():
    talk = Talk(Options(policy="fair"))
    talk.attach(1, NORMAL)
    talk.attach(2, BATCH)

    got = run(talk, (1, 2), 2000)

    assert got[1] / got[2] == pytest.approx(4, rel=0.1)


def test_fair_does_not_save_up_idle_time():
    talk = Talk(Options(policy="fair"))
    talk.attach(1, BATCH)
    talk.attach(2, BATCH)
    run(talk, (1,), 1000)

    got = run(talk, (1, 2), 200)

    assert got[1] >= 70


@pytest.mark.parametrize("before", ["fifo", "priority"])
def test_what_was_got_under_another_policy_is_no_debt_under_fair(before):
    talk = Talk(Options(policy=before))
    talk.attach(1, NORMAL if before == "priority" else BATCH)
    talk.attach(2, BATCH)
    run(talk, (1, 2), 5000)
    talk.update(1, job_class=BATCH)

    talk.policy("fair")
    got = run(talk, (1, 2), 200)

    assert got[1] >= 70
    assert got[2] >= 70


def test_the_same_policy_once_more_forgives_nothing():
    talk = Talk(Options(policy="fair"))
    talk.attach(1, NORMAL)
    talk.attach(2, BATCH)

    got = {1: 0, 2: 0}
    for _ in range(100):  # once per reload of the configuration
        talk.policy("fair")
        for process_id, ms in run(talk, (1, 2), 20).items():
            got[process_id] += ms

    assert got[1] / got[2] == pytest.approx(4, rel=0.3)


def test_fifo_serves_the_earliest_job_until_it_has_no_work():
    talk = Talk(Options(policy="fifo"))
    talk.attach(1, BATCH)
    talk.attach(2, LATENCY)

    got = run(talk, (1, 2), 300)

    assert got[2] == 0


def test_fifo_gives_the_gpu_back_to_an_earlier_job_that_has_work_again():
    talk = Talk(Options(policy="fifo"))
    talk.attach(1, BATCH)
    talk.attach(2, BATCH)
    talk.works(2)

    talk.waits(1)
    talk.waits(2, after_ms=1)

    assert talk.open_processes() == {1}


def test_latency_is_never_held_by_work_of_others():
    talk = Talk()
    talk.attach(1, BATCH)
    talk.works(1)

    talk.attach(2, LATENCY)
    talk.works(2, after_ms=5)

    assert talk.open_processes() == {1, 2}


def test_normal_goes_before_batch():
    talk = Talk()
    talk.attach(1, BATCH)
    talk.attach(2, NORMAL)
    talk.works(1)

    talk.waits(2)
    talk.waits(1, after_ms=1)

    assert talk.open_processes() == {2}


def test_batch_gets_its_minimal_share_beside_normal_work_that_never_ends():
    talk = Talk()
    talk.attach(1, NORMAL)
    talk.attach(2, BATCH)

    got = run(talk, (1, 2), 10_000)

    assert 0.04 <= got[2] / 10_000 <= 0.10


def test_best_effort_work_is_windowed_as_soon_as_it_shares_the_gpu():
    talk = Talk()
    talk.attach(1, BATCH)
    assert [a.segments for a in talk.of(SetWindow)] == [0]

    talk.attach(2, LATENCY)

    assert [(a.process_id, a.segments) for a in talk.of(SetWindow)] == [(1, 2), (2, 0)]


def test_the_window_can_be_switched_off():
    talk = Talk(Options(window_segments=0))
    talk.attach(1, BATCH)

    talk.attach(2, LATENCY)

    assert [a.segments for a in talk.of(SetWindow)] == [0]


def test_best_effort_looks_at_the_presence_of_higher_classes_once_they_are_mapped():
    talk = Talk()
    talk.attach(1, LATENCY)
    talk.attach(2, NORMAL)
    talk.attach(3, BATCH)

    talk.map(1)
    assert talk.of(SetPresence) == [
        SetPresence(process_id=2, looks_at=(1,)),
        SetPresence(process_id=3, looks_at=(1,)),
    ]
    talk.map(2)

    assert talk.of(SetPresence) == [SetPresence(process_id=3, looks_at=(1, 2))]


def test_nobody_looks_at_a_process_that_left():
    talk = Talk()
    talk.attach(1, LATENCY)
    talk.attach(2, BATCH)
    talk.map(1)

    talk.leave(1)

    assert talk.of(SetPresence) == [SetPresence(process_id=2, looks_at=())]


def test_presence_of_another_gpu_is_not_looked_at():
    talk = Talk()
    talk.attach(1, LATENCY, gpu=0, group="both")
    talk.attach(2, LATENCY, gpu=1, group="both")
    talk.attach(3, BATCH, gpu=1)
    talk.map(1)

    talk.map(2)

    assert talk.of(SetPresence) == [SetPresence(process_id=3, looks_at=(2,))]


def test_presence_can_be_kept_within_a_uid():
    talk = Talk(Options(presence_across_users=False))
    talk.attach(1, LATENCY, uid=1)
    talk.attach(2, BATCH, uid=2)

    talk.map(1)

    assert talk.of(SetPresence) == []


def test_starved_best_effort_work_stops_yielding_until_it_got_its_share():
    talk = Talk()
    talk.attach(1, LATENCY)
    talk.attach(2, BATCH)
    told = []
    for _ in range(11):
        talk.waits(2, after_ms=100, reason=WaitReason.PRESENCE)
        told += talk.of(SetHonourPresence)

    assert told == [SetHonourPresence(process_ids=(2,), honour=False)]
    talk.works(2, after_ms=55, ran_ms=55)
    assert talk.of(SetHonourPresence) == [SetHonourPresence(process_ids=(2,), honour=True)]


def test_who_is_owed_nothing_goes_on_yielding_beside_who_is_starved():
    talk = Talk()
    for process_id, job_class in ((1, LATENCY), (2, NORMAL), (3, BATCH)):
        talk.attach(process_id, job_class)
    told = []

    for _ in range(11):
        talk.waits(3, after_ms=100, reason=WaitReason.PRESENCE)
        told += talk.of(SetHonourPresence)

    assert told == [SetHonourPresence(process_ids=(3,), honour=False)]


def test_no_minimal_share_means_yielding_for_ever():
    talk = Talk(Options(min_share=0))
    talk.attach(1, LATENCY)
    talk.attach(2, BATCH)

    for _ in range(50):
        talk.waits(2, after_ms=100, reason=WaitReason.PRESENCE)
        assert talk.of(SetHonourPresence) == []


def test_another_policy_decides_from_the_next_event_on():
    talk = Talk(Options(policy="fifo"))
    talk.attach(1, BATCH)
    talk.attach(2, LATENCY)
    talk.works(1)
    assert not talk.is_open(2)

    talk.policy("priority")

    assert talk.is_open(2)


def test_an_unknown_policy_is_refused_with_the_known_ones():
    talk = Talk()

    with pytest.raises(UnknownPolicyError, match=f"; there are {', '.join(sorted(POLICIES))}$"):
        talk.policy("lottery")


@pytest.mark.parametrize("said", [None, 30])
def test_a_policy_with_an_order_of_its_own_promises_no_share_of_the_time(monkeypatch, said):
    class Youngest(Policy):
        def order(self, group):
            return -group.arrival

    monkeypatch.setitem(POLICIES, "youngest", Youngest())
    talk = Talk(Options(policy="youngest"))
    for process_id in (1, 2, 3):
        talk.attach(process_id, BATCH, sm_percent=said or 0)
        talk.works(process_id)

    group = talk.core.group_of(talk.core.job(1))
    (island,) = talk.core.islands.values()
    policy, options = talk.core.policy, talk.core.options
    assert why_no_share(group, policy, options) == (
        "under youngest turns do not depend on how much each job has had"
    )
    assert group.owed_share == rivalry_on(island, policy, options).owed_share(group) == 0
    summary = explain(talk.core, talk.core.job(2), talk.now_ns).summary
    assert summary.endswith("at most 20 s more")  # not after one turn of each job


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_says_what_it_does(name):
    assert len(policy_named(name).description) > 20
