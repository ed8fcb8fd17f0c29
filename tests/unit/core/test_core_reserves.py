"""The memory kept free of all jobs: who is told what is left, who waits, and in what words."""

import pytest
from talk import Talk

from tandemd.core.events import MemoryAudited, SetMemoryLease, SetMemoryLimit, SetMemoryPlace
from tandemd.core.explain.explain import explain
from tandemd.core.memory.reserves import Reserve
from tandemd.core.model import NO_LIMIT, MemoryWait, Options

GIB = 1 << 30
TOTAL = 80 * GIB
KEY = "gpu.*.reserve_memory"


class Kept(Talk):
    """Remembers what each process was told last of what it may hold."""

    def __post_init__(self):
        super().__post_init__()
        self.limits, self.leases, self.places = {}, {}, {}

    def say(self, event):
        return self.take(super().say(event))

    def take(self, actions):
        for action in actions:
            match action:
                case SetMemoryLimit():
                    self.limits[action.process_id] = action.limit_bytes
                case SetMemoryLease():
                    self.leases[action.process_id] = action.lease_bytes
                case SetMemoryPlace():
                    self.places[action.process_id] = action
        return actions

    def keep(self, gib):
        """Sets the reserve, like a daemon that reads its configuration, possibly again."""
        line = self.core.memory.line
        line.capacity_bytes = {0: TOTAL - gib * GIB, 1: TOTAL}
        line.reserves.put({0: Reserve(size_bytes=gib * GIB, key=KEY)} if gib else {})
        self.take(self.core.change_options(self.core.options, now_ns=self.now_ns))
        self.core.check_invariants()

    def holds(self, process_id, gib, **said):
        self.sample(process_id, device_bytes=int(gib * GIB), **said)

    def audited(self, process_id, gib):
        for _ in range(3):  # the median of three looks counts
            held = ((process_id, (int(gib * GIB),)),)
            self.say(MemoryAudited(now_ns=self.now_ns, held_bytes=held, is_complete=True))

    def mays(self, *process_ids):
        return [_gib(self.leases.get(number, NO_LIMIT)) for number in process_ids]

    def sees(self, process_id):
        return _gib(self.limits[process_id])

    def explains(self, job_id):
        told = explain(self.core, self.core.jobs[job_id], self.now_ns)
        return "\n".join((told.summary, *told.lines))


def _gib(size_bytes):
    return None if size_bytes == NO_LIMIT else size_bytes / GIB


def wants(ticket, gib, *, is_quota):
    return MemoryWait(
        ticket=ticket, size_bytes=gib * GIB, is_quota=is_quota, is_alone=True, tried_round=0
    )


@pytest.fixture
def kept():
    kept = Kept()
    kept.keep(10)
    return kept


def test_jobs_of_all_users_together_may_hold_the_rest(kept):
    kept.attach(1, uid=1001)
    kept.attach(2, uid=1002)
    assert (kept.sees(1), kept.mays(1, 2)) == (70, [70, 70])

    kept.holds(1, 50)
    assert kept.mays(1, 2) == [70, 20]
    kept.holds(2, 20)
    assert kept.mays(1, 2) == [50, 20]

    kept.leave(1)
    assert (kept.sees(2), kept.mays(2)) == (70, [70])


def test_without_one_nobody_is_told_anything():
    free = Kept()
    free.keep(0)
    free.attach(1)
    free.attach(2)
    free.holds(1, 50)

    assert (free.sees(1), free.mays(1, 2)) == (None, [None, None])


def test_it_is_of_that_gpu_alone(kept):
    kept.attach(1, gpu=0)
    kept.attach(2, gpu=1)
    kept.holds(2, 75)

    assert (kept.sees(2), kept.mays(1, 2)) == (None, [70, None])


def test_a_limit_of_its_own_stays_what_it_sees(kept):
    kept.attach(1, memory_bytes=30 * GIB)
    kept.attach(2)
    kept.holds(2, 60)

    assert (kept.sees(1), kept.mays(1)) == (30, [10])


def test_contexts_count_and_what_is_on_the_host_does_not(kept):
    kept.attach(1, swappable=True)
    kept.attach(2)
    kept.holds(1, 40, swappable_bytes=40 * GIB)
    kept.audited(1, 42)
    assert kept.mays(1, 2) == [68, 28]

    kept.holds(1, 40, swappable_bytes=40 * GIB, swapped_bytes=30 * GIB)
    assert kept.mays(1, 2) == [98, 58]  # by its own count, which includes those 30


def test_another_one_holds_for_what_comes_and_nothing_is_taken(kept):
    kept.attach(1)
    kept.attach(2)
    kept.holds(1, 60)

    kept.keep(30)
    assert kept.mays(1, 2) == [60, 0]
    assert (
        "all jobs hold 60 GiB of the 50 GiB that they may hold on gpu 0, where 30 GiB is kept "
        f"free ({KEY}): they keep what they have and get no more"
    ) in kept.explains(2)

    kept.keep(0)
    assert (kept.sees(2), kept.mays(1, 2)) == (None, [None, None])
    assert "kept free" not in kept.explains(2)


def test_no_more_is_promised_than_jobs_may_have(kept):
    kept.attach(1, memory_min_bytes=50 * GIB)
    spec = kept.core.jobs[1].spec

    told = kept.core.objection_to(spec, gpus=frozenset({0}))

    assert "gpu 0 has 70 GiB beside the 10 GiB kept free, 50 GiB of it promised to others" in told
    kept.keep(40)
    assert not kept.core.jobs[1].is_minimum_kept


def test_an_allocation_that_may_wait_waits_as_on_a_full_gpu(kept):
    kept.attach(1)
    kept.attach(2, wait_memory_ns=10**12)
    kept.holds(1, 65)

    kept.sample(2, memory_wait=wants(1, 10, is_quota=True))
    assert "waits for 10 GiB of device memory, 1st in line; others hold" in kept.explains(2)
    round_before = kept.places[2].round
    kept.holds(1, 66)
    assert kept.places[2].round == round_before  # nothing has changed that could help it
    kept.holds(1, 50)

    assert (kept.mays(2), kept.places[2].round > round_before) == ([20], True)


def test_who_waits_tries_again_when_the_driver_says_that_others_hold_less(kept):
    kept.attach(1)
    kept.attach(2, wait_memory_ns=10**12)
    kept.holds(1, 55)
    kept.audited(1, 65)  # its contexts
    kept.sample(2, memory_wait=wants(1, 10, is_quota=True))
    round_before = kept.places[2].round

    kept.audited(1, 56)

    assert (kept.mays(2), kept.places[2].round > round_before) == ([14], True)


def test_what_jobs_may_never_have_is_refused_at_once(kept):
    kept.attach(1, wait_memory_ns=10**12)

    kept.sample(1, memory_wait=wants(1, 75, is_quota=True))

    assert kept.places[1].is_refused


@pytest.mark.parametrize(("gib", "goes"), [(0, False), (10, True)])
def test_memory_that_moves_makes_room_as_on_a_smaller_gpu(gib, goes):
    kept = Kept(options=Options(policy="fair", host_limit_bytes=200 * GIB))
    kept.keep(gib)
    kept.attach(1, swappable=True)
    kept.attach(2, swappable=True)
    kept.holds(1, 40, swappable_bytes=40 * GIB)
    kept.holds(2, 30, swappable_bytes=30 * GIB)

    asks = wants(1, 5, is_quota=gib > 0)
    kept.sample(2, device_bytes=30 * GIB, swappable_bytes=30 * GIB, memory_wait=asks)

    assert (bool(kept.core.residency.crowds), kept.places[2].is_refused) == (goes, False)


def test_the_story_says_what_was_in_the_way(kept):
    kept.attach(1)
    kept.attach(2)
    kept.holds(1, 65)

    kept.sample(2, refused_by=(1, 0, 0))

    told = [line for _, line in kept.core.jobs[2].story]
    assert "told out of memory by what is kept free of all jobs on its gpu" in told
