"""Compute instances of one GPU instance share one memory, which is counted once."""

from dataclasses import replace

import pytest
from talk import Talk

from tandemd.core.memory.memories import equal_parts, memory_of, sharing
from tandemd.core.model import JobSpec, MemoryWait, Options
from tandemd.edges.gpus import Instance

GIB = 1 << 30
FIRST, SECOND = (Instance(gpu=0, gpu_instance=2, compute_instance=c).index for c in (0, 1))
OTHER = Instance(gpu=0, gpu_instance=3).index
SIZES = {FIRST: 70 * GIB, SECOND: 70 * GIB, OTHER: 35 * GIB}


@pytest.fixture
def talk():
    names = {FIRST: "0:2", SECOND: "0:2:1", OTHER: "0:3"}
    talk = Talk(Options(mig_gpus=frozenset(SIZES), gpu_names=names))
    talk.core.memory.line.capacity_bytes = dict(SIZES)
    return talk


def objection(talk, gib, *gpus):
    spec = JobSpec(memory_min_bytes=gib * GIB)
    return talk.core.objection_to(spec, gpus=frozenset(gpus))


def test_who_has_one_memory_is_told_by_the_index():
    assert memory_of(FIRST) == memory_of(SECOND) != memory_of(OTHER)
    assert [memory_of(gpu) for gpu in (0, 7, 8, 127)] == [0, 7, 8, 127]
    assert sharing([SECOND], SIZES) == [FIRST, SECOND]
    assert sharing([0], [0, 1]) == [0]
    assert equal_parts(SIZES) == {FIRST: 35 * GIB, SECOND: 35 * GIB, OTHER: 35 * GIB}


def test_what_is_promised_on_one_is_promised_of_both(talk):
    talk.attach(1, gpu=FIRST, memory_min_bytes=50 * GIB)

    assert objection(talk, 20, SECOND) is None
    assert "gpu 0:2:1 has 70 GiB, 50 GiB of it promised" in objection(talk, 21, SECOND)
    assert objection(talk, 35, OTHER) is None


def test_a_job_on_none_yet_is_counted_on_both(talk):
    talk.register(1, memory_min_bytes=60 * GIB)

    assert "does not fit" in objection(talk, 40)
    assert objection(talk, 35) is None  # the other memory has room


def test_who_comes_to_the_other_later_is_not_promised_what_the_first_has(talk):
    talk.attach(1, gpu=FIRST, memory_min_bytes=50 * GIB)
    talk.attach(2, gpu=SECOND, memory_min_bytes=50 * GIB)

    kept = [talk.core.jobs[one].is_minimum_kept for one in (1, 2)]
    assert kept == [True, False]


def test_who_has_what_is_waited_for_may_be_on_the_other_instance(talk):
    talk.attach(1, gpu=FIRST, wait_memory_ns=10**12)
    talk.attach(2, gpu=SECOND, wait_memory_ns=10**12)
    talk.attach(3, gpu=OTHER, wait_memory_ns=10**12)
    wish = MemoryWait(ticket=1, size_bytes=GIB, is_quota=False, is_alone=True, tried_round=0)
    for process_id in (1, 2, 3):
        talk.sample(process_id, memory_wait=wish)

    line = talk.core.memory.line

    assert [[other.job.job_id for other in one.ahead] for one in line.standing] == [[], [1], []]


def test_what_others_hold_beside_it_is_no_room(talk):
    talk.attach(1, gpu=FIRST)
    talk.attach(2, gpu=SECOND)
    talk.attach(3, gpu=OTHER)
    for process_id, gib in ((1, 10), (2, 20), (3, 30)):
        talk.sample(process_id, device_bytes=gib * GIB)
    line = talk.core.memory.line

    assert line.beside_bytes(FIRST, frozenset({FIRST})) == 20 * GIB
    assert line.beside_bytes(OTHER, frozenset({OTHER})) == 0


@pytest.mark.parametrize(("neighbour", "is_crowded"), [(SECOND, True), (OTHER, False)])
def test_jobs_are_crowded_by_what_is_held_on_the_other_instance(talk, neighbour, is_crowded):
    talk.core.options = replace(talk.core.options, host_limit_bytes=1 << 50)
    talk.attach(9, gpu=neighbour)
    talk.sample(9, device_bytes=30 * GIB)
    for process_id in (1, 2):
        talk.attach(process_id, gpu=FIRST, swappable=True)
        talk.sample(process_id, device_bytes=25 * GIB, swappable_bytes=25 * GIB, busy=True)

    assert bool(talk.core.residency.crowds) is is_crowded


@pytest.mark.parametrize(("gib", "is_crowded"), [(15, True), (5, False)])
def test_jobs_that_are_tied_over_both_instances_have_one_memory(talk, gib, is_crowded):
    talk.core.options = replace(talk.core.options, host_limit_bytes=1 << 50)
    talk.attach(1, gpu=FIRST, swappable=True)
    talk.attach(2, gpu=FIRST, swappable=True)
    for process_id, gpu in ((8, FIRST), (9, SECOND)):
        talk.attach(process_id, job_id=1, gpu=gpu, swappable=True)
        talk.sample(process_id, device_bytes=gib * GIB)
    for process_id in (1, 2):
        talk.sample(process_id, device_bytes=25 * GIB, swappable_bytes=25 * GIB, busy=True)

    assert list(talk.core.residency.crowds) == [frozenset({FIRST, SECOND})] * is_crowded


@pytest.mark.parametrize(("neighbour", "room"), [(SECOND, 40), (OTHER, 70)])
def test_what_another_instance_holds_is_no_room_for_leases(talk, neighbour, room):
    talk.attach(9, gpu=neighbour)
    talk.sample(9, device_bytes=30 * GIB)

    assert talk.core.shifts._budget(FIRST, [], SIZES[FIRST]) == room * GIB
