"""Which job gives groups of SMs to which, between plans."""

import pytest

from tandemd.core.planner.exchange import Ease, least, on_offer, resized
from tandemd.core.planner.plans import Part

SERVED, OTHER, TRAINED = Part(4, ("s",)), Part(6, ("o", "p")), Part(2, ("t",))
PLAN = (SERVED, OTHER, TRAINED)
EASES = {"s": Ease.NEEDS, "o": Ease.SPARES, "p": Ease.SPARES, "t": Ease.FREE}


def sizes(plan):
    return [part.groups for part in plan]


def test_who_has_no_objective_gives_before_who_has_much_to_spare():
    assert on_offer(PLAN, SERVED, EASES.get) == 1
    assert sizes(resized(PLAN, SERVED, 5, EASES.get)) == [5, 6, 1]


def test_nobody_gives_its_last_group():
    plan = (SERVED, OTHER, Part(1, ("t",)))

    assert sizes(resized(plan, SERVED, 5, EASES.get)) == [5, 5, 1]


def test_who_has_not_so_many_to_give_is_passed_over():
    assert sizes(resized(PLAN, SERVED, 6, EASES.get)) == [6, 4, 2]


@pytest.mark.parametrize("name", ["o", "p"])
def test_a_part_gives_only_what_all_its_jobs_can_spare(name):
    eases = EASES | {name: Ease.NEEDS, "t": Ease.NEEDS}

    assert on_offer(PLAN, SERVED, eases.get) == 0
    assert resized(PLAN, SERVED, 5, eases.get) == PLAN


def test_what_a_part_does_not_need_goes_to_who_has_no_objective():
    assert least(PLAN, OTHER, EASES.get) == 1
    assert sizes(resized(PLAN, OTHER, 5, EASES.get)) == [4, 5, 3]


def test_of_several_without_an_objective_the_smallest_gets_it():
    plan = (OTHER, Part(3, ("u",)), TRAINED)

    assert sizes(resized(plan, OTHER, 5, {**EASES, "u": Ease.FREE}.get)) == [5, 3, 3]


def test_a_part_keeps_what_nobody_has_use_for():
    eases = EASES | {"t": Ease.SPARES}

    assert least(PLAN, OTHER, eases.get) == OTHER.groups
    assert least(PLAN, TRAINED, EASES.get) == TRAINED.groups
    assert resized(PLAN, OTHER, 5, eases.get) == PLAN
