"""The linear model of slowdowns: does it find what was planted?"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemd.core.interference import (
    MOST_FACTOR,
    PRIOR,
    Features,
    Interference,
    Neighbour,
    features_of,
    solve,
    terms,
)
from tandemd.core.model import Bound, Mix

COMPUTE = Neighbour(Features(sm=0.9, memory=0.1))
MEMORY = Neighbour(Features(sm=0.9, memory=0.9))
COPY = Neighbour(Features(sm=0.1, copy=0.9))
IDLE = Neighbour(Features(sm=0.9, memory=0.9, busy=0.0))


def some(chance):
    features = Features(
        sm=chance.random(), memory=chance.random(), copy=chance.random(), busy=chance.random()
    )
    return Neighbour(features, part=chance.uniform(0.1, 1))


def planted(weights, own, other):
    return sum(a * b for a, b in zip(weights, terms(own, other), strict=True))


def taught(weights, count, noise=0.0):
    """A model that saw so many pairs of a GPU where these are the weights."""
    model, chance = Interference(), Random(3)
    while model.count < count:
        own, other = some(chance), some(chance)
        factor = planted(weights, own, other) * (1 + chance.uniform(-noise, noise))
        if factor >= 1:
            model.learn(own, other, factor)
    return model


@pytest.mark.parametrize("weights", [PRIOR, (0.3, 0.2, 0.5, 0.9, 2.0, 1.0)])
def test_planted_weights_are_found(weights):
    model = taught(weights, 600)

    assert model.weights == pytest.approx(weights, abs=0.05)
    assert model.error < 0.01


def test_the_error_told_is_about_the_noise_of_what_was_measured():
    model = taught((0.3, 0.2, 0.5, 0.9, 2.0, 1.0), 400, noise=0.2)

    assert 0.05 < model.error < 0.2


def test_before_anything_was_measured_the_prior_is_all_there_is():
    model = Interference()

    assert (model.weights, model.error) == (PRIOR, None)
    assert model.factor(COMPUTE, [MEMORY]) == planted(PRIOR, COMPUTE, MEMORY)


def test_it_learns_which_pairs_go_together():
    model = Interference()
    for _ in range(40):
        model.learn(MEMORY, MEMORY, 2.0)
        model.learn(MEMORY, COMPUTE, 1.1)
        model.learn(COMPUTE, MEMORY, 1.1)
        model.learn(COMPUTE, COMPUTE, 1.9)

    assert model.factor(MEMORY, [COMPUTE]) < model.factor(MEMORY, [MEMORY])


def test_who_copies_beside_who_copies_shares_the_link():
    model = Interference()

    assert model.factor(COPY, [COPY]) > model.factor(COPY, [COMPUTE])


def test_nobody_gets_faster_and_of_several_neighbours_the_worst_counts():
    model = taught((0.3, 0.2, 0.5, 0.9, 2.0, 1.0), 400)

    assert model.factor(COMPUTE, []) == 1
    assert model.factor(COMPUTE, [IDLE, MEMORY]) == model.factor(COMPUTE, [MEMORY])
    assert Interference().factor(Neighbour(Features()), [Neighbour(Features())]) == 1


def test_what_changed_on_the_machine_is_found_again():
    before, after = (0.3, 0.2, 0.5, 0.9, 2.0, 1.0), (0.1, 0.9, 0.1, 0.2, 0.5, 1.0)
    model, chance = taught(before, 600), Random(11)
    for _ in range(2000):
        own, other = some(chance), some(chance)
        if (factor := planted(after, own, other)) >= 1:
            model.learn(own, other, factor)

    assert model.weights == pytest.approx(after, abs=0.05)


@pytest.mark.parametrize("factor", [0.0, -1.0, MOST_FACTOR + 1])
def test_factors_that_cannot_be_interference_are_not_learnt(factor):
    model = Interference()

    model.learn(COMPUTE, MEMORY, factor)

    assert (model.count, model.weights) == (0, PRIOR)


def test_features_come_from_what_work_is_bound_by():
    shares = {Bound.COMPUTE: 0.5, Bound.MEMORY: 0.2, Bound.COPY: 0.2, Bound.SMALL: 0.1}
    mix = Mix(shares=tuple(shares.get(b, 0.0) for b in Bound), operations=9, untimed=0, at_ns=0)

    assert features_of(mix, busy=1.5) == Features(sm=0.7, memory=0.2, copy=0.2, busy=1.0)


@given(
    st.lists(st.lists(st.floats(-3, 3), min_size=4, max_size=4), min_size=4, max_size=4),
    st.lists(st.floats(-5, 5), min_size=4, max_size=4),
)
def test_equations_are_solved(rows, wanted):
    size = range(4)
    matrix = [
        [sum(row[i] * row[j] for row in rows) + (i == j) for j in size] for i in size
    ]  # positive definite
    vector = [sum(matrix[i][j] * wanted[j] for j in size) for i in size]

    assert solve(matrix, vector) == pytest.approx(wanted, abs=1e-6)
