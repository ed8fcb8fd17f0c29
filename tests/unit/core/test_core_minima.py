"""Memory minima: what is promised, to whom, and what is refused."""

import pytest
from talk import Talk

from tandemd.core.events import JobExited, JobRegistered
from tandemd.core.explain.explain import explain
from tandemd.core.memory.minima import LAPSE_NS
from tandemd.core.model import JobSpec

GIB = 1 << 30


@pytest.fixture
def talk():
    talk = Talk()
    talk.core.memory.line.capacity_bytes = {0: 80 * GIB}
    return talk


def objection(talk, gib, job=None, **spec):
    return talk.core.objection_to(JobSpec(memory_min_bytes=gib * GIB, **spec), job)


def test_no_more_is_promised_than_the_gpu_has(talk):
    talk.register(1, memory_min_bytes=50 * GIB)  # not on a GPU yet
    talk.attach(2, memory_min_bytes=20 * GIB)

    assert objection(talk, 10) is None
    why = objection(talk, 11)
    assert "its minimum of 11 GiB does not fit: gpu 0 has 80 GiB, 70 GiB of it" in why
    assert why.endswith("or try again later")
    assert objection(talk, 81).endswith("lower the minimum")  # waiting would not help


def test_a_minimum_above_the_limit_is_refused(talk):
    why = objection(talk, 5, memory_bytes=4 * GIB)
    assert why.startswith("its minimum of 5 GiB is more than its limit of 4 GiB; lower")


def test_any_gpu_with_room_will_do_until_the_job_is_on_one(talk):
    talk.core.memory.line.capacity_bytes = {0: 80 * GIB, 1: 40 * GIB}
    talk.attach(1, gpu=0, memory_min_bytes=60 * GIB)

    assert objection(talk, 40) is None
    assert "gpu 0" in objection(talk, 81, talk.core.jobs[1])


def test_who_came_first_keeps_its_promise_on_a_gpu_that_others_come_to(talk):
    talk.attach(1, memory_min_bytes=50 * GIB)
    talk.attach(2, memory_min_bytes=40 * GIB)  # a bare process: nobody could have refused it
    first, second = talk.core.jobs[1], talk.core.jobs[2]
    assert (first.is_minimum_kept, second.is_minimum_kept) == (True, False)
    assert "is not promised" in [line for _, line in second.story][-2]

    talk.leave(1)

    assert second.is_minimum_kept


def test_what_is_promised_can_be_changed_within_what_is_left(talk):
    talk.attach(1, memory_min_bytes=50 * GIB)
    talk.attach(2, memory_min_bytes=30 * GIB)

    assert objection(talk, 51, talk.core.jobs[1]) is not None
    talk.update(1, memory_min_bytes=10 * GIB)
    assert objection(talk, 70, talk.core.jobs[2]) is None


def test_where_the_size_of_the_gpu_is_not_known_nothing_is_refused(talk):
    talk.core.memory.line.capacity_bytes = {}

    assert objection(talk, 500) is None


class Unlooked(dict):
    """A dict that fails the test if anybody iterates over all of it."""

    def values(self):
        raise AssertionError("looks at every job")


def test_whoever_comes_and_goes_costs_no_look_at_all_jobs(talk):
    talk.register(1, memory_min_bytes=50 * GIB)
    for job_id in (2, 3, 4):
        talk.register(job_id)
    talk.core.jobs = Unlooked(talk.core.jobs)

    assert objection(talk, 0) is None
    assert objection(talk, 40) is not None
    talk.core.apply(JobRegistered(now_ns=2, job_id=5, uid=0, spec=JobSpec()))
    talk.core.apply(JobExited(now_ns=3, job_id=5))
    talk.core.apply(JobExited(now_ns=3, job_id=1))

    assert objection(talk, 40) is None


def test_a_promise_to_a_job_without_a_process_lapses_and_comes_after_others_then(talk):
    talk.register(1, memory_min_bytes=50 * GIB)
    talk.register(2, memory_min_bytes=10 * GIB)
    talk.attach(2, job_id=2)
    talk.tick(after_ms=LAPSE_NS / 1e6 - 1)
    assert objection(talk, 40) is not None

    talk.tick(after_ms=2)
    assert objection(talk, 70) is None
    assert objection(talk, 71) is not None  # a job with a process keeps its promise
    first = talk.core.jobs[1]
    assert not first.is_minimum_kept
    assert "is not promised: it has no process" in " ".join(
        explain(talk.core, first, now_ns=0).lines
    )

    talk.register(3, memory_min_bytes=40 * GIB)
    talk.attach(1, job_id=1)
    assert [talk.core.jobs[job].is_minimum_kept for job in (1, 2, 3)] == [False, True, True]
    talk.end(3)
    assert first.is_minimum_kept


def test_a_promise_lasts_from_one_process_to_the_next(talk):
    talk.register(1, memory_min_bytes=50 * GIB)
    talk.attach(1, job_id=1)
    talk.tick(after_ms=2 * LAPSE_NS / 1e6)
    talk.leave(1)
    talk.tick(after_ms=LAPSE_NS / 1e6 - 1)
    assert talk.core.jobs[1].is_minimum_kept

    talk.tick(after_ms=2)
    assert not talk.core.jobs[1].is_minimum_kept
