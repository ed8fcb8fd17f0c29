"""Reports of a workload's processes become a row, and rows become a table."""

import pytest
from bench.gpu.figures.tables import is_table, table
from bench.gpu.figures.workload_rows import (
    BARE,
    COLUMNS,
    DIFFERENT,
    MANAGED,
    NOT_REPEATABLE,
    OBSERVED,
    SAME,
    Run,
    beside,
    needs_another,
    not_run,
    order_of,
    row_of,
)
from bench.gpu.parts.workloads import WORKLOADS


def run(digest="a", rates=(100.0, 100.0), **other):
    return Run(**{"start_s": 1.0, "is_managed": True} | other, digest=digest, rates=list(rates))


def runs(bare=None, managed=None, observed=None):
    given = {BARE: bare, MANAGED: managed, OBSERVED: observed}
    return {mode: run() if one is None else one for mode, one in given.items()}


def test_a_row_has_every_column():
    row = row_of(runs())

    assert set(COLUMNS) <= set(row)
    assert (row["runs_bare"], row["runs_managed"], row["same_results"]) == ("ok", "ok", SAME)
    assert row["ok"]
    assert set(not_run("no time")) == set(COLUMNS)


def test_ratios_are_of_the_rounds_beside_each_other():
    # The machine slowed to half its speed after the first round; the ratio stays the same.
    found = runs(bare=run(rates=(100, 50)), managed=run(rates=(90, 45)))

    row = row_of(found)

    assert row["ratio"] == 0.9
    assert row["noise"] == pytest.approx(2 / 3, abs=1e-3)


def test_each_process_comes_first_in_turn():
    orders = [order_of(number) for number in range(4)]

    assert [order[0] for order in orders[:3]] == [BARE, MANAGED, OBSERVED]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert orders[3] == orders[0]


def test_every_place_in_the_order_is_had_as_often():
    assert not [name for name, row in WORKLOADS.items() if row.all_rounds % len(order_of(0))]


def test_other_memory_stands_over_plain_memory_and_events_over_usual_markers():
    allocations = {"bare_per_s": 200.0, "ratio": 0.5}
    rows = {
        "vision": {"bare_per_s": 100.0, "ratio": 0.96},
        "eager": {"bare_per_s": 50.0, "ratio": 0.98},
        "eager_events": {"bare_per_s": 40.0, "ratio": 0.931},
        "allocations": allocations,
        "expandable_segments": {"bare_per_s": 180.0, "ratio": 0.99},
        "malloc_async": not_run("no time"),
        "swappable": {"bare_per_s": 90.0, "ratio": 0.72},
    }

    assert beside(rows) == {
        "expandable_segments": 0.9,
        "malloc_async": "not run",
        "swappable": 0.75,
        "eager_events": 0.95,
    }
    assert set(beside({}).values()) == {"not run"}


@pytest.mark.parametrize(("limit", "good"), [(0.97, False), (0.9, True), (None, True)])
def test_a_ratio_below_its_limit_is_not_ok(limit, good):
    found = runs(managed=run(rates=(95, 95)))

    assert row_of(found, limit=limit)["ok"] is good
    assert row_of(found, limit=limit, on_gpu=False)["ok"]


@pytest.mark.parametrize(
    ("managed", "observed", "again", "verdict", "good"),
    [
        ("a", "a", "", SAME, True),
        ("b", "a", "a", DIFFERENT, False),
        ("a", "b", "a", DIFFERENT, False),
        ("b", "a", "c", NOT_REPEATABLE, True),
        ("b", "a", "", DIFFERENT, False),
        ("a", "", "", SAME, True),
    ],
)
def test_results_have_a_verdict(managed, observed, again, verdict, good):
    found = runs(managed=run(managed), observed=run(observed))

    row = row_of(found, again=again)

    assert row["same_results"] == verdict
    assert row["ok"] is good
    assert needs_another(found) == (verdict != SAME)


def test_a_program_that_fails_without_tandem_too_is_not_held_against_it():
    broken = Run(error="ended with code 1: no compiler")

    row = row_of({BARE: broken, MANAGED: broken, OBSERVED: broken}, limit=0.97)

    assert row["ok"]
    assert row["runs_bare"] == "error: ended with code 1: no compiler"
    assert row["ratio"] == "not run"


def test_a_program_that_fails_under_tandem_alone_is():
    row = row_of(runs(managed=Run(error="said no 'up' within 60 s")))

    assert not row["ok"]
    assert row["same_results"] == "not run"  # whatever the observed run gave
    assert row["bare_per_s"] == 100


def test_a_program_that_ran_without_the_daemon_did_not_run_under_tandem():
    found = runs(managed=run(is_managed=False))

    assert not row_of(found)["ok"]
    assert row_of(found, on_gpu=False)["ok"]


def test_every_workload_has_a_program_of_its_own_or_settings():
    told = [(w.program, tuple(w.environment.items()), tuple(w.options)) for w in WORKLOADS.values()]

    assert len(set(told)) == len(told)


def test_rows_become_a_table():
    rows = {"one": {"a": 1, "b": "x" * 50}, "two": {"a": 2, "b": ""}, "three": {"a": 3, "c": None}}

    lines = table(rows)

    assert is_table(rows)
    assert [line.split()[0] for line in lines] == ["a", "one", "two", "three"]
    assert max(map(len, lines)) < 60
    assert lines[1].index("1") == lines[0].index("a")


@pytest.mark.parametrize(
    "figures",
    [
        {"one": {"a": 1}, "two": {"a": 2}},
        {"one": {"a": 1}, "two": {"a": 2}, "three": 3},
        {"one": {"a": 1}, "two": {"a": 2}, "three": {"a": {"b": 1}}},
        {"one": {"a": 1}, "two": {"b": 2}, "three": {"c": 3}},
        [1, 2, 3],
    ],
)
def test_other_figures_are_no_table(figures):
    assert not is_table(figures)


def test_what_was_not_even_recorded_has_no_ratio():
    row = row_of(runs(observed=run(is_managed=False)))

    assert row["ratio_observed"] == "ran unshared"


def test_a_ratio_comes_with_where_half_of_its_rounds_lie():
    bare, managed = [100.0] * 5, [96.0, 97.0, 98.0, 99.0, 100.0]

    row = row_of(runs(bare=run(rates=bare), managed=run(rates=managed)))

    assert (row["ratio"], row["ratio_quartiles"]) == (0.98, [0.97, 0.99])
    assert row_of(runs(managed=run(rates=[])))["ratio_quartiles"] == []
