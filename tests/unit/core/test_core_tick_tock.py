"""Jobs whose memory does not fit together take turns on the GPU, moving memory in and out."""

from dataclasses import replace

import pytest
from talk import BATCH, LATENCY, MS, Talk

from tandemd.core.events import MoveMemory, SetMemoryPlace, UsageSampled
from tandemd.core.explain.explain import explain
from tandemd.core.model import (
    NEVER_IDLE_NS,
    NO_LIMIT,
    MemoryWait,
    Options,
    Preemption,
    SwapOutcome,
    WaitReason,
)

MIB = 1 << 20
GIB = 1 << 30
RATE = 1e12  # bytes per second, until measured


class Tock(Talk):
    """Processes that move their memory as soon as they are told to."""

    capacity = 100 * GIB

    def __init__(self, **options):
        kept = {"policy": "fair", "link_bytes_s": RATE, "host_limit_bytes": 1 << 50}
        super().__init__(options=Options(**(kept | options)))
        self.core.memory.line.capacity_bytes = {0: self.capacity}
        self.told = {}
        self.places = {}

    def say(self, event):
        for action in super().say(event):
            if isinstance(action, MoveMemory):
                self.told[action.process_id] = action
            if isinstance(action, SetMemoryPlace):
                self.places[action.process_id] = action
        return self.actions

    def start(self, process_id, gib, *, swappable=True, **spec):
        self.register(process_id, swappable=swappable, **spec)
        self.attach(process_id, swappable=swappable, **spec)
        self.map(process_id)
        if gib:
            self.holds(process_id, gib, swappable=swappable)

    def holds(self, process_id, gib, *, swappable=True):
        size = int(gib * GIB)
        self.sample(process_id, device_bytes=size, swappable_bytes=size if swappable else 0)

    def asks(self, process_id, gib, *, ticket=1, tried=0):
        return self.sample(
            process_id,
            memory_wait=MemoryWait(
                ticket=ticket,
                size_bytes=int(gib * GIB),
                is_quota=False,
                is_alone=True,
                tried_round=tried,
            ),
        )

    def gets(self, process_id, gib):
        """The process gets the memory that it asked for."""
        size = self.usages[process_id].device_bytes + int(gib * GIB)
        return self.sample(
            process_id, memory_wait=None, device_bytes=size, swappable_bytes=size, busy=True
        )

    def moves(self, process_id):
        """The process carries out its newest order."""
        move, usage = self.told[process_id], self.usages[process_id]
        away = max(0, usage.swappable_bytes - move.target_bytes)
        return self.sample(
            process_id,
            swapped_bytes=away,
            swap_done=move.order,
            swap_outcome=SwapOutcome.REACHED,
        )

    def target_gib(self, process_id):
        """Target of the newest order; None: all memory, or no order was given."""
        move = self.told.get(process_id)
        return None if move is None or move.target_bytes == NO_LIMIT else move.target_bytes / GIB

    def may_try(self, process_id):
        place = self.places.get(process_id)
        return place is not None and place.ticket != 0 and not place.is_refused

    def runs(self, process_id, ms):
        """The process computes for so long."""
        return self.works(process_id, after_ms=ms, ran_ms=ms)

    def ends_turn(self, process_id, *, after_ms=0.0):
        """Its work drains behind the closed gate, and it waits for its next turn."""
        return self.waits(process_id, after_ms=after_ms)

    def lines(self, job_id):
        explained = explain(self.core, self.core.job(job_id), self.now_ns)
        return " ".join((explained.summary, *explained.lines))


def both(talk, one=70, other=70):
    """Two jobs that do not fit together; the first has the turn and all of its memory."""
    talk.start(1, one)
    talk.start(2, 0)
    talk.works(1)
    talk.asks(2, other)
    return talk


def second_turn(talk, after_ms=10_000):
    """The turn has passed to the second, which has taken the memory it asked for."""
    talk.runs(1, after_ms)
    talk.ends_turn(1, after_ms=1)
    talk.moves(1)
    talk.gets(2, 70)


def test_memory_of_the_one_goes_as_far_as_the_other_needs_it_when_its_turn_ends():
    talk = both(Tock())
    assert talk.open_processes() == {1}
    assert not talk.told
    assert not talk.may_try(2), "it would take what the first needs"

    talk.runs(1, 10_000)  # its quantum is over
    assert not talk.told, "it has work on the gpu"
    talk.ends_turn(1, after_ms=1)
    assert talk.open_processes() == {2}
    assert talk.target_gib(1) == 30
    talk.moves(1)
    assert talk.may_try(2)
    talk.gets(2, 70)
    assert 2 not in talk.told

    talk.runs(2, 10_000)
    assert talk.target_gib(1) is None, "its memory comes while the other drains"
    assert talk.target_gib(2) is None
    talk.ends_turn(2, after_ms=1)
    assert talk.open_processes() == {1}
    assert talk.target_gib(2) == 30


def test_without_permission_to_move_memory_it_is_refused_at_once():
    talk = Tock()
    talk.start(1, 70, swappable=False)
    talk.start(2, 0, swappable=False)
    talk.works(1)
    talk.asks(2, 70)
    assert talk.places[2].is_refused


def test_jobs_that_fit_together_are_left_alone():
    talk = both(Tock(), 50, 40)
    assert talk.may_try(2)
    assert not talk.core.residency.crowds
    talk.gets(2, 40)
    talk.runs(1, 20)
    assert not talk.told


@pytest.mark.parametrize("over", [40, 1])
def test_a_turn_lasts_fifty_times_what_passing_it_on_takes(over):
    talk = Tock()
    talk.core.memory.line.capacity_bytes = {0: (140 - over) * GIB}
    least_ms = 50 * over * GIB / RATE * 1000
    second_turn(both(talk), after_ms=least_ms)
    group = talk.core.group_of(talk.core.job(2))
    assert group.turn_ns / MS == pytest.approx(least_ms)
    assert "50 times" in talk.lines(2)

    talk.runs(2, least_ms - 1)
    assert talk.open_processes() == {2}
    talk.runs(2, 2)
    assert talk.open_processes() == set(), "it drains"


def test_what_passing_the_turn_on_takes_is_by_what_both_need():
    talk = both(Tock(), one=70, other=40)
    talk.runs(1, 10_000)
    talk.ends_turn(1, after_ms=1)
    talk.moves(1)
    talk.gets(2, 40)

    group = talk.core.group_of(talk.core.job(2))

    assert group.stall_ns == int(10 * GIB / RATE * 1e9)


def test_what_passing_the_turn_on_takes_is_measured():
    talk = both(Tock())
    second_turn(talk)
    group = talk.core.group_of(talk.core.job(2))
    assert group.stall_ns == int(40 * GIB / RATE * 1e9)
    talk.sample(1, swap_out_bytes=40 * GIB, swap_out_ns=4 * 10**9, swap_in_bytes=1, swap_in_ns=9)
    assert group.stall_ns == 4 * 10**9
    talk.sample(1, swap_in_bytes=40 * GIB, swap_in_ns=5 * 10**9)
    assert group.stall_ns == 5 * 10**9, "the slower way counts"


@pytest.mark.parametrize("honest", [(), (1, 2)])
def test_one_who_says_that_its_copies_take_for_ever_changes_nobodys_turn(honest):
    talk = both(Tock())
    second_turn(talk)
    for job in honest:
        talk.sample(job, swap_out_bytes=40 * GIB, swap_out_ns=4 * 10**9)
    group = talk.core.group_of(talk.core.job(2))
    honest_ns = group.stall_ns

    talk.start(3, 0.25)
    talk.sample(3, swap_out_bytes=64 * MIB, swap_out_ns=1 << 60)

    assert group.stall_ns == honest_ns


def test_no_rate_is_believed_that_no_link_can_have():
    talk = both(Tock())
    second_turn(talk)
    talk.sample(1, swap_out_bytes=64 * MIB, swap_out_ns=1 << 60)

    group = talk.core.group_of(talk.core.job(2))
    assert group.stall_ns == int(40 * GIB / RATE * 128 * 1e9)


def test_the_first_time_it_takes_longer_as_filling_the_hosts_memory_did_before():
    talk = both(Tock())
    first, second = (talk.core.group_of(talk.core.job(number)) for number in (1, 2))
    stall_ns = int(40 * GIB / RATE * 1e9)
    talk.made(2, size_bytes=64 * MIB - 1, took_ns=10**9)
    assert (first.stall_ns, first.fill_ns) == (stall_ns, 0), "of so little nothing can be told"

    talk.made(2, size_bytes=3 * GIB, took_ns=10**9)
    talk.made(2, size_bytes=GIB - 64 * MIB + 1, took_ns=10**9)

    leaves_bytes = 40 * GIB + 30 * MIB  # the last piece moves whole
    assert first.fill_ns == leaves_bytes * 3 * 10**9 // (4 * GIB)
    assert first.stall_ns == stall_ns, "what turns go by is that of every time"
    told = "memory has to be exchanged, and this time at least 30 s more, to fill host memory"
    assert told in talk.lines(2)

    second_turn(talk)
    assert (first.fill_ns, second.fill_ns) == (0, leaves_bytes * 3 * 10**9 // (4 * GIB))
    talk.runs(2, 10_000)
    talk.ends_turn(2, after_ms=1)
    talk.moves(2)
    talk.works(1)
    assert (first.stall_ns, first.fill_ns) == (stall_ns, 0), "it has what it had the first time"
    assert "to fill host memory" not in talk.lines(1)


def test_copies_that_took_no_time_tell_no_rate():
    talk = both(Tock())
    second_turn(talk)
    talk.sample(1, swap_out_bytes=64 * MIB, swap_out_ns=0)

    group = talk.core.group_of(talk.core.job(2))
    assert group.stall_ns == int(40 * GIB / RATE * 1e9)


def test_who_was_held_for_long_keeps_its_turn_as_long_as_passing_it_on_takes():
    talk = both(Tock(policy="fifo"))
    second_turn(talk, after_ms=20_000)  # the longest that anybody may be held

    talk.runs(2, 1000)

    assert talk.core.group_of(talk.core.job(2)).turn_ns > 1000 * MS
    assert talk.open_processes() == {2}


def test_who_waits_for_its_memory_keeps_its_turn_however_long_that_takes():
    talk = both(Tock())
    second_turn(talk)
    talk.waits(1)
    talk.runs(2, 10_000)
    talk.ends_turn(2, after_ms=1)
    talk.moves(2)
    assert talk.open_processes() == {1}

    for _ in range(30):
        talk.waits(1, after_ms=100, reason=WaitReason.MEMORY)

    assert talk.open_processes() == {1}


def test_who_is_idle_keeps_its_turn_no_longer_than_who_works():
    talk = both(Tock(max_hold_ns=1_000 * MS))
    second_turn(talk)
    talk.sample(1, swap_out_bytes=40 * GIB, swap_out_ns=4 * 10**9)
    group = talk.core.group_of(talk.core.job(2))
    assert group.stall_ns > group.turn_ns == 1_000 * MS

    talk.rests(2, after_ms=1)
    talk.tick(after_ms=999)
    assert talk.open_processes() == {2}
    talk.tick(after_ms=2)
    assert talk.open_processes() == {1}


def summary(talk, job_id):
    return explain(talk.core, talk.core.job(job_id), talk.now_ns).summary


def test_who_waits_for_its_turn_hears_whose_it_is_until_when_and_what_comes_with_it():
    talk = both(Tock())
    talk.tick(after_ms=4)
    assert summary(talk, 2) == (
        "waits 4.0 ms for its turn: j-1 (class normal) has the gpu for 2.1 s more, if its "
        "work lasts that long; at most 2.4 s more; with the turn comes the 70 GiB that it asks for"
    )
    assert "passing the turn of j-1 on takes 43 ms: memory has to be exchanged" in talk.lines(2)

    second_turn(talk)
    talk.waits(1, after_ms=147)
    talk.runs(2, 147)
    assert summary(talk, 1).startswith(
        "waits 295 ms for its turn: j-2 (class normal) has the gpu for 2.0 s more,"
    )
    assert "with the turn comes 40 GiB of its memory from the host" in summary(talk, 1)


def test_who_comes_before_is_named():
    talk = both(Tock())
    talk.start(3, 0)
    talk.asks(3, 70)

    assert "for its turn, 2nd in line behind j-2: j-1 (class" in summary(talk, 3)


def test_behind_a_higher_class_it_is_not_known_when_the_turn_comes():
    talk = Tock(policy="priority")
    talk.start(1, 70)
    talk.start(2, 0, job_class=BATCH)
    talk.works(1)
    talk.asks(2, 70)

    assert "j-1 (class normal) has the gpu" in summary(talk, 2)
    assert summary(talk, 2).endswith(
        "; at most 20 s more; with the turn comes the 70 GiB that it asks for"
    )


def test_who_fits_waits_for_a_turn_without_a_word_of_memory():
    talk = both(Tock(), 50, 40)
    talk.gets(2, 40)
    talk.waits(2)

    assert "memory" not in summary(talk, 2)


def test_nobody_is_held_for_longer_than_allowed_because_of_that():
    talk = Tock(max_hold_ns=1_000 * MS)
    second_turn(both(talk))
    group = talk.core.group_of(talk.core.job(2))
    assert group.turn_ns == 1_000 * MS
    assert "max_hold" in talk.lines(2)


def test_what_fits_beside_the_running_job_is_brought_in_for_the_next_meanwhile():
    talk = Tock()
    for job in (1, 2, 3):
        talk.start(job, 0)
    talk.works(1)
    talk.holds(1, 60)
    talk.asks(2, 60)
    talk.asks(3, 60)
    # Each, in its turn, takes what it asks for from the job whose turn comes last.
    talk.runs(1, 10_000)
    talk.ends_turn(1, after_ms=1)
    assert talk.target_gib(1) == 40
    talk.moves(1)
    talk.gets(2, 60)
    talk.runs(2, 10_000)
    talk.ends_turn(2, after_ms=1)
    assert talk.open_processes() == {3}
    assert talk.target_gib(1) == 40, "it is next: its memory stays"
    assert talk.target_gib(2) == 0
    talk.moves(2)
    talk.gets(3, 60)

    talk.runs(3, 10_000)
    talk.ends_turn(3, after_ms=1)
    assert talk.open_processes() == {1}
    talk.moves(3)
    talk.moves(1)
    assert talk.open_processes() == {1}
    # While the first computes, the third's remaining memory makes room for the second's.
    talk.works(1, after_ms=1)
    assert talk.target_gib(3) == 0
    assert talk.target_gib(2) == 40


def test_who_does_not_fit_beside_what_cannot_be_moved_gets_no_turn():
    talk = both(Tock())
    second_turn(talk)  # the first is now partly on the host
    talk.start(3, 40, swappable=False)
    talk.works(3)
    talk.rests(2)
    assert talk.core.group_of(talk.core.job(1)).misfit_bytes == 10 * GIB
    assert "10 GiB" in talk.lines(1)
    talk.rests(3, after_ms=2)
    talk.tick(after_ms=50)
    assert talk.core.rings.turns[frozenset({0}), 0].holder is None
    talk.leave(3)
    assert talk.core.rings.turns[frozenset({0}), 0].holder == (1000, "j:1")


def stranded(talk, **third):
    """40 of the first's 70 GiB are on the host; beside the third's 40 it has room for only 60."""
    both(talk)
    second_turn(talk)
    talk.start(3, 40, **third)
    talk.works(3)
    talk.rests(2)
    talk.tick(after_ms=50)
    assert talk.core.group_of(talk.core.job(1)).misfit_bytes == 10 * GIB
    return talk


def turn_ends(talk):
    talk.rests(3, after_ms=1)
    talk.tick(after_ms=50)
    assert talk.core.rings.turns[frozenset({0}), 0].holder is None


def test_who_calls_finds_out_whether_there_is_room_for_it_once_nobody_has_the_turn():
    talk = stranded(Tock(), swappable=False)
    assert talk.target_gib(1) == 30, "the third computes"

    turn_ends(talk)

    assert talk.target_gib(1) is None


def test_who_does_not_call_is_not_brought_in_to_find_out():
    talk = stranded(Tock(), swappable=False)
    talk.rests(1)

    turn_ends(talk)

    assert talk.target_gib(1) == 30


def test_who_was_idle_for_long_and_calls_again_finds_out_as_well():
    talk = Tock()
    talk.start(1, 70, idle_release_ns=10**9)
    talk.rests(1)
    talk.tick(after_ms=1000)
    talk.moves(1)
    assert talk.target_gib(1) == 0
    talk.start(2, 70)
    talk.start(3, 40, swappable=False)

    talk.waits(1, reason=WaitReason.MEMORY)

    assert talk.core.group_of(talk.core.job(1)).misfit_bytes == 10 * GIB
    assert talk.target_gib(1) is None


def test_beside_who_takes_no_turns_it_finds_out_as_well():
    talk = stranded(Tock(policy="priority"), job_class=LATENCY)

    assert talk.core.rings.turns[frozenset({0}), 0].holder is None
    assert talk.core.group_of(talk.core.job(3)).calls
    assert talk.target_gib(1) is None


def test_what_is_paused_takes_no_room_though_it_would_take_no_turns():
    talk = Tock(policy="priority")
    talk.start(1, 70, job_class=LATENCY)
    talk.rests(1)
    talk.start(2, 60)
    talk.works(2)
    talk.start(3, 0)

    talk.pause(1)
    talk.asks(3, 60)
    talk.runs(2, 10_000)
    talk.ends_turn(2, after_ms=1)

    assert talk.open_processes() == {3}
    assert talk.target_gib(2) == 40


def test_a_claim_that_the_driver_denies_keeps_nobody_from_a_turn():
    talk = both(Tock())
    second_turn(talk)  # the first is now partly on the host
    talk.start(3, 1 << 20, swappable=False)
    talk.rests(2)
    talk.tick(after_ms=50)
    assert talk.core.group_of(talk.core.job(1)).misfit_bytes

    for _ in range(2):
        talk.audit(p1=(60 * GIB,), p2=(60 * GIB,), p3=())
    talk.works(1)
    talk.tick(after_ms=50)

    assert not talk.core.group_of(talk.core.job(1)).misfit_bytes
    assert talk.core.rings.turns[frozenset({0}), 0].holder is not None
    denied = "but the driver says 0 MiB, which is what counts for others"
    assert denied in talk.lines(3)


def test_memory_that_the_driver_counted_before_its_process_did_counts_once():
    talk = Tock()
    talk.start(1, 0)
    talk.audit(p1=(1 * GIB,))  # its context
    talk.audit(p1=(61 * GIB,))  # it was just given 60
    talk.holds(1, 60)
    talk.start(2, 0)

    talk.asks(2, 60)

    assert not talk.places[2].is_refused


def test_who_waits_is_told_for_how_long_still():
    talk = Tock()
    talk.start(1, 60, swappable=False)
    talk.start(2, 0, swappable=False, wait_memory_ns=5_000 * MS)
    talk.asks(2, 70)
    talk.tick(after_ms=1_700)

    assert "1st in line; others hold j-1 60 GiB; waits 1.7 s so far, at most 3.3 s" in talk.lines(2)


def test_room_that_is_not_there_is_learned_from_waiting_in_vain():
    talk = Tock()
    talk.start(1, 60)
    talk.start(2, 0)
    talk.rests(1)
    talk.asks(2, 39.9)  # fits by the count
    assert talk.may_try(2)
    for _ in range(4):
        talk.asks(2, 39.9, tried=talk.places[2].round)
        talk.tick(after_ms=260)
    assert talk.target_gib(1) is not None
    assert 58 < talk.target_gib(1) < 60


def test_nothing_is_learned_of_the_room_before_somebody_has_waited_for_long():
    talk = Tock()
    talk.start(1, 60)
    talk.start(2, 0)
    talk.rests(1)
    talk.tick(after_ms=1)
    talk.now_ns += 10_000 * MS  # no reports come meanwhile
    talk.asks(2, 39.9)
    assert talk.wake_at_ms == 250
    talk.asks(2, 39.9, tried=talk.places[2].round)
    assert not talk.told


def test_nothing_is_learned_of_the_room_where_nothing_can_be_moved():
    talk = Tock()
    talk.core.memory.line.capacity_bytes = {0: 100 * GIB, 1: 100 * GIB}
    talk.start(1, 10)
    for job, swappable in ((2, False), (3, False), (4, True), (5, True)):
        talk.attach(job, gpu=1, swappable=swappable, wait_memory_ns=10**12)
        if job == 2:
            talk.holds(2, 60, swappable=False)
        if job == 3:
            for _ in range(9):
                talk.asks(3, 50)
                talk.tick(after_ms=260)
            talk.sample(3, memory_wait=None)
    talk.holds(4, 30)
    talk.asks(5, 20)
    assert talk.core.residency.crowds[frozenset({1})].room_bytes == 40 * GIB


def test_waiting_for_more_than_there_can_be_teaches_nothing_about_the_room():
    talk = Tock()
    talk.policy("priority")
    talk.start(1, 60)
    talk.start(2, 30, swappable=False)
    talk.start(3, 0, job_class=LATENCY, swappable=False, wait_memory_ns=10**12)
    talk.asks(3, 90)
    for _ in range(100):
        talk.asks(3, 90, tried=talk.places[3].round if 3 in talk.places else 0)
        talk.tick(after_ms=260)
    assert talk.core.residency.crowds[frozenset({0})].room_bytes == 70 * GIB
    assert not talk.told


def test_memory_that_came_back_by_itself_goes_again_when_it_is_needed():
    talk = both(Tock())
    second_turn(talk)
    order = talk.told[1].order
    talk.sample(1, swapped_bytes=0)  # its shim had lost contact with the daemon
    assert talk.told[1].order == order + 1
    assert talk.target_gib(1) == 30


def test_when_nothing_can_be_moved_any_more_nobody_waits_for_a_turn():
    talk = both(Tock())
    talk.start(3, 0, swappable=False, wait_memory_ns=10**12)
    talk.asks(3, 40)
    assert not talk.may_try(3)
    talk.leave(2)
    talk.leave(1)
    assert talk.may_try(3)


def test_a_request_for_which_there_is_never_room_is_refused():
    talk = Tock()
    talk.start(1, 60)
    talk.start(2, 10, swappable=False)
    talk.asks(1, 39)
    assert talk.places[1].is_refused


def test_an_idle_job_gives_up_its_memory_and_gets_it_back_when_it_calls():
    talk = Tock()
    talk.start(1, 70)
    talk.rests(1)
    talk.start(2, 0)
    talk.asks(2, 70)
    assert talk.target_gib(1) == 30, "nobody else wants the gpu"
    talk.moves(1)
    talk.gets(2, 70)
    talk.rests(2, after_ms=1)
    talk.tick(after_ms=60_000)
    assert talk.target_gib(1) == 30, "nobody asks for it"

    talk.waits(1, reason=WaitReason.MEMORY)
    assert talk.target_gib(1) is None
    assert talk.target_gib(2) == 30


def test_memory_that_the_host_has_no_room_for_stays_and_nobody_gets_its_turn():
    talk = both(Tock(host_limit_bytes=20 * GIB))
    talk.runs(1, 10_000)
    talk.ends_turn(1, after_ms=1)
    assert not talk.told
    assert "that host_limit allows" in list(talk.core.job(1).story)[-1][1]


def test_nobody_gets_a_turn_for_memory_that_cannot_go_to_the_host_now():
    talk = both(Tock(host_limit_bytes=40 * GIB))
    talk.runs(1, 60_000)
    turns = talk.is_open(1), talk.may_try(2)
    refused = talk.core.memory.line.waiters[2].is_refused

    talk.leave(1)

    assert turns == (True, False), "the first goes on, and the second waits"
    assert not refused
    assert talk.may_try(2)


def test_nobody_waits_for_the_host_that_has_room_for_all():
    talk = both(Tock())

    (crowd,) = talk.core.residency.crowds.values()

    groups = [talk.core.group_of(talk.core.job(number)) for number in (1, 2)]
    assert not any(map(crowd.waits_for_the_host, groups))


def test_without_files_a_small_bit_is_worth_it():
    talk = Tock(host_limit_bytes=100 * MIB)
    talk.start(1, 70)
    talk.start(2, 30)
    talk.works(1)

    talk.asks(1, 0.05)

    assert talk.target_gib(2) < 30
    talk.moves(2)
    assert talk.may_try(1)


def test_nobody_waits_for_others_memory_where_its_own_limit_is_in_the_way():
    talk = Tock()
    talk.start(1, 10, memory_bytes=20 * GIB)
    size_bytes = 15 * GIB

    wait = MemoryWait(ticket=1, size_bytes=size_bytes, is_quota=True, is_alone=True, tried_round=0)
    talk.sample(1, memory_wait=wait)

    assert talk.places[1].is_refused


def test_no_room_on_the_host_is_set_aside_for_memory_that_goes_for_nobody():
    talk = Tock(policy="priority", host_limit_bytes=31 * GIB)
    talk.start(1, 30, job_class=LATENCY)
    talk.start(2, 50)
    talk.start(3, 0)
    talk.works(2)
    talk.asks(3, 50)

    talk.runs(2, 10_000)
    talk.ends_turn(2, after_ms=1)

    assert talk.target_gib(1) is None
    assert talk.target_gib(2) == 20


def test_the_turn_is_kept_as_long_over_a_gap_as_passing_it_on_takes():
    talk = both(Tock())
    second_turn(talk)
    stall_ms = talk.core.group_of(talk.core.job(2)).stall_ns / MS
    talk.rests(2, after_ms=1)
    talk.tick(after_ms=stall_ms - 10)
    assert talk.open_processes() == {2}
    talk.tick(after_ms=20)
    assert talk.open_processes() == {1}


def guaranteed(talk, *, swappable):
    """A trainer that computes, and a server that asks for the memory it was promised."""
    talk.policy("priority")
    talk.start(1, 70, job_class=BATCH, swappable=swappable)
    talk.works(1)
    talk.start(2, 0, job_class=LATENCY, swappable=False, memory_min_bytes=40 * GIB)
    talk.asks(2, 40)
    return talk


def test_who_was_promised_memory_takes_it_from_others_at_the_end_of_their_iteration():
    talk = guaranteed(Tock(), swappable=True)
    assert talk.is_open(1)
    assert not talk.told
    talk.works(1, after_ms=100, ran_ms=100)
    assert talk.is_open(1), "in the middle of its iteration"
    talk.sample(1, steps=1)
    assert not talk.is_open(1)
    assert not talk.told, "it drains"
    talk.rests(1)
    assert talk.target_gib(1) == 60
    talk.moves(1)
    assert talk.may_try(2)
    talk.sample(2, memory_wait=None, device_bytes=40 * GIB)
    assert not talk.is_open(1), "it does not fit beside the server"
    assert "10 GiB too large" in talk.lines(1)

    talk.leave(2)
    talk.waits(1)
    assert talk.is_open(1)
    assert talk.target_gib(1) is None


def test_memory_goes_to_who_was_promised_it_where_there_is_less_than_was_counted():
    talk = Tock()
    talk.policy("priority")
    talk.core.memory.line.capacity_bytes = {0: 74 * GIB}  # a stranger's process holds some
    talk.start(1, 36, job_class=BATCH)
    talk.works(1)
    talk.start(2, 0, job_class=LATENCY, swappable=False, memory_min_bytes=34 * GIB)
    talk.asks(2, 34)
    for steps in range(1, 100):
        if not talk.is_open(1):
            break
        talk.runs(1, 200)
        talk.sample(1, steps=steps)
    talk.waits(1)  # drained, but the memory held is too much for any job to take the turn
    talk.tick(after_ms=500)
    assert talk.core.rings.turns[frozenset({0}), 0].holder is None
    assert talk.target_gib(1) < 36


@pytest.mark.parametrize(("then", "times"), [("waits", 1), ("rests", 0)])
def test_who_gives_memory_up_has_lost_the_turn_if_it_has_work(then, times):
    talk = guaranteed(Tock(), swappable=True)
    talk.sample(1, steps=1)
    assert not talk.is_open(1)
    getattr(talk, then)(1)
    counts = talk.core.jobs[1].preemptions
    assert (counts[Preemption.MEMORY], sum(counts)) == (times, times)


def test_an_iteration_that_does_not_end_is_cut_for_who_was_promised_memory():
    talk = guaranteed(Tock(), swappable=True)
    talk.works(1, after_ms=999, ran_ms=999)
    assert talk.is_open(1)
    talk.works(1, after_ms=1, ran_ms=1)
    assert not talk.is_open(1)


def test_memory_goes_as_soon_as_work_is_over_that_did_not_drain_in_time():
    talk = guaranteed(Tock(drain_ns=20 * MS), swappable=True)
    talk.sample(1, steps=1)
    talk.works(1, after_ms=20, ran_ms=20)
    assert not talk.is_open(1), "its memory has to go before it gets another turn"
    talk.rests(1, after_ms=1)
    talk.tick(after_ms=1)
    assert talk.target_gib(1) == 60


def test_who_has_to_go_again_is_given_notice_again():
    talk = guaranteed(Tock(), swappable=True)
    talk.sample(1, swapped_bytes=MIB)  # its shim had lost contact with the daemon
    talk.sample(2, memory_wait=None)
    talk.now_ns += 2_000 * MS
    wait = MemoryWait(ticket=2, size_bytes=40 * GIB, is_quota=False, is_alone=True, tried_round=0)
    back, asking = talk.usages[1], talk.usages[2]
    samples = (replace(back, swapped_bytes=0), replace(asking, memory_wait=wait))
    talk.say(UsageSampled(now_ns=talk.now_ns, samples=samples))
    assert talk.is_open(1), "its iteration may end"


def test_memory_that_cannot_be_moved_is_taken_from_nobody():
    talk = guaranteed(Tock(), swappable=False)
    assert talk.places[2].is_refused
    talk.works(1, after_ms=2000, ran_ms=2000)
    assert talk.is_open(1)


def test_a_job_can_be_exempt_from_what_holds_for_idle_jobs():
    talk = Tock(idle_release_ns=10**9)
    talk.start(1, 70, idle_release_ns=NEVER_IDLE_NS)
    talk.works(1)
    talk.rests(1, after_ms=1)

    talk.tick(after_ms=60_000)
    assert not talk.told
    assert "when idle" not in talk.lines(1)


@pytest.mark.parametrize("how", ["for all", "for it"])
def test_an_idle_job_gives_its_memory_up_after_a_while_until_its_next_call(how):
    second_ns = 10**9
    talk = Tock(idle_release_ns=second_ns) if how == "for all" else Tock()
    talk.start(1, 70, idle_release_ns=0 if how == "for all" else second_ns)
    talk.works(1)
    talk.rests(1, after_ms=1)
    talk.tick(after_ms=1)  # it yields its turn
    assert talk.wake_at_ms == 999
    talk.tick(after_ms=998)
    assert not talk.told
    talk.tick(after_ms=1)
    assert talk.target_gib(1) == 0
    talk.moves(1)
    assert not talk.core.residency.crowds, "nobody is in anybody's way"
    talk.tick(after_ms=60_000)
    assert talk.target_gib(1) == 0

    talk.waits(1, reason=WaitReason.MEMORY)
    assert talk.target_gib(1) is None


def test_a_job_of_which_nothing_was_said_keeps_its_memory():
    talk = Tock()
    talk.start(1, 70)
    talk.works(1)
    talk.rests(1, after_ms=1)
    talk.tick(after_ms=10**9)
    assert not talk.told


def test_a_paused_job_keeps_the_minimum_that_it_was_promised():
    talk = Tock()
    talk.start(1, 70, memory_min_bytes=30 * GIB)
    talk.rests(1)

    talk.pause(1)

    assert talk.target_gib(1) == 30


@pytest.mark.parametrize(("minimum", "target"), [(0, 30), (25, 30), (40, None)])
def test_nobody_takes_of_a_job_what_it_was_promised(minimum, target):
    talk = Tock()
    talk.start(1, 70, memory_min_bytes=minimum * GIB)
    talk.start(2, 0)
    talk.works(1)
    talk.asks(2, 70)

    talk.runs(1, 10_000)
    talk.ends_turn(1, after_ms=1)

    assert talk.target_gib(1) == target
    assert talk.places[2].is_refused is (target is None)


def test_what_was_promised_to_a_third_is_no_room_for_two_others():
    talk = Tock()
    talk.start(3, 40, memory_min_bytes=20 * GIB)
    talk.rests(3)
    talk.start(1, 50)
    talk.works(1)
    talk.start(2, 0)

    talk.asks(2, 85)

    assert talk.places[2].is_refused
    talk.asks(2, 75, ticket=2)
    assert not talk.places[2].is_refused
