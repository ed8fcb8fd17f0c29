"""The host must have room for what moves out, and gets back what is no longer used."""

import pytest
from test_core_homes import SIZE, Hosts, only
from test_core_tick_tock import GIB, Tock, both, second_turn

from tandemd.core.events import CopyPool, DropPool, MoveMemory, OfferFile, TakeBack
from tandemd.core.memory.homes import PIECE, UNIT, Home
from tandemd.core.memory.host_room import STEP
from tandemd.core.model import Process, SwapOutcome, Usage

MIB = 1 << 20
GONE = 40 * GIB  # two jobs of 70 GiB exceed the capacity of 100 GiB by this much
MINUTE_MS = 60_000


def home_of(**usage):
    usage = Usage(process_id=1, **usage)
    return Home(process=Process(process_id=1, job_id=1, gpu=0, usage=usage))


@pytest.mark.parametrize(
    ("target", "lacks"),
    [(100 * MIB, 0), (98 * MIB, PIECE), (50 * MIB, 50 * MIB + PIECE - UNIT), (0, 100 * MIB)],
)
def test_room_is_needed_for_what_goes_and_the_rest_of_its_last_piece(target, lacks):
    home = home_of(swappable_bytes=100 * MIB)
    assert home.lacks_bytes(target) == lacks

    home.give(1, 30 * MIB)
    assert home.lacks_bytes(target) == max(0, lacks - 30 * MIB)


def test_only_what_has_to_go_needs_room_on_the_host():
    talk = both(Tock(host_limit_bytes=2 * (GONE + STEP)))

    second_turn(talk)
    (gone,) = [talk.told[1]]
    assert GONE < gone.pool_bytes <= GONE + STEP
    talk.runs(2, 10_000)
    talk.ends_turn(2, after_ms=1)
    talk.moves(2)
    talk.moves(1)

    # If all 70 GiB of each needed room, neither could go: the host does not have 140 GiB.
    assert talk.target_gib(2) == 30
    assert talk.told[2].pool_bytes <= GONE + STEP
    assert talk.open_processes() == {1}


def test_turns_do_not_pass_where_the_host_has_no_room_for_what_has_to_go():
    talk = both(Tock(host_limit_bytes=2 * GONE - STEP))

    second_turn(talk)
    talk.runs(2, 10_000)
    talk.waits(1, after_ms=1)

    # The first would need 40 GiB of the second's memory to go, so it stays on the host.
    assert talk.open_processes() == {2}
    assert "that host_limit allows" in list(talk.core.job(2).story)[-1][1]
    assert "host_limit (79.8 GiB) is " in talk.lines(1)
    why = " too small for what it would displace; it gets no turn until others give that"
    assert why in talk.lines(1)


@pytest.mark.parametrize(
    ("rests_gib", "files_gib", "passes"), [(30, 100, True), (30, 10, False), (10, 100, False)]
)
def test_files_make_room_for_a_turn_as_far_as_there_are_files_and_what_rests(
    rests_gib, files_gib, passes
):
    limits = {"host_limit_bytes": (20 + rests_gib) * GIB, "file_limit_bytes": files_gib * GIB}
    talk = Tock(**limits)
    talk.start(3, rests_gib)
    talk.rests(3)
    talk.pause(3)
    talk.moves(3)

    both(talk)
    talk.runs(1, 10_000)
    talk.ends_turn(1, after_ms=1)

    assert talk.open_processes() == ({2} if passes else {1})


def test_what_rests_of_itself_makes_no_room_for_a_turn():
    talk = Tock(host_limit_bytes=60 * GIB, file_limit_bytes=100 * GIB)
    talk.start(2, 40)
    talk.rests(2)
    talk.pause(2)
    talk.moves(2)
    talk.start(1, 90)
    talk.works(1)
    talk.resume(2)
    talk.waits(2)

    assert talk.core.group_of(talk.core.job(2)).misfit_bytes > 0


def test_a_large_pool_is_made_only_of_what_is_plenty():
    talk = both(Tock(host_limit_bytes=GONE + PIECE))

    talk.runs(1, 10_000)
    talk.ends_turn(1, after_ms=1)

    assert talk.told[1].pool_bytes == GONE + PIECE - UNIT


def resumed(**options):
    """Process 1 was paused and is back on the GPU; it keeps the host memory it was given."""
    talk = Hosts(**options)
    talk.start(1, 2)
    talk.goes(1)
    talk.obeys(talk.resume(1), 1, swapped_bytes=0)
    return talk


def test_memory_of_the_host_that_is_not_used_any_more_is_given_back_after_a_while():
    talk = resumed()
    assert not only(talk.tick(after_ms=MINUTE_MS - 1), TakeBack)

    (ask,) = only(talk.tick(after_ms=1), TakeBack)
    assert (ask.process_id, ask.pool, ask.order, ask.since) == (1, 1, 3, 2)
    assert not only(talk.tick(after_ms=1), TakeBack)
    assert only(talk.obeys([ask], 1), DropPool) == [DropPool(process_id=1, pool=1)]

    (again,) = only(talk.pause(1), MoveMemory)  # and is given it anew
    assert (again.order, again.pool_bytes) == (4, SIZE)


def test_it_is_given_back_at_once_to_who_lacks_it():
    talk = resumed(host_limit_bytes=SIZE, file_limit_bytes=0)

    paused = talk.pause(2)
    (ask,) = only(paused, TakeBack)
    assert ask.process_id == 1
    assert not only(paused, MoveMemory)
    assert not any("stays" in line for line in talk.story(2)), "room is being made"

    (move,) = only(talk.obeys([ask], 1), MoveMemory)
    assert (move.process_id, move.pool_bytes) == (2, SIZE)


@pytest.mark.parametrize("outcome", [SwapOutcome.NOT_DRAINED, SwapOutcome.FAILED])
def test_who_does_not_give_it_back_is_let_alone_for_a_while(outcome):
    talk = resumed(host_limit_bytes=SIZE, file_limit_bytes=0)
    (ask,) = only(talk.pause(2), TakeBack)

    refused = talk.obeys([ask], 1, swap_outcome=outcome)
    assert not only(refused, DropPool, MoveMemory, OfferFile, TakeBack)
    assert "0 MiB are left" in talk.story(2)[-1]
    assert not any("stays" in line for line in talk.story(1))
    assert not only(talk.tick(after_ms=9_999), TakeBack)
    (again,) = only(talk.tick(after_ms=1), TakeBack)

    # Twice as long when it does so again.
    talk.obeys([again], 1, swap_outcome=outcome)
    assert not only(talk.tick(after_ms=19_999), TakeBack)
    assert only(talk.tick(after_ms=1), TakeBack)


def test_who_is_asked_for_it_hears_of_nothing_else_before_it_answers():
    talk = resumed()
    (ask,) = only(talk.tick(after_ms=MINUTE_MS), TakeBack)

    assert not only(talk.pause(1), MoveMemory)
    assert only(talk.obeys([ask], 1), MoveMemory)


def test_who_takes_turns_keeps_what_its_next_turn_needs():
    talk = both(Tock(host_limit_bytes=4 * GONE))
    second_turn(talk)
    talk.runs(2, 10_000)
    talk.ends_turn(2, after_ms=1)
    talk.moves(2)
    talk.moves(1)
    talk.works(1)

    talk.tick(after_ms=2 * MINUTE_MS)
    assert not talk.of(TakeBack)


def test_who_takes_turns_has_no_use_for_more_than_its_memory():
    home = home_of(swappable_bytes=50 * MIB)
    for order, size in enumerate((40, 8, 2, 10), 1):
        home.give(order, size * MIB)

    assert home.spare_pool(is_idle=False).number == 4
    assert home.spare_pool(is_idle=True).number == 1


def test_a_job_larger_than_the_hosts_memory_goes_to_files_bit_by_bit():
    size, host = 2 * GIB, 512 * MIB
    talk = Hosts(host_limit_bytes=host)
    talk.start(1, size=size)
    away = filed = files = 0

    actions = talk.pause(1)
    for _ in range(20):
        for move in only(actions, MoveMemory):
            away = size - move.target_bytes
            actions = talk.obeys([move], 1, swapped_bytes=away)
        for copy in only(actions, CopyPool):
            (offer,) = only(talk.copied(1, copy.pool), OfferFile)
            filed = min(away, filed + copy.size_bytes)
            files += 1
            actions = talk.obeys([offer], 1, filed_bytes=filed)
        if away == size:
            break

    assert away == size
    assert filed >= size - host
    assert files <= size / STEP


def test_a_bit_that_is_large_enough_for_a_file_goes():
    talk = Hosts(host_limit_bytes=STEP + PIECE - UNIT)
    talk.start(1, size=2 * GIB)

    (move,) = only(talk.pause(1), MoveMemory)

    assert move.target_bytes == 2 * GIB - STEP


def test_what_is_small_goes_whole_to_files_as_well():
    talk = Tock(file_limit_bytes=1 << 50)
    talk.start(1, 70)
    talk.start(2, 0.125)
    talk.works(1)

    talk.asks(1, 30)

    assert talk.target_gib(2) == 0


def test_no_bit_is_so_small_that_files_become_too_many():
    talk = Hosts(host_limit_bytes=STEP - 2 * MIB)
    talk.start(1, size=2 * GIB)

    assert not only(talk.pause(1), MoveMemory, CopyPool)
    assert "MiB of the host, and" in talk.story(1)[-1]
