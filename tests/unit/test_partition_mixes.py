"""The simulation of `bench/partition_mixes.py` agrees with results derived by hand."""

import pytest
from bench import partition_mixes as mixes
from bench.partition_models import NETWORKS, Layer

from tandemd.core.planner.plans import Part

# Multiply-adds per input in 10^9: VGG-16 and ResNet-50 as counted in their papers and elsewhere.
PUBLISHED = {"vgg16": 15.5, "resnet50": 3.86, "googlenet": 1.58}


def multiply_adds(layer: Layer):
    depth = 1 if layer.depthwise else layer.inputs
    return layer.kernel**2 * depth * layer.outputs * layer.side**2


@pytest.mark.parametrize("name", PUBLISHED)
def test_networks_have_as_much_work_as_is_published(name):
    total = sum(map(multiply_adds, mixes.NAMED[name].layers))

    assert total / 1e9 == pytest.approx(PUBLISHED[name], rel=0.01)


def machine(*parts):
    made = mixes.Machine(mixes.limits_of(40.0))
    made.divide(tuple(Part(groups, members) for groups, members in parts))
    return made


def ended(made):
    return {name: end_s for name, _, end_s in made.done}


def test_a_part_answers_one_batch_after_the_other_and_first_what_is_due_first():
    made = machine((mixes.GROUPS, ("vgg16", "lenet")))
    for name in ("vgg16", "vgg16", "lenet"):
        made.come(name)

    made.run_until(1.0)

    lenet_s, vgg_s = mixes.work_s("lenet", 1, mixes.GROUPS), mixes.work_s("vgg16", 2, mixes.GROUPS)
    assert [name for name, _, _ in made.done] == ["lenet", "vgg16", "vgg16"]
    assert ended(made) == {
        "lenet": pytest.approx(lenet_s),
        "vgg16": pytest.approx(lenet_s + vgg_s),
    }


def test_batches_are_no_larger_than_their_grain_allows():
    made = machine((mixes.GROUPS, ("vgg16",)))
    for _ in range(20):
        made.come("vgg16")

    made.run_until(10.0)

    limit = mixes.limit_of("vgg16", 40.0)
    ends = sorted({end_s for _, _, end_s in made.done})
    assert 1 < limit < 20
    assert 1e3 * mixes.work_s("vgg16", limit, mixes.GROUPS) <= 40.0
    assert len(ends) == -(-20 // limit)


def test_parts_run_side_by_side_and_mind_each_other_only_for_bandwidth():
    made = machine((9, ("vgg16",)), (8, ("resnet50",)))
    made.come("vgg16")
    made.come("resnet50")

    made.run_until(1.0)

    busy = [
        (room, mixes.Batch(name, [0.0]))
        for room, name in zip(made.rooms, ("vgg16", "resnet50"), strict=True)
    ]
    slower = mixes.slowdowns(busy)
    alone_s = (mixes.work_s("vgg16", 1, 9), mixes.work_s("resnet50", 1, 8))
    longest_s = (alone_s[0] * slower[0], alone_s[1] * slower[1])
    rounding_s = 1e-9  # from Python 3.12 on sums are rounded differently
    for name, least_s, most_s in zip(("vgg16", "resnet50"), alone_s, longest_s, strict=True):
        assert least_s - rounding_s <= ended(made)[name] <= most_s + rounding_s


def test_another_division_loses_nothing():
    made = machine((9, ("vgg16",)), (8, ("resnet50",)))
    for _ in range(30):
        made.come("vgg16")
        made.come("resnet50")
    made.run_until(0.05)
    before = len(made.done)

    made.divide((Part(mixes.GROUPS, ("vgg16", "resnet50")),))
    made.run_until(10.0)

    names = [name for name, _, _ in made.done]
    assert before < len(names)
    assert (names.count("vgg16"), names.count("resnet50")) == (30, 30)


def test_arrivals_are_the_same_again_and_as_many_as_asked_for():
    rates = mixes.rates_of(mixes.MIXES["equal"], 40.0)

    come = mixes.arrivals(rates, 20.0, seed=1)

    assert come == mixes.arrivals(rates, 20.0, seed=1)
    assert len(come) == pytest.approx(5 * 40 * 20, rel=0.05)


def test_of_each_network_is_told_how_many_missed_who_waits_included():
    made = machine((mixes.GROUPS, ("vgg16", "lenet")))
    made.come("lenet")
    made.now_s = 0.006  # the first one has now waited for more than 5 ms
    made.come("lenet")
    made.done = [("lenet", 0.0, 0.004), ("lenet", 0.0, 0.002), ("vgg16", 0.0, 0.1)]

    assert mixes.missed_parts(made) == {"vgg16": 0.0, "lenet": 1 / 4}
    assert mixes.missed_part(made) == 1 / 5


def test_the_planner_moves_out_who_cannot_wait_for_long_batches():
    model, rates = mixes.taught(), mixes.rates_of(mixes.MIXES["equal"], 160.0)
    plan = mixes.planned(model)(rates, 20.0)
    by_time = mixes.play(mixes.in_time(rates, 20.0), rates, 20.0, span_s=3.0)
    by_plan = mixes.play(plan, rates, 20.0, span_s=3.0)

    assert Part(1, ("lenet",)) in plan
    assert mixes.missed_parts(by_time)["lenet"] > mixes.ALLOWED
    assert mixes.missed_parts(by_plan)["lenet"] == 0


def test_while_the_load_changes_plans_and_sizes_follow():
    mix, model = mixes.MIXES["short"], mixes.taught()

    missed, changes = mixes.fluctuate(mix, 60.0, 20.0, model, loads=(0.5, 1.0))

    assert missed < 0.01
    assert changes > 0


def test_what_is_told_of_slowdowns_is_learnt_from_pairs():
    model = mixes.taught()

    assert model.count == len(NETWORKS) * (len(NETWORKS) - 1)
    assert 0 < model.error < 0.2
