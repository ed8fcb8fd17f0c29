import pytest
from talk import BATCH, LATENCY, MS, NORMAL, Talk

from tandemd.core.events import WorkClassified
from tandemd.core.explain.explain import explain
from tandemd.core.model import Bound, Mix, Options

COMPUTE, MEMORY, COPY, SMALL, UNKNOWN = (
    Bound.COMPUTE,
    Bound.MEMORY,
    Bound.COPY,
    Bound.SMALL,
    Bound.UNKNOWN,
)


def pairing(*bounds, job_class=BATCH, **options):
    """One process for each bound, numbered from 1; the first takes the turn, and all have work."""
    said = {"policy": "pair", "mps_gpus": frozenset({0})} | options
    talk = Talk(Options(**said))
    for process_id, bound in enumerate(bounds, 1):
        talk.attach(process_id, job_class)
        classify(talk, process_id, bound)
    talk.works(1)
    talk.waits(*range(2, len(bounds) + 1))
    return talk


def classify(talk, process_id, bound, **figures):
    shares = tuple(float(b is bound) for b in Bound)
    mix = Mix(**({"shares": shares, "operations": 100, "untimed": 0, "at_ns": 0} | figures))
    talk.say(WorkClassified(now_ns=talk.now_ns, process_id=process_id, mix=mix))


def told(talk, job_id):
    found = explain(talk.core, talk.core.job(job_id), talk.now_ns)
    return found.summary, " | ".join(found.lines)


@pytest.mark.parametrize(
    ("one", "other"), [(COMPUTE, MEMORY), (MEMORY, COPY), (COPY, COMPUTE), (SMALL, SMALL)]
)
def test_work_bound_by_different_things_shares_a_turn(one, other):
    assert pairing(one, other).open_processes() == {1, 2}


@pytest.mark.parametrize(
    ("one", "other"),
    [(COMPUTE, COMPUTE), (MEMORY, MEMORY), (COPY, COPY), (MEMORY, UNKNOWN), (UNKNOWN, UNKNOWN)],
)
def test_work_bound_alike_or_by_who_knows_what_takes_turns(one, other):
    assert pairing(one, other).open_processes() == {1}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"mps_gpus": frozenset()}, "kernels of two processes overlap only under mps"),
        ({"classify_kernels": False}, "what bounds kernels is not recorded"),
        ({"policy": "priority"}, ""),
    ],
)
def test_in_time_mode_or_without_classes_it_is_priority(options, why):
    talk = pairing(COMPUTE, MEMORY, **options)

    assert talk.open_processes() == {1}
    assert why in told(talk, 2)[1]


def test_jobs_of_different_users_classes_or_gpus_without_mps_take_turns():
    talk = Talk(Options(policy="pair", mps_gpus=frozenset({0})))
    talk.attach(1, NORMAL, uid=1, group="a")
    for process_id, job_class, uid in ((2, NORMAL, 2), (3, BATCH, 1), (4, LATENCY, 1)):
        talk.attach(process_id, job_class, uid=uid)
    for process_id, bound in ((1, COMPUTE), (2, MEMORY), (3, MEMORY), (4, MEMORY)):
        classify(talk, process_id, bound)
    talk.works(1)
    talk.waits(2, 3)

    assert talk.open_processes() == {1, 4}  # the latency job never takes turns
    lines = told(talk, 1)[1]
    assert "under mps only jobs of one user run side by side" in lines
    assert "only best-effort jobs of one class share turns" in lines

    talk.add_gpu(1, 1)

    assert "kernels of two processes overlap only under mps" in told(talk, 1)[1]


def test_a_new_companion_waits_until_what_was_there_has_drained():
    talk = pairing(COMPUTE, COMPUTE, MEMORY)
    classify(talk, 3, UNKNOWN)
    talk.works(1, 3)  # 3 was admitted and has work

    classify(talk, 3, COMPUTE)
    assert talk.open_processes() == {1}
    classify(talk, 2, MEMORY)
    assert talk.open_processes() == {1}  # 3 is still busy
    talk.waits(3)

    assert talk.open_processes() == {1, 2}


def test_when_the_turn_passes_on_the_companion_keeps_running():
    talk = pairing(MEMORY, COMPUTE, MEMORY)
    assert talk.open_processes() == {1, 2}

    talk.works(2)
    talk.works(1, after_ms=11, ran_ms=11)  # one quantum
    assert talk.open_processes() == {2}
    talk.waits(1, after_ms=1)

    assert talk.open_processes() == {2, 3}


def test_the_two_of_a_pair_become_each_others_holder_without_a_gate_moving():
    talk = pairing(COMPUTE, MEMORY)
    talk.works(1, 2)

    holders, moved = set(), []
    for _ in range(20):
        talk.works(1, after_ms=5, ran_ms=5)
        moved += talk.gates
        talk.works(2, ran_ms=5)
        moved += talk.gates
        holders.add(next(iter(talk.core.rings.turns.values())).holder)

    assert len(holders) == 2
    assert moved == []


def test_a_companion_stays_though_another_has_had_less():
    talk = pairing(COMPUTE, MEMORY, MEMORY)
    talk.works(2)

    talk.works(1, 2, after_ms=4, ran_ms=4)
    talk.rests(3)
    talk.waits(3)

    assert talk.open_processes() == {1, 2}


def test_a_companion_that_has_nothing_to_do_makes_room_for_another():
    talk = pairing(COMPUTE, MEMORY, MEMORY)
    talk.works(2)

    talk.rests(2, after_ms=1)
    talk.tick(after_ms=1)

    assert talk.open_processes() == {1, 3}


def test_a_companion_that_only_waits_at_its_open_gate_loses_its_place():
    talk = pairing(COMPUTE, MEMORY)
    for _ in range(11):
        talk.works(1, after_ms=100)

    group = talk.core.group_of(talk.core.job(2))

    assert group.dozing
    assert next(iter(talk.core.rings.turns.values())).companion is None


def test_a_class_that_changes_ends_the_sharing():
    talk = pairing(COMPUTE, MEMORY)
    talk.works(1, 2)

    classify(talk, 2, COMPUTE)

    assert talk.open_processes() == {1}


def test_processes_of_a_group_have_to_be_bound_alike():
    talk = Talk(Options(policy="pair", mps_gpus=frozenset({0})))
    talk.attach(1, BATCH)
    talk.attach(2, BATCH, group="ranks")
    talk.attach(3, BATCH, group="ranks")
    for process_id, bound in ((1, COMPUTE), (2, MEMORY)):
        classify(talk, process_id, bound)
    talk.works(1)
    talk.waits(2, 3)
    assert talk.open_processes() == {1}

    classify(talk, 3, MEMORY)

    assert talk.open_processes() == {1, 2, 3}


def test_a_third_that_is_bound_alike_is_not_held_longer_than_it_may_be():
    talk = pairing(MEMORY, COMPUTE, MEMORY, quantum_ns=100_000 * MS, max_hold_ns=100 * MS)
    talk.works(1, 2)

    talk.tick(after_ms=101)

    assert not talk.is_open(1)
    talk.waits(1)
    assert talk.open_processes() == {2, 3}


def test_nothing_is_claimed_of_work_whose_time_is_not_known():
    talk = pairing(COMPUTE, MEMORY)

    classify(talk, 2, MEMORY, untimed=11)

    assert talk.open_processes() == {1}
    assert (
        "memory 100% of its gpu time, of 100 operations recorded, 11 of them not timed"
        in (told(talk, 2)[1])
    )


def test_explain_says_with_whom_why_and_what_that_rests_on():
    talk = pairing(COMPUTE, MEMORY, MEMORY)
    talk.works(1, 2)

    summary, lines = told(talk, 1)

    assert "shares its turn with j-2" in summary
    assert "mode mps: kernels of several processes of one user run side by side" in lines
    assert "what bounds its work: compute (compute 100% of its gpu time" in lines
    assert "shares its turn with j-2: bound by computing and by memory bandwidth" in lines
    assert "split evenly, an estimate: how many SMs the gpu has is not known" in lines
    assert "may share turns with j-3: bound by computing" in lines
    assert "takes turns with j-3: both are bound by memory bandwidth" in told(talk, 2)[1]
    assert "at most 540 ms more" in told(talk, 3)[0]  # two quanta of two jobs, and their drains


def test_what_is_not_known_yet_is_to_be_recorded_while_nobody_is_beside_it():
    talk = pairing(UNKNOWN, MEMORY)
    talk.works(2)  # until its gate closes
    assert [(p.process_id, alone) for p, alone in talk.core.to_classify()] == [
        (1, False),
        (2, False),
    ]

    talk.waits(2)
    assert [alone for _, alone in talk.core.to_classify()] == [True, False]
    classify(talk, 1, COMPUTE)
    talk.works(2)

    assert talk.core.to_classify() == []
    talk.policy("priority")
    assert talk.core.to_classify() == []


def test_the_scheduler_comes_round_when_who_shares_a_turn_leaves_it_unused():
    talk = pairing(COMPUTE, MEMORY, COMPUTE, quantum_ns=10_000 * MS, min_share=0.0)
    assert talk.open_processes() == {1, 2}
    talk.works(2)

    talk.waits(2, after_ms=1)

    assert talk.wake_at_ms == 1000
