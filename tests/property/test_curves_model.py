"""The shift found is the smallest within the budget, as trying them one by one confirms."""

from hypothesis import given
from hypothesis import strategies as st

from tandemd.core.curves.curves import Curve, flat, smallest_shift

LONGEST = 12


@st.composite
def curves(draw):
    """Steps at whole nanoseconds, no longer than `LONGEST` in all."""
    length = draw(st.integers(1, LONGEST))
    starts = sorted({0, *draw(st.lists(st.integers(0, length - 1), max_size=5))})
    held = draw(st.lists(st.integers(0, 9), min_size=len(starts), max_size=len(starts)))
    return Curve(tuple(starts), tuple(held), length)


def held_at(curve, progress):
    """Looks it up step by step; before and after, the curve is at rest."""
    if not 0 <= progress < curve.length_ns:
        return curve.held_bytes[-1]
    return [
        size for at, size in zip(curve.starts_ns, curve.held_bytes, strict=True) if at <= progress
    ][-1]


def fits(running, own, shift, budget):
    """Tell whether the sum stays within the budget at every whole nanosecond."""
    for t in range(shift + 2 * LONGEST):
        beside = sum(held_at(one, progress + t) for one, progress in running)
        if beside + own(t - shift) > budget:
            return False
    return True


RUNNING = st.lists(st.tuples(curves(), st.integers(0, LONGEST)), max_size=3)
BUDGETS = st.integers(0, 30)


@given(RUNNING, curves(), BUDGETS)
def test_the_shift_is_the_smallest_that_fits(running, curve, budget):
    found = smallest_shift(running, curve, budget)

    # Once it runs after all others, a larger shift changes nothing.
    tried = range(LONGEST + 1)
    fitting = (s for s in tried if fits(running, lambda at: held_at(curve, at), s, budget))
    assert found == next(fitting, None)


@given(RUNNING, curves(), BUDGETS, st.integers(0, LONGEST), st.integers(0, 9))
def test_one_that_stands_in_the_middle_goes_on_from_there(running, curve, budget, progress, held):
    found = smallest_shift(running, curve, budget, progress_ns=progress, held_bytes=held)

    def own(at):
        return held if at < 0 else held_at(curve, progress + at)

    fitting = (shift for shift in range(LONGEST + 1) if fits(running, own, shift, budget))
    assert found == next(fitting, None)


@given(curves(), st.integers(0, LONGEST))
def test_the_most_that_is_to_come_is_never_less_than_what_comes(curve, progress):
    to_come = [held_at(curve, at) for at in range(progress, LONGEST + 1)]

    assert curve.most_from(progress) == max([*to_come, held_at(curve, LONGEST)])


@given(curves(), st.integers(0, LONGEST))
def test_a_host_that_is_ahead_has_taken_what_the_gpu_will_need(curve, by):
    early = curve.ahead(by)

    for at in range(curve.length_ns):
        reached = range(at, min(at + by, curve.length_ns - 1) + 1)
        assert held_at(early, at) == max(held_at(curve, one) for one in reached)


def test_two_alike_go_together_half_an_iteration_apart():
    up_and_down = Curve((0, 10, 20, 30), (10, 70, 40, 10), 40)

    assert smallest_shift([(up_and_down, 0)], up_and_down, budget_bytes=110) == 10
    assert smallest_shift([(up_and_down, 0)], up_and_down, budget_bytes=80) == 20
    assert smallest_shift([(up_and_down, 25)], up_and_down, budget_bytes=110) == 0


def test_one_that_keeps_its_memory_goes_with_nobody_whom_that_leaves_too_little():
    other = Curve((0, 5), (50, 10), 10)

    assert smallest_shift([(flat(60), 0)], other, budget_bytes=100) is None
    assert smallest_shift([(flat(50), 0)], other, budget_bytes=100) == 0
