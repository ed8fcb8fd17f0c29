"""Leases never deadlock jobs, whatever they do; memory handed out while there is any does."""

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from tandemd.core.curves.leases import Claim, lend

CAPACITY = 12


class Trainer:
    """Climbs to its peak step by step and back down to what it began with."""

    def __init__(self, number, rest, climb, is_new):
        self.number, self.rest, self.climb, self.is_new = number, rest, climb, is_new
        self.held, self.at = rest, 0

    @property
    def is_within(self):
        """A trainer that has ended no iteration is always within one."""
        return self.at > 0 or self.is_new

    @property
    def claim(self):
        if self.is_new:
            return Claim(more_bytes=None, left_ns=self.number)
        return Claim(more_bytes=max(0, self.climb - self.at), left_ns=2 * self.climb - self.at)

    def step(self, may_take):
        """Goes one unit up or down; False if it has to wait."""
        if self.at < self.climb:
            if may_take < 1:
                return False
            self.held += 1
        else:
            self.held -= 1
        self.at += 1
        if self.at == 2 * self.climb:
            self.at, self.is_new = 0, False
        return True


def by_leases(trainers, free):
    """At most two in an iteration, as in shifts.py; beside a new one, only one that can end."""
    within = [t for t in trainers if t.is_within]
    starting = next((t for t in trainers if not t.is_within), None)
    beside = within[0] if len(within) == 1 else None
    if starting and (not within or (beside and (not beside.is_new or starting.climb <= free))):
        within.append(starting)
    lent = lend([t.claim for t in within], free)
    by_number = {t.number: more for t, more in zip(within, lent, strict=True)}
    return [by_number.get(t.number, 0) for t in trainers]


def while_there_is_some(trainers, free):
    return [free] * len(trainers)


@st.composite
def worlds(draw):
    """Trainers that each fit beside the others at rest, and the order in which they act."""
    count = draw(st.integers(1, 3))
    rests = [draw(st.integers(0, 3)) for _ in range(count)]
    room = CAPACITY - sum(rests)
    climbs = [draw(st.integers(1, room)) for _ in range(count)]
    are_new = [draw(st.booleans()) for _ in range(count)]
    choices = draw(st.lists(st.integers(0, 2), max_size=80))
    return [*zip(rests, climbs, are_new, strict=True)], choices


def locks_up(world, rule):
    """Tell whether a time comes when no trainer can act."""
    plans, choices = world
    trainers = [Trainer(number, *plan) for number, plan in enumerate(plans)]
    for choice in (*choices, *range(3 * 4 * CAPACITY)):
        order = [*range(choice % len(trainers), len(trainers)), *range(choice % len(trainers))]
        free = CAPACITY - sum(t.held for t in trainers)
        may_take = rule(trainers, free)
        assert sum(may_take) <= free or rule is while_there_is_some
        if not any(trainers[i].step(may_take[i]) for i in order):
            return True
        assert sum(t.held for t in trainers) <= CAPACITY
    return False


@given(worlds())
def test_with_leases_somebody_can_always_go_on(world):
    assert not locks_up(world, by_leases)


def test_memory_that_is_handed_out_while_there_is_some_locks_up():
    phases = [Phase.generate]
    tried = settings(database=None, max_examples=500, phases=phases)

    plans, _ = find(worlds(), lambda world: locks_up(world, while_there_is_some), settings=tried)

    assert len(plans) >= 2


def test_the_first_is_the_one_that_can_end_and_has_least_left():
    slow, quick = Claim(more_bytes=3, left_ns=9), Claim(more_bytes=4, left_ns=5)

    assert lend([slow, quick], 10) == [6, 4]
    assert lend([slow, Claim(more_bytes=11, left_ns=1)], 10) == [3, 7]
    assert lend([slow, Claim(more_bytes=None, left_ns=1)], 10) == [3, 7]
    assert lend([Claim(more_bytes=12, left_ns=9), Claim(more_bytes=None, left_ns=1)], 10) == [10, 0]
    assert lend([slow], 10) == [10]
    assert lend([slow], -1) == [0]


@pytest.mark.parametrize(("freed", "lent"), [(None, 7), (2, 7), (-2, 7), (-3, 0)])
def test_the_next_gets_nothing_if_it_could_not_end_beside_what_the_first_keeps(freed, lent):
    first = Claim(more_bytes=3, left_ns=1, freed_bytes=freed)

    assert lend([first, Claim(more_bytes=8, left_ns=2)], 10) == [3, lent]
