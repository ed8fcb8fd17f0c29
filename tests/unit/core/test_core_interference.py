"""Whether the linear model of slowdowns recovers planted weights."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemd.core.model import Bound, Mix
from tandemd.core.turns.interference import (
    LEAST_FACTOR,
    MOST_FACTOR,
    PRIOR,
    REMEMBERED,
    Features,
    Interference,
    Neighbour,
    Trial,
    features_of,
    solve,
    terms,
)

COMPUTE = Neighbour(Features(sm=0.9, memory=0.1))
MEMORY = Neighbour(Features(sm=0.9, memory=0.9))
COPY = Neighbour(Features(sm=0.1, copy=0.9))
IDLE = Neighbour(Features(sm=0.9, memory=0.9, busy=0.0))


def some(chance):
    features = Features(
        sm=chance.random(), memory=chance.random(), copy=chance.random(), busy=chance.random()
    )
    return Neighbour(features, part=chance.uniform(0.1, 1))


def planted(weights, own, *others):
    row = terms(own, others)
    return sum(a * b for a, b in zip(weights, row, strict=True)) - (row[-1] - 1)


def trial(factor, own, *others):
    return Trial(own=own, others=others, factor=factor)


def teach(model, weights, count, *, noise=0.0, most=2, seed=3):
    """Learns `count` trials of up to `most` jobs on a GPU with these weights."""
    chance, until = Random(seed), model.count + count
    while model.count < until:
        own, *others = (some(chance) for _ in range(chance.randint(2, most)))
        factor = planted(weights, own, *others) * (1 + chance.uniform(-noise, noise))
        if factor >= 1:
            model.learn(trial(factor, own, *others))
    return model


def taught(weights, count, noise=0.0, most=2):
    return teach(Interference(), weights, count, noise=noise, most=most)


PLANTED = (0.3, 0.2, 0.5, 0.9, 2.0, 0.4, 1.0)  # a crowd costs 0.4 more than the sum of its pairs


@pytest.mark.parametrize("weights", [PRIOR, PLANTED])
def test_planted_weights_are_found_from_pairs_and_triples(weights):
    model = taught(weights, 600, most=3)

    assert model.weights == pytest.approx(weights, abs=0.05)
    assert model.error < 0.01


def test_the_error_told_is_about_the_noise_of_what_was_measured():
    model = taught(PLANTED, 400, noise=0.2)

    assert 0.05 < model.error < 0.2


def test_before_anything_was_measured_the_prior_is_all_there_is():
    model = Interference()

    assert (model.weights, model.error) == (PRIOR, None)
    assert model.factor(COMPUTE, [MEMORY]) == planted(PRIOR, COMPUTE, MEMORY)


def test_it_learns_which_pairs_go_together():
    model = Interference()
    for _ in range(40):
        model.learn(trial(2.0, MEMORY, MEMORY))
        model.learn(trial(1.1, MEMORY, COMPUTE))
        model.learn(trial(1.1, COMPUTE, MEMORY))
        model.learn(trial(1.9, COMPUTE, COMPUTE))

    assert model.factor(MEMORY, [COMPUTE]) < model.factor(MEMORY, [MEMORY])


def test_who_copies_beside_who_copies_shares_the_link():
    model = Interference()

    assert model.factor(COPY, [COPY]) > model.factor(COPY, [COMPUTE])


def test_nobody_gets_faster_and_who_is_idle_does_not_count():
    model = taught(PLANTED, 400, most=3)

    assert model.factor(COMPUTE, []) == 1
    assert model.factor(COMPUTE, [IDLE, MEMORY]) == model.factor(COMPUTE, [MEMORY])
    assert Interference().factor(Neighbour(Features()), [Neighbour(Features())]) == 1


def test_what_two_neighbours_cost_adds_up():
    model = Interference()

    beside_one, beside_other = (model.factor(COMPUTE, [each]) for each in (MEMORY, COPY))
    beside_both = model.factor(COMPUTE, [MEMORY, COPY])

    assert beside_both - 1 == pytest.approx(beside_one - 1 + beside_other - 1)
    assert beside_both > max(beside_one, beside_other)


def test_only_triples_tell_what_a_crowd_costs():
    pairs, triples = taught(PLANTED, 600), taught(PLANTED, 600, most=3)
    wanted = planted(PLANTED, COMPUTE, MEMORY, COPY)

    assert triples.factor(COMPUTE, [MEMORY, COPY]) == pytest.approx(wanted, abs=0.05)
    assert pairs.factor(COMPUTE, [MEMORY, COPY]) == pytest.approx(wanted - 0.4, abs=0.05)


@pytest.mark.parametrize("count", [0, 50, REMEMBERED, 200])
def test_what_is_recalled_is_as_good_as_what_was_just_measured(count):
    chance, before, after = Random(5), Interference(), Interference()
    trials = [trial(chance.uniform(1, 3), some(chance), some(chance)) for _ in range(count)]
    for each in trials:
        before.learn(each)

    after.recall([*trials, trial(0.0, COMPUTE, MEMORY)])

    assert (after.weights, after.error) == (before.weights, before.error)
    assert (after.count, after.recalled, before.recalled) == (count, count, 0)
    assert after.frozen().recalled == count


def test_what_changed_on_the_machine_is_found_again():
    after = (0.1, 0.9, 0.1, 0.2, 0.5, 0.1, 1.0)
    model = taught(PLANTED, 600, most=3)

    teach(model, after, 2000, most=3, seed=11)

    assert model.weights == pytest.approx(after, abs=0.05)


def with_outliers(factor):
    """Learns 210 trials, ten of them outliers, of jobs that resemble those of the others."""
    model = Interference()
    for _ in range(200):
        model.learn(trial(1.3, COMPUTE, MEMORY))
    for _ in range(10):
        model.learn(trial(factor, Neighbour(Features(sm=0.95, memory=0.1)), MEMORY))
    return model.factor(COMPUTE, [MEMORY])


def test_a_few_far_off_hardly_count():
    assert with_outliers(16.0) == pytest.approx(1.3, abs=0.1)


def test_what_keeps_coming_is_not_far_off():
    model = taught(PLANTED, 200)

    for _ in range(200):
        model.learn(trial(8.0, COMPUTE, MEMORY))

    assert model.factor(COMPUTE, [MEMORY]) == pytest.approx(8.0, abs=0.3)


@pytest.mark.parametrize("factor", [0.0, -1.0, 1e-9, LEAST_FACTOR - 0.01, MOST_FACTOR + 1])
def test_factors_that_cannot_be_interference_are_not_learnt(factor):
    model = Interference()

    assert not model.learn(trial(factor, COMPUTE, MEMORY))
    assert not model.learn(trial(2.0, COMPUTE))
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
