"""Lanes never deadlock where "it fits now" does, and admit whoever fits."""

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from lane_jobs import InLanes, ItFitsNow, Plan
from lane_ranks import Ranks

from tandemd.core.errors import NeverFitsError
from tandemd.core.lanes.lanes import ORDERS, Lanes, Need

CAPACITY = 12


@st.composite
def worlds(draw, *, with_unknown=False):
    """Plans of jobs that each fit alone, and the order in which they act."""
    known = st.booleans() if with_unknown else st.just(value=True)
    plan = st.builds(Plan, st.integers(0, 4), st.integers(0, 8), st.integers(1, 3), known)
    choices = st.lists(st.integers(0, 4), max_size=60)
    return draw(st.lists(plan, min_size=1, max_size=5)), draw(choices)


def test_the_example_of_salus_locks_up_without_lanes_and_finishes_in_one():
    plans = [Plan(1, 7), Plan(1, 7)]
    by_turns = [step % 2 for step in range(60)]

    assert not ItFitsNow(CAPACITY, plans).finishes(by_turns)
    world = InLanes(CAPACITY, plans, "fifo")
    assert world.finishes(by_turns)


def test_it_fits_now_is_found_to_lock_up():
    plans, choices = find(
        worlds(),
        lambda world: not ItFitsNow(CAPACITY, world[0]).finishes(world[1]),
        settings=settings(database=None, max_examples=500, phases=[Phase.generate]),
    )

    assert len(plans) >= 2
    assert sum(plan.need.peak_bytes for plan in plans) > CAPACITY
    assert all(InLanes(CAPACITY, plans, order).finishes(choices) for order in ORDERS)


@pytest.mark.parametrize("order", ORDERS)
@settings(max_examples=50)
@given(world=worlds())
def test_in_lanes_everybody_finishes_and_never_waits_for_memory(order, world):
    plans, choices = world

    assert InLanes(CAPACITY, plans, order).finishes(choices)


@pytest.mark.parametrize("order", ORDERS)
@settings(max_examples=100)
@given(world=worlds(with_unknown=True))
def test_who_is_not_known_comes_alone_and_nobody_locks_up(order, world):
    plans, choices = world

    assert InLanes(CAPACITY, plans, order).finishes(choices)


def test_who_is_not_known_gets_what_the_others_do_not_hold_for_good():
    plans = [Plan(3, 6), Plan(2, 7, is_known=False)]  # 3 + 6 + 2 + 7 exceed 12

    assert InLanes(CAPACITY, plans, "fifo").finishes([step % 2 for step in range(60)])


@settings(max_examples=50)
@given(
    begun=st.integers(0, 3),
    lead=st.sampled_from([-1, 0, 1]),
    choices=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), max_size=20),
)
def test_ranks_that_wait_for_each_other_hand_their_lane_on(begun, lead, choices):
    ranks = Ranks(begun=begun, lead=lead)

    assert ranks.hand_on(choices)


class Admission(RuleBasedStateMachine):
    """Follows the answers with sets and sums of its own."""

    @initialize(order=st.sampled_from(sorted(ORDERS)))
    def begin(self, order):
        self.order = order
        self.lanes = Lanes(capacity_bytes=CAPACITY, order=order)
        self.needs, self.on, self.running = {}, set(), set()
        self.wanting = set()
        self.ranks = {}
        self.next = 0

    @rule(persistent=st.integers(0, 5), ephemeral=st.integers(0, 9), remaining=st.integers(1, 9))
    def request(self, persistent, ephemeral, remaining):
        need = Need(persistent_bytes=persistent, ephemeral_bytes=ephemeral)
        key = (0, str(self.next))
        if persistent + ephemeral > CAPACITY:
            with pytest.raises(
                NeverFitsError, match=f"{need.peak_bytes} B, {need.peak_bytes - CAPACITY} B more"
            ):
                self.lanes.request(key, need)
            return
        self.needs[key] = (persistent, ephemeral)
        served = 0
        first = {"fifo": 0, "srtf": remaining, "fair": served, "pack": -need.peak_bytes}
        self.ranks[key] = (first[self.order], self.next)
        self.next += 1
        would_come = self.lanes.has_room(need, CAPACITY)
        outcome = self.lanes.request(key, need, remaining_ns=remaining)
        assert would_come is (key in outcome.admitted)
        self.hear(outcome)

    @precondition(lambda self: self.on)
    @rule(number=st.integers(0, 9))
    def want(self, number):
        key = sorted(self.on)[number % len(self.on)]
        self.wanting.add(key)
        self.hear(self.lanes.want(key))

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 9))
    def end(self, number):
        key = sorted(self.running)[number % len(self.running)]
        self.running.remove(key)
        self.hear(self.lanes.end(key))

    @precondition(lambda self: self.on)
    @rule(number=st.integers(0, 9), persistent=st.integers(0, 2), ephemeral=st.integers(0, 2))
    def grow(self, number, persistent, ephemeral):
        """A job grows where there is room, which bars nobody."""
        key = sorted(self.on)[number % len(self.on)]
        before = self.needs[key]
        grown = (before[0] + persistent, before[1] + ephemeral)
        need = Need(persistent_bytes=grown[0], ephemeral_bytes=grown[1])
        if self.lanes.could_grow(key, need):
            self.needs[key] = grown
            self.hear(self.lanes.learn(key, need))
            assert self.lanes.alone == []

    @precondition(lambda self: self.needs)
    @rule(number=st.integers(0, 9))
    def leave(self, number):
        key = sorted(self.needs)[number % len(self.needs)]
        del self.needs[key]
        self.on.discard(key)
        self.running.discard(key)
        self.wanting.discard(key)
        self.hear(self.lanes.leave(key))

    def hear(self, outcome):
        for key in outcome.admitted:
            assert key in self.needs
            assert key not in self.on
            self.on.add(key)
        for key in outcome.begun:
            assert key in self.wanting
            self.wanting.remove(key)
            self.running.add(key)

    def sizes(self):
        return [max(self.needs[key][1] for key in lane) for lane in self.lanes.lanes]

    def free(self):
        return CAPACITY - sum(self.needs[key][0] for key in self.on) - sum(self.sizes())

    def fits(self, key):
        persistent, ephemeral = self.needs[key]
        growths = [ephemeral, *(max(0, ephemeral - size) for size in self.sizes())]
        return persistent + min(growths) <= self.free()

    @invariant()
    def what_is_promised_fits(self):
        assert frozenset().union(*self.lanes.lanes) == self.on
        assert sum(map(len, self.lanes.lanes)) == len(self.on)
        assert self.free() == self.lanes.free_bytes >= 0

    @invariant()
    def nobody_waits_who_could_come(self):
        line = sorted(self.needs.keys() - self.on, key=self.ranks.get)
        assert self.lanes.waiting == line
        looked_at = line[:1] if self.order == "fifo" else line
        assert not any(self.fits(key) for key in looked_at)
        assert all((self.lanes.missing_bytes(key) == 0) == self.fits(key) for key in line)

    @invariant()
    def a_lane_runs_one_at_a_time_and_never_rests_while_one_wants(self):
        for lane in self.lanes.lanes:
            running = lane & self.running
            assert len(running) <= 1
            assert running or not lane & self.wanting


TestAdmission = Admission.TestCase
TestAdmission.settings = settings(max_examples=60, stateful_step_count=30)
