import pytest
from talk import BATCH, LATENCY, NORMAL, Talk

from tandemd.core.events import ChargeGroup
from tandemd.core.explain.explain import explain
from tandemd.core.model import Options
from tandemd.core.ties import MAX_KEYS


@pytest.fixture
def talk():
    """Processes 1, 2 and 3, each a job of its own that takes turns."""
    talk = Talk(Options(policy="fair"))
    for process_id in (1, 2, 3):
        talk.attach(process_id, BATCH)
    return talk


def lines(talk, job_id):
    job = talk.core.job(job_id)
    return [
        *explain(talk.core, job, talk.now_ns).lines,
        *(line for _, line in job.story),
    ]


def test_processes_that_share_a_handle_are_held_and_released_as_one(talk):
    talk.share(1, key=7)
    talk.share(2, key=7)

    talk.works(3)

    assert talk.open_processes() == {3}
    talk.rests(3)
    talk.waits(2, after_ms=1)
    talk.tick(after_ms=2)
    assert talk.open_processes() == {1, 2}


def test_a_handle_that_only_one_process_has_ties_nobody(talk):
    talk.share(1, key=7)
    talk.share(2, key=8)
    talk.share(1, key=7)

    talk.works(1)

    assert talk.open_processes() == {1}


def test_a_tie_during_a_turn_lets_the_other_one_in(talk):
    talk.works(1)
    talk.waits(2)
    talk.share(1, key=7)

    talk.share(2, key=7)

    assert talk.open_processes() == {1, 2}


def test_the_older_group_lives_on_and_the_turn_of_the_younger_ends(talk):
    talk.works(2)
    talk.waits(1)
    talk.share(2, key=7)

    talk.share(1, key=7)
    assert talk.open_processes() == {1, 2}  # no other job has work

    talk.works(1)
    talk.waits(3)
    assert talk.open_processes() == {1, 2}


def test_ties_chain(talk):
    talk.share(1, key=7)
    talk.share(2, key=7)
    talk.share(2, key=8)
    talk.share(3, key=8)

    talk.works(1)

    assert talk.open_processes() == {1, 2, 3}


def test_gpu_time_is_charged_to_the_group_that_lives_on(talk):
    numbers = {job: talk.core.group_of(talk.core.job(job)).number for job in (1, 2)}
    talk.share(2, key=7)

    talk.share(1, key=7)

    assert talk.of(ChargeGroup) == [ChargeGroup(process_ids=(2,), group=numbers[1])]


def test_the_same_key_of_another_user_is_something_else(talk):
    talk.attach(4, BATCH, uid=1001)
    talk.share(1, key=7)
    talk.share(4, key=7)

    talk.works(1)

    assert not talk.is_open(4)


def test_who_joins_a_group_that_was_joined_is_part_of_it(talk):
    talk.attach(4, BATCH, group="ranks")
    talk.share(4, key=7)
    talk.share(1, key=7)

    talk.attach(5, BATCH, group="ranks")
    talk.works(5)

    assert talk.open_processes() == {1, 4, 5}


def test_those_who_stay_stay_together_and_the_name_is_free_once_all_have_left(talk):
    talk.attach(4, BATCH, group="ranks")
    for process_id in (4, 1, 2):
        talk.share(process_id, key=7)

    talk.leave(4)
    talk.works(1)
    assert talk.open_processes() == {1, 2}

    talk.leave(1)
    talk.leave(2)
    talk.attach(6, BATCH, group="ranks")
    talk.works(3)
    assert talk.open_processes() == {3}
    assert not talk.core.group_of(talk.core.job(6)).is_tied


def test_a_tied_group_has_the_class_of_its_most_urgent_job_and_is_paused_as_one(talk):
    talk.attach(4, LATENCY)
    talk.share(4, key=7)
    talk.share(1, key=7)
    assert talk.core.group_of(talk.core.job(1)).job_class is LATENCY

    talk.pause(4)

    assert not talk.is_open(1)
    assert (
        "its group, in which j-4 is paused"
        in explain(talk.core, talk.core.job(1), talk.now_ns).summary
    )


def test_explain_says_why(talk):
    talk.share(1, key=7)

    talk.share(2, key=7)

    assert "joined with j-2: they share memory or events of the gpu" in lines(talk, 1)
    (together,) = [line for line in lines(talk, 2) if "held and released together with" in line]
    assert together.endswith("2 processes, which share memory or events of the gpu")


def test_jobs_that_name_one_group_are_together_and_those_of_another_uid_apart():
    talk = Talk(Options(policy="fair"))
    talk.attach(1, BATCH, group="torchrun:29500:none")
    talk.attach(2, BATCH, group="torchrun:29500:none")
    talk.attach(3, BATCH, uid=7, group="torchrun:29500:none")

    talk.works(1)
    talk.works(3)

    assert talk.open_processes() == {1, 2}
    (together,) = [line for line in lines(talk, 2) if "held and released together with" in line]
    assert together.endswith("with j-1: 2 processes of group 'torchrun:29500:none'")


def test_what_one_job_can_make_the_daemon_remember_is_bounded(talk):
    for key in range(1, MAX_KEYS + 10):
        talk.share(1, key=key)

    talk.share(2, key=MAX_KEYS + 5)

    assert talk.core.group_of(talk.core.job(2)).jobs.keys() == {2}


def test_a_process_that_uses_a_second_gpu_takes_its_turns_on_both():
    talk = Talk(Options(policy="fair"))
    talk.attach(1, NORMAL, gpu=0)
    talk.attach(2, NORMAL, gpu=1)
    talk.works(1)
    talk.works(2)
    assert talk.open_processes() == {1, 2}

    talk.add_gpu(1, 1)
    talk.works(1, 2)

    assert len(talk.open_processes()) == 1
    assert "also uses gpu 1 now: its turns are on both at once" in lines(talk, 1)
    assert talk.add_gpu(1, 1) == []
