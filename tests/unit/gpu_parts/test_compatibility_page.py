"""What the compatibility page says of the rows of `make gpu PART=workloads`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "packaging"))

from bench.gpu.figures.workload_rows import BARE, MANAGED, OBSERVED, Run, not_run, row_of
from bench.gpu.parts.workloads import WORKLOADS as ROWS

from generate_compatibility import WORKLOADS, Workload, _outcome


def row(**managed):
    rates = {"rates": [100.0, 100.0], "digest": "a", "is_managed": True}
    runs = {BARE: Run(**rates), MANAGED: Run(**rates | managed), OBSERVED: Run(**rates)}
    return row_of(runs, limit=0.97)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (row(), "results same, 1.0 of the throughput"),
        (row(rates=[90.0, 90.0]), "**results same, 0.9 of the throughput**"),
        (row(digest="b"), "**results different, 1.0 of the throughput**"),
        (row(error="ended with code 1"), "**error: ended with code 1**"),
        (row(is_managed=False), "**ran unshared**"),
        (not_run("jax is not installed"), "not run: jax is not installed"),
    ],
)
def test_a_row_in_words(found, said):
    of = Workload(name="JAX", part="workloads", rows=("jax",))

    assert _outcome(of, {"rows": {"jax": found}}) == said


def test_two_rows_that_say_the_same_say_it_once():
    of = Workload(name="loaders", part="workloads", rows=("fork", "spawn"))

    assert _outcome(of, {"rows": {"fork": row(), "spawn": row()}}).count("results same") == 1
    assert _outcome(of, {"rows": {"fork": row()}}) == (
        "results same, 1.0 of the throughput; not run"
    )


def test_a_part_that_was_ended_before_its_first_row_has_failed():
    of = Workload(name="JAX", part="workloads", rows=("jax",))

    assert _outcome(of, {"failed": 124}) == "**failed**"


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"passed": 3, "failures": {}}, "passed"),
        ({"passed": 3, "failures": {"a": "no"}, "failed": 1}, "**failed**"),
        ({"passed": 3, "failures": {}, "failed_again": {"failed": 1}}, "**failed**"),
    ],
)
def test_a_part_of_tests_has_failed_where_a_run_of_it_did(figures, said):
    assert _outcome(Workload(name="streams", part="tests"), figures) == said


def test_the_page_names_rows_that_there_are():
    named = {name for workload in WORKLOADS for name in workload.rows}

    assert named <= set(ROWS)
    ours = {"cuda_bindings", "swappable_bindings", "bindings_events", "eager_events"}
    assert set(ROWS) - named == ours
