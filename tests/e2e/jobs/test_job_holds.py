"""Jobs that would deadlock if they were held for good, with the real daemon."""

import pytest
from running_job import start_together

DRAIN_MS, QUANTUM_MS, MAX_HOLD_MS, ROUNDS = 40, 10, 20_000, 1


@pytest.fixture
def place(fresh_place):
    fresh_place.start_daemon(*fresh_place.configured(drain_ms=DRAIN_MS, policy='"fair"'))
    return fresh_place


def beside_a_rival(place):
    """Return a job beside another one that always has work."""
    rival = place.job("rival", "-p", "batch")
    job = place.job("tangled", "-p", "batch")
    rival.start("for_ever(lambda: waiting.short(gpu))")
    rival.result()
    return job


@pytest.mark.parametrize("waits_for", ["value", "from_host"])
def test_work_that_waits_for_what_is_held_gets_it_after_drain_ms(place, waits_for):
    job = beside_a_rival(place)

    result, held_ms = job.do(f"waiting.{waits_for}(gpu, word, {2 * QUANTUM_MS})")

    assert result == [15]
    assert DRAIN_MS / 2 < held_ms < DRAIN_MS * 1.5
    assert job.do("compute()") == [31]


def test_work_that_waits_for_an_event_of_another_stream_is_held_for_a_turn_only(place):
    job = beside_a_rival(place)

    result, held_ms = job.do(f"waiting.event(gpu, word, {2 * QUANTUM_MS})")

    assert result == [31]
    assert 0 < held_ms < DRAIN_MS / 2


# On the virtual clock no time passes while a host function runs.
@pytest.mark.parametrize("place", ["real"], indirect=True)
def test_a_host_function_that_waits_for_what_is_held_gets_it(place):
    job = beside_a_rival(place)

    result, held_ms = job.do(f"waiting.host_function(gpu, word, {3 * QUANTUM_MS})")

    assert result == [15]
    assert 0 < held_ms < MAX_HOLD_MS / 2  # in real time, of which a busy machine takes more


def test_a_job_is_held_no_longer_than_max_hold_in_any_policy(fresh_place):
    fresh_place.start_daemon(*fresh_place.configured(max_hold_s=0.05, policy='"fifo"'))
    job = beside_a_rival(fresh_place)  # the rival came first and never pauses

    waited_ms = job.do("waiting.how_long(compute)")

    assert 50 <= waited_ms < 50 + 20 + 110  # its own computing takes 100 ms


def ranks(place, share, *options):
    """Two jobs reduce with each other, through words that `share` gives them, beside a rival."""
    rival = place.job("rival", "-p", "batch")
    first, second = (place.job(f"rank{i}", "-p", "batch", *options) for i in range(2))
    share(first, second)
    rival.start("for_ever(lambda: waiting.short(gpu))")
    rival.result()
    start_together(
        {j: f"waiting.reduce(gpu, {i}, {ROUNDS})" for i, j in enumerate((first, second))}
    )
    return max(first.result(), second.result())


def by_ipc(first, second):
    second.do(f"waiting.import_(gpu, {first.do('waiting.export(gpu)')!r})")


# Memory of a job that can be moved is shared by Tandem, not by the driver.
@pytest.mark.parametrize("option", ["--no-swappable", "--swappable"])
def test_two_ranks_tied_by_ipc_meet_without_a_failed_drain(place, option):
    took_ms = ranks(place, by_ipc, option)

    assert "share memory or events" in place.explain("rank0")
    assert took_ms < DRAIN_MS


@pytest.mark.slow  # two seconds of virtual time
def test_two_ranks_that_nobody_knows_of_meet_too_but_late(place):
    path = place.folder / "words"
    path.write_bytes(bytes(4096))

    def by_file(*jobs):
        for job in jobs:
            job.do(f"waiting.map_(gpu, {str(path)!r})")

    took_ms = ranks(place, by_file)

    assert "share memory or events" not in place.explain("rank0")
    assert took_ms > 10 * DRAIN_MS
    assert any("undrainable" in place.explain(f"rank{i}") for i in range(2))
