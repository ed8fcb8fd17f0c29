from dataclasses import replace

import pytest
from talk import Talk

from tandemd.core.explain.explain import explain
from tandemd.core.memory.line import held_bytes

GIB = 1 << 30
UNSEEN = "process 1 holds memory that its shim has not seen: 6144 MiB by the driver's count"


@pytest.fixture
def talk():
    talk = Talk()
    talk.attach(1)
    talk.sample(1, device_bytes=4 * GIB)
    return talk


def story(talk):
    return [line for _, line in talk.core.job(1).story]


def lines(talk):
    return explain(talk.core, talk.core.job(1), talk.now_ns).lines


def test_memory_that_the_shim_has_not_seen_is_told_once(talk):
    for _ in range(3):
        talk.audit(p1=(6 * GIB,))

    told = f"{UNSEEN}, 4096 MiB by its own"
    assert story(talk).count(told) == 1
    assert told in lines(talk)


def test_what_contexts_and_libraries_take_is_no_finding(talk):
    for _ in range(3):
        talk.audit(p1=(5 * GIB,))

    assert not any("not seen" in line for line in (*story(talk), *lines(talk)))


def test_nor_is_what_they_take_on_each_of_several_gpus(talk):
    for _ in range(3):
        talk.audit(p1=(5 * GIB, 1 * GIB))

    assert not any("not seen" in line for line in (*story(talk), *lines(talk)))


def test_memory_that_the_shim_has_not_seen_may_be_on_any_gpu(talk):
    for _ in range(3):
        talk.audit(p1=(1 * GIB, 5 * GIB + 1))

    assert any(line.startswith(UNSEEN) for line in lines(talk))


def test_one_look_between_a_free_and_its_report_is_no_finding(talk):
    talk.audit(p1=(6 * GIB,))
    talk.audit(p1=(4 * GIB,))
    talk.audit(p1=(6 * GIB,))

    assert not any("not seen" in line for line in (*story(talk), *lines(talk)))


def test_of_what_a_process_does_not_count_the_median_of_three_looks_counts(talk):
    counted = []
    for gib in (5, 5, 8, 5, 4, 5, 6, 6):
        talk.audit(p1=(gib * GIB,))
        counted.append(held_bytes(talk.core.processes[1]) // GIB)

    assert counted == [4, 5, 5, 5, 5, 5, 5, 6]


def test_what_a_process_took_just_before_the_driver_was_asked_is_nothing_unseen(talk):
    for gib in (5, 6, 7, 8, 9):  # its own usage report lags behind
        talk.audit(p1=(gib * GIB,), claims={1: (gib * GIB, gib * GIB)})

    assert held_bytes(talk.core.processes[1]) == 4 * GIB
    assert not any("not seen" in line for line in story(talk))


def test_nor_is_what_it_was_asking_the_driver_for(talk):
    for gib in (5, 5, 6, 6):
        talk.audit(p1=(gib * GIB,), claims={1: (4 * GIB, gib * GIB)})
        talk.audit(p1=(4 * GIB,), claims={1: (4 * GIB, 4 * GIB)})

    assert held_bytes(talk.core.processes[1]) == 4 * GIB


def test_who_always_says_that_it_is_asking_hides_nothing(talk):
    for _ in range(3):
        talk.audit(p1=(9 * GIB,), claims={1: (4 * GIB, 99 * GIB)})

    assert held_bytes(talk.core.processes[1]) == 9 * GIB
    assert any("not seen" in line for line in story(talk))


def test_who_gives_back_more_than_the_driver_saw_holds_nothing_and_no_less(talk):
    for _ in range(3):
        talk.audit(p1=(1 * GIB,))
    assert held_bytes(talk.core.processes[1]) == 1 * GIB

    talk.sample(1, device_bytes=2 * GIB)

    assert held_bytes(talk.core.processes[1]) == 0


def test_it_is_told_anew_after_it_was_gone(talk):
    for size in (6, 6, 4, 7, 7):
        talk.audit(p1=(size * GIB,))

    assert sum("not seen" in line for line in story(talk)) == 2


def test_a_process_that_has_ended_is_passed_over(talk):
    talk.attach(2)
    talk.leave(1)

    talk.audit(p1=(6 * GIB,), p2=(0,))

    assert not any("not seen" in line for line in story(talk))


def test_a_claim_far_above_what_is_held_counts_as_what_is_held(talk):
    process = talk.core.processes[1]
    talk.audit(p1=(1 * GIB,))
    assert held_bytes(process) == 4 * GIB  # a single look may fall between a free and its report

    talk.audit(p1=(1 * GIB,))
    assert held_bytes(process) == 1 * GIB
    told = (
        "process 1 says that it holds 4096 MiB, but the driver says 1024 MiB, "
        "which is what counts for others"
    )
    assert story(talk).count(told) == 1
    assert told in lines(talk)

    talk.sample(1, device_bytes=6 * GIB)  # an increase that the driver has not been asked about
    assert held_bytes(process) == 3 * GIB
    talk.audit(p1=(6 * GIB,))
    assert held_bytes(process) == 6 * GIB
    assert told not in lines(talk)


def test_only_what_two_looks_have_denied_does_not_count(talk):
    talk.audit(p1=(1 * GIB,))
    talk.sample(1, device_bytes=12 * GIB)  # allocated after the driver was asked
    talk.audit(p1=(1 * GIB,))

    assert held_bytes(talk.core.processes[1]) == 9 * GIB


@pytest.mark.parametrize("why", ["mps", "not all is known"])
def test_where_the_driver_may_not_say_all_a_claim_counts(talk, why):
    if why == "mps":
        options = replace(talk.core.options, mps_gpus=frozenset({0}))
        talk.core.change_options(options, now_ns=talk.now_ns)
    for _ in range(3):
        talk.audit(p1=(1 * GIB,), is_complete=why == "mps")

    assert held_bytes(talk.core.processes[1]) == 4 * GIB
