"""The line for device memory: who may try, who is refused, and what people are told."""

import pytest
from talk import MS, Talk

from tandemd.core.events import SetMemoryLimit, SetMemoryPlace, SetMemoryWait
from tandemd.core.model import MemoryWait

GIB = 1 << 30
PATIENCE_NS = 600 * 10**9
CAPACITY = 80 * GIB


class Line(Talk):
    """Processes that hold and want memory; each is a job of its own unless stated otherwise."""

    def __post_init__(self):
        super().__post_init__()
        self.core.memory.line.capacity_bytes = {0: CAPACITY, 1: CAPACITY}
        self.told = {}
        self.tickets = {}

    def say(self, event):
        for action in super().say(event):
            if isinstance(action, SetMemoryPlace):
                self.told[action.process_id] = action
        return self.actions

    def join(self, process_id, *, holds=0, wait_ns=PATIENCE_NS, **spec):
        self.attach(process_id, wait_memory_ns=wait_ns, **spec)
        self.holds(process_id, holds)

    def holds(self, process_id, gib):
        self.sample(process_id, device_bytes=int(gib * GIB))

    def wants(self, process_id, gib, *, of_quota=False, alone=True, tried=0):
        """A request joins the line, or reports that it tried in the round it was told last."""
        if not tried:
            self.tickets[process_id] = self.tickets.get(process_id, 0) + 1
        self.sample(
            process_id,
            memory_wait=MemoryWait(
                ticket=self.tickets[process_id],
                size_bytes=int(gib * GIB),
                is_quota=of_quota,
                is_alone=alone,
                tried_round=tried,
            ),
        )

    def tries_in_vain(self, process_id):
        wait = self.usages[process_id].memory_wait
        self.wants(
            process_id,
            wait.size_bytes / GIB,
            of_quota=wait.is_quota,
            alone=wait.is_alone,
            tried=self.told[process_id].round,
        )

    def leaves_line(self, process_id, *, holds):
        self.sample(process_id, memory_wait=None, device_bytes=int(holds * GIB))

    def may_try(self, process_id):
        told = self.told.get(process_id)
        return bool(told and told.ticket == self.tickets[process_id] and not told.is_refused)

    def is_refused(self, process_id):
        told = self.told.get(process_id)
        return bool(told and told.ticket == self.tickets[process_id] and told.is_refused)


@pytest.fixture
def line():
    return Line()


def test_the_first_in_line_may_try_and_again_when_memory_comes_free(line):
    line.join(1, holds=60)
    line.join(2)
    line.wants(2, 40)
    assert line.may_try(2)
    line.tries_in_vain(2)
    before = line.told[2].round

    line.holds(1, 30)

    assert line.told[2].round != before
    assert not line.is_refused(2)


def test_a_small_request_stays_behind_a_big_one_that_can_be_served(line):
    line.join(1, holds=60)
    line.join(2)
    line.join(3)
    line.wants(2, 40)
    line.wants(3, 1)

    assert line.may_try(2)
    assert not line.may_try(3)

    line.leaves_line(2, holds=40)

    assert line.may_try(3)


def test_one_that_others_need_memory_of_may_go_first(line):
    line.join(1, holds=60)
    line.join(2)
    line.wants(2, 40)
    line.wants(1, 10)  # only what 1 gives back could ever serve 2

    assert line.may_try(2)
    assert line.may_try(1)


def test_requests_on_different_gpus_do_not_wait_for_each_other(line):
    line.join(1, gpu=0, holds=80)
    line.join(2, gpu=0)
    line.join(3, gpu=1)
    line.wants(2, 40)
    line.wants(3, 40)

    assert line.may_try(2)
    assert line.may_try(3)


def test_a_wait_for_the_quota_holds_up_its_own_job_only(line):
    line.join(1, memory_bytes=20 * GIB, holds=18)
    line.join(2)
    line.attach(3, job_id=1)
    line.wants(1, 4, of_quota=True, alone=False)
    line.wants(2, 4)
    line.wants(3, 1, of_quota=True)

    assert line.may_try(1)
    assert line.may_try(2)
    assert line.told[3].line_ahead


def test_all_hear_that_others_wait(line):
    line.join(1, holds=60)
    line.join(2)
    line.join(3)
    line.join(4, wait_ns=0)  # its allocations do not wait in line, but it may give something back
    line.wants(2, 40)

    assert line.told[3].line_ahead
    assert line.told[4].line_ahead
    assert not line.told[2].line_ahead

    line.leaves_line(2, holds=0)

    assert not line.told[3].line_ahead


@pytest.mark.parametrize("gib", [81, 500])
def test_more_than_the_gpu_has_is_refused_at_once(line, gib):
    line.join(1)
    line.wants(1, gib)

    assert line.is_refused(1)


def test_more_than_the_quota_is_refused_at_once(line):
    line.join(1, memory_bytes=20 * GIB)
    line.wants(1, 21, of_quota=True)

    assert line.is_refused(1)


def test_a_job_that_alone_holds_everything_is_refused_once_it_has_tried(line):
    line.join(1, memory_bytes=20 * GIB, holds=15)
    line.wants(1, 6, of_quota=True)
    assert not line.is_refused(1)

    line.tries_in_vain(1)

    assert line.is_refused(1)


def test_who_holds_memory_goes_before_all_who_cannot_go_on_without_it(line):
    line.join(1, holds=40)
    line.join(2)
    line.join(3, holds=30)

    line.wants(1, 20)
    line.wants(2, 5)  # there is room for it, but it holds nothing that 1 could get
    line.wants(3, 5)

    assert not line.may_try(2)
    assert line.may_try(3)


def test_nobody_is_helped_by_a_process_of_its_job_that_holds_nothing(line):
    line.join(1, memory_bytes=20 * GIB, holds=15)
    line.attach(2, job_id=1)
    line.wants(1, 6, of_quota=True)

    line.tries_in_vain(1)

    assert line.is_refused(1)


def test_a_job_with_another_thread_at_work_may_go_on_waiting(line):
    line.join(1, memory_bytes=20 * GIB, holds=15)
    line.wants(1, 6, of_quota=True, alone=False)
    line.tries_in_vain(1)
    line.sample(1, after_ms=4_000, launches=7)
    line.tick(after_ms=4_000)
    assert not line.is_refused(1)

    line.tick(after_ms=1_000)  # five seconds without any other call

    assert line.is_refused(1)


def test_of_jobs_that_wait_for_each_other_the_newest_holder_is_refused(line):
    line.join(1, holds=40)
    line.join(2, holds=40)
    line.join(3)
    line.wants(1, 10)
    line.wants(2, 10)
    line.wants(3, 1)
    line.tries_in_vain(1)
    assert not line.is_refused(2)
    line.tries_in_vain(2)

    assert [p for p in (1, 2, 3) if line.is_refused(p)] == [2]

    line.leaves_line(2, holds=0)

    assert line.may_try(1)
    assert not line.is_refused(1)


def test_what_an_ended_process_held_may_take_a_while_to_come_back(line):
    line.join(1, holds=60)
    line.join(2)
    line.wants(2, 40)
    line.tries_in_vain(2)
    line.leave(1)
    line.tries_in_vain(2)
    assert not line.is_refused(2)

    line.tick(after_ms=1_000)

    assert line.is_refused(2)  # nobody is left who could give anything back


def test_a_killed_waiter_leaves_the_line(line):
    line.join(1, holds=60)
    line.join(2)
    line.join(3)
    line.wants(2, 40)
    line.wants(3, 5)
    assert not line.may_try(3)

    line.leave(2)

    assert line.may_try(3)


def test_a_request_that_stays_beyond_its_deadline_holds_up_nobody(line):
    line.join(1, holds=60)
    line.join(2, wait_ns=1_000 * MS)
    line.join(3)
    line.wants(2, 40, alone=False)
    line.wants(3, 5, alone=False)

    line.tick(after_ms=3_000)

    assert line.is_refused(2)
    assert line.may_try(3)


def test_a_process_whose_job_may_not_wait_has_no_place_in_line(line):
    line.join(1, wait_ns=0)
    line.join(2, holds=60)
    line.join(3)
    line.wants(1, 40)
    line.wants(3, 40)

    assert line.is_refused(1)
    assert line.may_try(3)


def test_a_limit_that_is_raised_lets_a_waiter_try_again(line):
    line.join(1, memory_bytes=20 * GIB, holds=18)
    line.wants(1, 4, of_quota=True, alone=False)
    line.tries_in_vain(1)
    before = line.told[1].round

    line.update(1, memory_bytes=30 * GIB, wait_memory_ns=PATIENCE_NS)

    limit = line.of(SetMemoryLimit)[0]
    assert limit.limit_bytes == 30 * GIB
    assert line.actions.index(limit) < line.actions.index(line.of(SetMemoryPlace)[0])
    assert line.told[1].round != before


def test_a_limit_below_what_is_used_refuses_what_can_no_longer_be(line):
    line.join(1, memory_bytes=20 * GIB, holds=18)
    line.wants(1, 4, of_quota=True, alone=False)

    line.update(1, memory_bytes=3 * GIB, wait_memory_ns=PATIENCE_NS)

    assert line.is_refused(1)


def test_a_process_is_told_how_long_it_may_wait(line):
    line.join(1)
    line.attach(2)

    assert not line.of(SetMemoryWait, 2)
    line.update(2, wait_memory_ns=5)
    assert line.of(SetMemoryWait, 2)[0].wait_ns == 5


def test_a_share_of_the_gpu_becomes_a_limit_with_the_first_process(line):
    line.register(7, memory_percent=25)

    line.attach(1, job_id=7, memory_bytes=20 * GIB)

    assert line.of(SetMemoryLimit, 1)[0].limit_bytes == 20 * GIB


def test_a_share_is_never_more_than_it_is_of_the_gpu(line):
    line.register(7, memory_percent=25)

    line.attach(1, job_id=7, memory_bytes=70 * GIB)

    assert line.of(SetMemoryLimit, 1)[0].limit_bytes == 20 * GIB


def test_a_share_of_memory_is_that_of_the_gpu_it_came_to_first(line):
    line.core.memory.line.capacity_bytes |= {1: 40 * GIB}
    line.register(7, memory_percent=25)
    line.attach(1, job_id=7, memory_bytes=20 * GIB)
    line.attach(2, job_id=7, gpu=1, memory_bytes=10 * GIB)

    assert line.core.job(7).spec.memory_bytes == 20 * GIB
