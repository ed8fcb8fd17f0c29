"""What processes are told about their sets: in which order, and how long it stays valid."""

from dataclasses import replace

import pytest
from talk import LATENCY, MS, NORMAL, Talk

from tandemd.core.events import ProcessAttached, SetSms
from tandemd.core.explain.space import space_lines
from tandemd.core.model import JobSpec, Options, SmSet, Split
from tandemd.core.space.sets import Span
from tandemd.core.space.sm_counts import given_sms

DRAIN_NS = 250 * MS


def talking(**options):
    splits = {"splits": {0: Split(groups=16, group_sms=8)}, "mps_gpus": frozenset({0})}
    return Talk(Options(sm_counts={0: 132}, drain_ns=DRAIN_NS, **(splits | options)))


def told(actions):
    found = [action for action in actions if isinstance(action, SetSms)]
    return {action.process_id: (action.set.first, action.set.count) for action in found}


def is_in(talk, process_id, first, count):
    return told(talk.sample(process_id, in_set=SmSet(first, count, 8)))


def turn_of(actions, process_id):
    (turn,) = (
        action.turn
        for action in actions
        if isinstance(action, SetSms) and action.process_id == process_id
    )
    return turn


def two_halves():
    talk = talking()
    assert told(talk.attach(1, job_id=1, sm_percent=50)) == {1: (0, 8)}
    assert told(talk.attach(2, job_id=2, sm_count=64)) == {2: (8, 8)}
    is_in(talk, 1, 0, 8)
    is_in(talk, 2, 8, 8)
    return talk


def from_before(process_id, **spec):
    """A process that a previous daemon may have told a set."""
    return ProcessAttached(
        now_ns=0,
        process_id=process_id,
        job_id=process_id,
        uid=0,
        gpu=0,
        spec=JobSpec(**spec),
        has_set=True,
    )


def go_on(talk, **options):
    return told(talk.core.change_options(replace(talk.core.options, **options), now_ns=talk.now_ns))


def test_alone_it_has_all_groups_and_gives_them_up_for_who_asks():
    talk = talking()
    assert told(talk.attach(1, job_id=1)) == {1: (0, 16)}

    assert told(talk.attach(2, job_id=2, sm_percent=25)) == {1: (0, 12), 2: (12, 4)}
    assert talk.core.jobs[2].set == Span(12, 4)


def test_who_is_to_get_groups_waits_until_others_have_left_them():
    talk = two_halves()

    assert told(talk.update(1, sm_percent=25)) == {1: (0, 4)}
    assert told(talk.update(2, sm_percent=75)) == {}
    assert talk.core.jobs[2].set == Span(4, 12)

    assert is_in(talk, 1, 0, 4) == {2: (4, 12)}


def test_who_is_on_the_whole_gpu_all_the_same_is_told_so():
    talk = talking()
    talk.attach(1, job_id=1, sm_percent=50)

    def told_lines():
        return " ".join(space_lines(talk.core, talk.core.jobs[1], got=1.0))

    assert "it is not in its set yet, but on the whole gpu" in told_lines()
    is_in(talk, 1, 0, 8)
    assert "on the whole gpu:" not in told_lines()


def test_a_job_has_its_sms_once_all_its_processes_are_in_its_set():
    talk = talking()
    for process_id in (1, 2):
        talk.attach(process_id, job_id=1, sm_percent=50)

    is_in(talk, 1, 0, 8)
    assert given_sms(talk.core.jobs[1], 0, talk.core.options) == 0
    is_in(talk, 2, 0, 8)

    assert given_sms(talk.core.jobs[1], 0, talk.core.options) == 64


def test_nobody_waits_for_long():
    talk = two_halves()
    talk.update(1, sm_percent=25)
    talk.update(2, sm_percent=75)

    assert told(talk.tick(DRAIN_NS / MS - 1)) == {}
    assert told(talk.tick(2)) == {2: (4, 12)}


def test_who_waits_once_more_waits_from_then_on():
    talk = two_halves()
    talk.update(1, sm_percent=25)
    talk.update(2, sm_percent=75)
    assert is_in(talk, 1, 0, 4) == {2: (4, 12)}
    is_in(talk, 2, 4, 12)
    talk.update(2, sm_percent=50)
    talk.update(1, sm_percent=50)
    assert is_in(talk, 2, 8, 8) == {1: (0, 8)}
    is_in(talk, 1, 0, 8)
    talk.tick(DRAIN_NS / MS)

    talk.update(1, sm_percent=25)

    assert told(talk.update(2, sm_percent=75)) == {}


def test_told_where_it_was_once_more_it_has_left_where_it_was_meanwhile_when_it_says_so():
    talk = talking()
    first = turn_of(talk.attach(1, job_id=1, sm_percent=50), 1)
    talk.attach(2, job_id=2, sm_percent=50)
    talk.update(2, sm_percent=25)
    is_in(talk, 2, 8, 4)
    here = SmSet(0, 8, 8)
    talk.sample(1, in_set=here, in_turn=first)
    assert told(talk.update(1, sm_percent=75)) == {2: (12, 4)}
    wide = talk.sample(2, in_set=SmSet(12, 4, 8))
    assert told(wide) == {1: (0, 12)}
    back = talk.update(1, sm_percent=50)
    assert told(back) == {1: (0, 8)}

    assert told(talk.update(2, sm_percent=50)) == {}  # 1 may still have work on all twelve groups
    assert told(talk.sample(1, in_set=SmSet(0, 12, 8), in_turn=turn_of(wide, 1))) == {}

    assert told(talk.sample(1, in_set=here, in_turn=turn_of(back, 1))) == {2: (8, 8)}


def test_who_once_waited_for_as_long_as_may_be_waits_as_long_the_next_time():
    talk = talking()
    talk.attach(1, job_id=1, sm_percent=50)
    talk.attach(2, job_id=2)
    is_in(talk, 1, 0, 8)
    is_in(talk, 2, 8, 8)
    assert told(talk.update(1, sm_percent=25)) == {1: (0, 4)}
    assert told(talk.tick(DRAIN_NS / MS)) == {2: (4, 12)}
    is_in(talk, 1, 0, 4)
    is_in(talk, 2, 4, 12)

    talk.tick(60_000)

    assert told(talk.update(1, sm_percent=12)) == {1: (0, 2)}
    assert told(talk.tick(DRAIN_NS / MS - 1)) == {}
    assert is_in(talk, 1, 0, 2) == {2: (2, 14)}


def test_one_that_is_gone_leaves_its_groups_at_once():
    talk = two_halves()
    talk.attach(3, job_id=3)  # no group is left, so the others get fewer

    assert talk.core.jobs[3].set.count == 1
    assert told(talk.leave(1))


def test_on_a_gpu_without_sets_nobody_is_told_any():
    talk = talking(splits={})

    assert told(talk.attach(1, job_id=1, sm_percent=50)) == {}
    assert talk.core.jobs[1].set is None


def test_when_the_gpu_has_no_sets_any_more_everybody_has_it_whole():
    talk = two_halves()

    actions = talk.core.change_options(Options(mps_gpus=frozenset({0})), now_ns=talk.now_ns)

    assert told(actions) == {1: (0, 0), 2: (0, 0)}
    assert talk.core.jobs[1].set is None


def test_processes_of_one_job_share_its_set():
    talk = two_halves()

    assert told(talk.attach(3, job_id=1)) == {3: (0, 8)}


def test_why_it_has_so_many_is_said():
    talk = talking()
    talk.attach(1, job_id=1)
    job = talk.core.jobs[1]

    def lines():
        return " ".join(space_lines(talk.core, job, got=1.0))

    assert "which the other sets leave free, and may be shared" in lines()
    talk.update(1, sm_percent=25)
    assert "for sm 25%" in lines()
    talk.update(1, sm_percent=0)
    job.groups_wanted = 4  # as sizing and the tuner do
    assert "by how it scales and what its requests take" in lines()


def test_why_it_has_fewer_than_it_asks_for_is_said():
    talk = two_halves()
    job = talk.core.jobs[1]
    talk.update(1, sm_percent=100)
    talk.update(2, sm_percent=100)

    def lines():
        return " ".join(space_lines(talk.core, job, got=1.0))

    assert (
        "less than the 16 groups it asks for: together the jobs ask for more than the 16" in lines()
    )
    job.part = 3  # it belongs to a plan
    assert "less than the 16 groups it asks for: no plan has been made with these yet" in lines()


@pytest.mark.parametrize(
    ("policy", "job_class", "idle"),
    [
        ("priority", NORMAL, True),
        ("priority", LATENCY, False),
        ("fair", LATENCY, True),
        ("pair", NORMAL, False),
    ],
)
def test_who_takes_turns_with_others_on_other_sms_is_told_that_these_lie_idle(
    policy, job_class, idle
):
    talk = talking(policy=policy)
    talk.attach(1, job_class, sm_percent=30)
    talk.attach(2, job_class, sm_percent=30)

    told = " ".join(space_lines(talk.core, talk.core.jobs[1], got=1.0))

    assert ("takes turns with jobs on other SMs, which are idle meanwhile" in told) is idle


def test_who_comes_while_sets_are_being_proved_has_the_gpu_whole_and_then_its_set():
    proving = {"splits": {}, "proving": frozenset({0})}
    talk = talking(**proving)
    assert told(talk.attach(1, job_id=1, sm_percent=50)) == {1: (0, 0)}
    assert told(talk.say(from_before(2, sm_percent=25))) == {}
    assert talk.core.jobs[1].set is None

    proved = replace(talk.core.options, splits={0: Split(16, 8)}, proving=frozenset())

    assert told(talk.core.change_options(proved, now_ns=talk.now_ns)) == {1: (0, 8), 2: (8, 4)}


def test_who_comes_between_two_tries_of_a_proof_has_its_set_after_the_next():
    talk = talking(splits={}, unproved={0: "no answer"}, retried=frozenset({0}))
    assert told(talk.attach(1, job_id=1, sm_percent=50)) == {1: (0, 0)}
    why = " ".join(space_lines(talk.core, talk.core.jobs[1], got=1.0))
    assert "not proved yet on gpu 0, which is in mode mps: no answer; this is retried" in why

    assert go_on(talk, unproved={}, retried=frozenset(), proving=frozenset({0})) == {}

    assert go_on(talk, splits={0: Split(16, 8)}, proving=frozenset()) == {1: (0, 8)}


NO_ANSWER = {"proving": frozenset(), "unproved": {0: "no answer"}, "retried": frozenset({0})}
SHARED = {"proving": frozenset(), "unproved": {0: "they share SMs"}, "retried": frozenset()}
PROVED = {"proving": frozenset(), "unproved": {}, "retried": frozenset()}


def test_who_is_in_a_set_from_before_leaves_it_when_the_answer_is_no():
    talk = talking(splits={}, proving=frozenset({0}))
    assert told(talk.say(from_before(1))) == {}

    assert go_on(talk, **SHARED) == {1: (0, 0)}


def test_who_is_in_a_set_from_before_keeps_it_until_there_is_an_answer():
    talk = talking(splits={}, proving=frozenset({0}))
    talk.say(from_before(1))

    assert go_on(talk, **NO_ANSWER) == {}
    assert told(talk.say(from_before(2))) == {}
    assert told(talk.attach(3, job_id=3)) == {3: (0, 0)}
    assert go_on(talk, unproved={}, retried=frozenset(), proving=frozenset({0})) == {}
    assert go_on(talk, **NO_ANSWER) == {}

    assert go_on(talk, **SHARED) == {1: (0, 0), 2: (0, 0), 3: (0, 0)}


def test_who_kept_a_set_from_before_has_one_of_those_that_are_proved():
    talk = talking(splits={}, **NO_ANSWER)
    assert told(talk.say(from_before(1))) == {}

    assert go_on(talk, splits={0: Split(16, 8)}, **PROVED) == {1: (0, 16)}


@pytest.mark.parametrize("mps_gpus", [frozenset({0}), frozenset()])
def test_who_is_in_a_set_from_before_leaves_it_where_no_sets_are_asked_for_now(mps_gpus):
    talk = talking(splits={}, mps_gpus=mps_gpus)

    assert told(talk.say(from_before(1))) == {1: (0, 0)}

    assert not talk.core.sets.is_used


def test_where_sets_were_not_to_be_had_everybody_keeps_the_gpu_whole():
    talk = talking(splits={}, proving=frozenset({0}))
    talk.attach(1, job_id=1, sm_percent=50)

    unproved = replace(talk.core.options, unproved={0: "they share SMs"}, proving=frozenset())

    assert told(talk.core.change_options(unproved, now_ns=talk.now_ns)) == {1: (0, 0)}
    assert told(talk.attach(2, job_id=2)) == {}


def test_who_has_a_percentage_of_its_own_has_no_set_and_takes_none_away():
    talk = talking()
    own = ProcessAttached(
        now_ns=0, process_id=1, job_id=1, uid=0, gpu=0, spec=JobSpec(), mps_percent=25.0
    )

    assert told(talk.say(own)) == {}
    assert told(talk.attach(2, job_id=2)) == {2: (0, 16)}

    why = " ".join(space_lines(talk.core, talk.core.jobs[1], got=1.0))
    assert "it has no set of SMs: an MPS percentage, 25%, limits it for as long as it runs" in why
