"""What all jobs of a user may hold together: who is told how much is left, and in what words."""

from dataclasses import replace

import pytest
from talk import MS, Talk

from tandemd.core.events import CeilingSet, SetMemoryLimit
from tandemd.core.explain.explain import explain
from tandemd.core.memory.ceilings import NONE, Ceiling
from tandemd.core.model import NO_LIMIT, JobSpec, MemoryWait

GIB = 1 << 30
ANN, BOB = 1001, 1002
KEY = "limits.user.ann.max_memory"
HALF = Ceiling(percent=50, key=KEY)  # 40 GiB


class Users(Talk):
    """Remembers the limit that each process was told last, in bytes."""

    def __post_init__(self):
        super().__post_init__()
        self.core.memory.line.capacity_bytes = {0: 80 * GIB, 1: 80 * GIB}
        self.limits = {}

    def say(self, event):
        for action in super().say(event):
            if isinstance(action, SetMemoryLimit):
                self.limits[action.process_id] = action.limit_bytes
        return self.actions

    def give(self, uid, ceiling):
        return self.say(CeilingSet(now_ns=self.now_ns, uid=uid, ceiling=ceiling))

    def holds(self, process_id, gib):
        self.sample(process_id, device_bytes=int(gib * GIB))

    def lefts(self, *process_ids):
        return [
            None if self.limits[number] == NO_LIMIT else self.limits[number] / GIB
            for number in process_ids
        ]

    def explains(self, job_id):
        told = explain(self.core, self.core.jobs[job_id], self.now_ns)
        return "\n".join((told.summary, *told.lines))

    def told(self, job_id):
        return [line for _, line in self.core.jobs[job_id].story]


@pytest.fixture
def users():
    users = Users()
    users.give(ANN, HALF)
    return users


def test_what_one_job_holds_is_not_left_to_the_others_of_its_user(users):
    users.attach(1, uid=ANN)
    users.attach(2, uid=ANN, group="another")
    users.attach(3, uid=BOB)
    assert users.lefts(1, 2, 3) == [40, 40, None]

    users.holds(1, 30)
    users.holds(3, 10)
    assert users.lefts(1, 2, 3) == [40, 10, None]

    users.holds(2, 8)
    assert users.lefts(1, 2) == [32, 10]
    users.leave(1)
    assert users.lefts(2) == [40]


def test_it_is_one_of_each_gpu_by_itself(users):
    users.attach(1, uid=ANN, gpu=0)
    users.attach(2, uid=ANN, gpu=1)
    users.holds(1, 30)

    assert users.lefts(1, 2) == [40, 40]


def test_the_least_of_all_limits_holds(users):
    users.attach(1, uid=ANN, memory_bytes=20 * GIB)
    users.attach(2, uid=ANN, memory_bytes=20 * GIB)
    assert users.lefts(1, 2) == [20, 20]

    users.holds(1, 25)  # possible for a job that was allowed more before

    assert users.lefts(1, 2) == [20, 15]


def test_another_one_holds_for_what_runs_and_nothing_is_taken(users):
    users.attach(1, uid=ANN)
    users.attach(2, uid=ANN)
    users.holds(1, 30)

    users.give(ANN, replace(HALF, percent=0, size_bytes=10 * GIB))
    assert users.lefts(1, 2) == [10, 0]
    assert (
        f"all jobs of its user hold 30 GiB of the 10 GiB that they may hold on gpu 0 ({KEY}): "
        "they keep"
    ) in users.explains(2)

    users.give(ANN, NONE)
    assert users.lefts(1, 2) == [None, None]
    assert "all jobs of its user" not in users.explains(2)


def test_of_a_gpu_whose_size_is_not_known_there_is_no_share(users):
    users.core.memory.line.capacity_bytes = {}
    users.attach(1, uid=ANN)
    assert users.lefts(1) == [None]

    users.give(ANN, Ceiling(size_bytes=GIB, key=KEY))
    assert users.lefts(1) == [1]


def test_no_more_is_promised_to_a_user_than_he_may_have(users):
    users.register(1, uid=ANN, memory_min_bytes=30 * GIB, meant_gpus=[0])
    users.attach(1, uid=ANN, memory_min_bytes=30 * GIB)

    def objection(gib, uid):
        spec = JobSpec(memory_min_bytes=gib * GIB)
        gpus = frozenset({0})
        own = users.core.objection_for_user(spec, uid, gpus=gpus)
        return own or users.core.objection_to(spec, gpus=gpus)

    assert objection(10, ANN) is None
    why = objection(11, ANN)
    assert f"its user may have 40 GiB of gpu 0 ({KEY}), 30 GiB of it promised to other" in why
    assert "or try again later" in why
    assert "try again" not in objection(41, ANN)
    too_much = JobSpec(memory_min_bytes=51 * GIB)
    assert users.core.objection_for_user(too_much, ANN, gpus=frozenset({0}))
    assert not users.core.objection_for_user(too_much, BOB, gpus=frozenset({0}))
    assert objection(50, BOB) is None
    assert "gpu 0 has 80 GiB" in objection(51, BOB)


def test_with_less_than_was_promised_who_came_last_is_told(users):
    users.attach(1, uid=ANN, memory_min_bytes=20 * GIB)
    users.attach(2, uid=ANN, memory_min_bytes=20 * GIB)
    jobs = [users.core.jobs[number] for number in (1, 2)]
    assert all(job.is_minimum_kept for job in jobs)

    users.give(ANN, replace(HALF, percent=30))

    assert [job.is_minimum_kept for job in jobs] == [True, False]
    assert f"its user may have 24 GiB of gpu 0 ({KEY})" in users.told(2)[-1]


def test_who_waits_for_it_holds_up_the_jobs_of_that_user_alone(users):
    for number, uid in ((1, ANN), (2, ANN), (3, BOB)):
        users.attach(number, uid=uid, wait_memory_ns=10**12)
    users.holds(1, 35)
    users.sample(2, memory_wait=wait(10))
    mates, others = users.core.jobs[1], users.core.jobs[3]
    waiter = users.core.memory.line.waiters[2]

    assert waiter.is_in_the_way_of(next(iter(mates.processes.values())))
    assert not waiter.is_in_the_way_of(next(iter(others.processes.values())))
    assert "waits for 10 GiB of the 40 GiB that all jobs of its user may have, 1st in line" in (
        users.explains(2)
    )


def test_who_waits_on_one_gpu_is_in_nobodys_way_on_another(users):
    for number, gpu in ((1, 0), (2, 0), (3, 1)):
        users.attach(number, uid=ANN, gpu=gpu, wait_memory_ns=10**12)
    users.holds(1, 35)
    users.sample(2, memory_wait=wait(10))
    users.sample(3, memory_wait=replace(wait(10), is_quota=False))

    waiters = users.core.memory.line.waiters
    assert (waiters[2].may_try, waiters[3].may_try, waiters[3].ahead) == (True, True, [])


def test_what_runs_on_another_gpu_helps_nobody_who_waits_on_this_one(users):
    for number, gpu, gib in ((1, 0, 20), (2, 0, 20), (3, 1, 30)):
        users.attach(number, uid=ANN, gpu=gpu, wait_memory_ns=10**12)
        users.holds(number, gib)
    for number in (1, 2):
        users.sample(number, memory_wait=wait(10))
    waiters = users.core.memory.line.waiters
    for number in (1, 2):
        tried = replace(wait(10), tried_round=users.core.memory._round)
        users.sample(number, memory_wait=tried)

    assert [waiters[number].is_refused for number in (1, 2)] == [False, True]


def test_one_that_is_lent_less_for_now_waits_for_that(users):
    users.attach(1, uid=ANN, wait_memory_ns=10**12)
    users.attach(2, uid=ANN)
    users.holds(1, 10)
    users.core.processes[1].lease_bytes = 12 * GIB  # as shifts.py does
    users.sample(1, memory_wait=wait(5))

    waiter = users.core.memory.line.waiters[1]
    assert (waiter.is_leased, waiter.is_of_user) == (True, False)
    assert "waits for 5 GiB beyond the 12 GiB lent to it" in users.explains(1)


def test_instances_of_one_memory_are_one_gpu_to_it(users):
    users.core.memory.line.capacity_bytes = {128: 40 * GIB, 129: 40 * GIB}  # two MIG instances
    users.attach(1, uid=ANN, gpu=128)
    users.attach(2, uid=ANN, gpu=129)
    users.holds(1, 15)

    assert users.lefts(1, 2) == [20, 5]


def test_news_of_memory_alone_changes_limits_alone(users):
    users.attach(1, uid=ANN)
    users.attach(2, uid=ANN)

    users.holds(1, 5)

    assert [type(action) for action in users.actions] == [SetMemoryLimit]
    assert users.lefts(2) == [35]


def test_once_the_size_of_a_gpu_is_known_promises_are_looked_at_again(users):
    users.core.memory.line.capacity_bytes = {}
    users.attach(1, uid=ANN, memory_min_bytes=50 * GIB)
    assert users.core.jobs[1].is_minimum_kept
    users.core.memory.line.capacity_bytes = {0: 80 * GIB}

    actions = users.core.change_options(users.core.options, now_ns=users.now_ns)

    users.core.check_invariants()
    assert not users.core.jobs[1].is_minimum_kept
    assert SetMemoryLimit(process_id=1, limit_bytes=40 * GIB) in actions


def test_a_minimum_above_what_the_user_may_have_is_told_so_whatever_its_limit(users):
    spec = JobSpec(memory_min_bytes=50 * GIB, memory_bytes=40 * GIB)  # clipped to the ceiling

    assert f"its user may have 40 GiB of gpu 0 ({KEY})" in users.core.objection_for_user(
        spec, ANN, gpus=frozenset({0})
    )


def test_lanes_promise_no_job_more_than_its_user_may_have(users):
    spec = JobSpec(persistent_bytes=40 * GIB, ephemeral_bytes=GIB)
    assert users.core.objection_for_user(spec, ANN) is None

    users.policy("lanes")

    assert users.core.objection_for_user(spec, BOB) is users.core.objection_to(spec) is None
    assert users.core.objection_for_user(spec, ANN) == (
        f"it may use 41 GiB, but all jobs of its user only 40 GiB of a gpu ({KEY}); lower "
        "--persistent or --ephemeral"
    )


def test_who_asks_for_more_than_the_user_may_ever_have_does_not_wait(users):
    users.attach(1, uid=ANN, wait_memory_ns=10**12)
    users.sample(1, memory_wait=wait(41))

    assert users.core.memory.line.waiters[1].is_refused


def test_who_is_refused_by_it_is_told_so(users):
    users.attach(1, uid=ANN)
    users.attach(2, uid=ANN, memory_bytes=20 * GIB)
    users.holds(1, 35)
    users.now_ns += MS

    users.sample(2, refused_by=(1, 0, 0))
    users.sample(1, refused_by=(0, 1, 0))
    users.holds(1, 0)
    users.sample(2, refused_by=(2, 0, 0))

    told = users.told(2)
    assert "told out of memory by the limit of 40 GiB of all jobs of its user" in told
    assert told[-1] == "told out of memory by its limit of 20 GiB"
    assert users.told(1)[-1] == "told out of memory by the driver"


def test_a_limit_that_leaves_as_little_is_what_refused_it(users):
    users.attach(1, uid=ANN)
    users.attach(2, uid=ANN, memory_bytes=20 * GIB)
    users.holds(1, 20)

    users.sample(2, refused_by=(1, 0, 0))

    assert users.lefts(2) == [20]
    assert users.told(2)[-1] == "told out of memory by its limit of 20 GiB"


def wait(gib):
    return MemoryWait(ticket=1, size_bytes=gib * GIB, is_quota=True, is_alone=True, tried_round=0)


@pytest.mark.parametrize(
    ("ceiling", "asked", "got"),
    [
        (NONE, {"memory_bytes": 90 * GIB}, {"memory_bytes": 90 * GIB}),
        (HALF, {}, {}),
        (HALF, {"memory_bytes": 50 * GIB}, {"memory_bytes": 40 * GIB}),
        (HALF, {"memory_bytes": 30 * GIB}, {"memory_bytes": 30 * GIB}),
        (HALF, {"memory_percent": 60}, {"memory_percent": 50}),
        (HALF, {"memory_percent": 40}, {"memory_percent": 40}),
        (Ceiling(size_bytes=GIB), {"memory_bytes": 2 * GIB}, {"memory_bytes": GIB}),
        # The job's process will report what this percentage is on its GPU.
        (Ceiling(size_bytes=GIB), {"memory_percent": 60}, {"memory_percent": 60}),
        (Ceiling(size_bytes=GIB, percent=50), {"memory_percent": 60}, {"memory_percent": 60}),
    ],
)
def test_nobody_asks_for_more_than_his_user_may_have(users, ceiling, asked, got):
    users.give(ANN, ceiling)

    clipped = users.core.memory.line.ceilings.clip(ANN, JobSpec(**asked), ())

    assert clipped == JobSpec(**got)
