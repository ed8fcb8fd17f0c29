"""How the compatibility page shows the rows of `make gpu PART=workloads` and `programs`."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "packaging"))

from bench.gpu.figures import program_rows
from bench.gpu.figures.workload_rows import BARE, MANAGED, OBSERVED, Run, not_run, row_of
from bench.gpu.parts.workloads import WORKLOADS as ROWS
from bench.gpu.programs import SOURCES

import gpu_results
from generate_compatibility import WORKLOADS, Workload, _outcome, _where_it_ran


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


def ran_in_arms(**digests):
    arms = dict.fromkeys(program_rows.ARMS, "a") | digests
    runs = {arm: Run(digest=digest, is_managed=True) for arm, digest in arms.items() if digest}
    return program_rows.row_of(runs)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (ran_in_arms(), "results same, under a daemon of its own and under one with all others"),
        (
            ran_in_arms(together="b"),
            "**results different, under a daemon of its own and under one with all others**",
        ),
        (
            ran_in_arms(together=""),
            "results same, under a daemon of its own (with all others: not run)",
        ),
        (ran_in_arms(managed="", together=""), "not run"),
    ],
)
def test_a_row_of_programs_in_words(found, said):
    of = Workload(name="JAX", part="programs", rows=("jax",))

    assert _outcome(of, {"rows": {"jax": found}}) == said


def test_programs_say_what_workloads_had_no_time_for(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_results, "RESULTS", tmp_path)
    workloads = {"rows": {"eager": row(), "jax": not_run("no time was left")}}
    programs = {"rows": {name: ran_in_arms() for name in ("eager", "jax")}}
    content = json.dumps({"workloads": workloads, "programs": programs})
    (tmp_path / "2026-01-01-a-gpu.json").write_text(content)

    def part(*rows):
        return _where_it_ran(Workload(name="w", part="workloads", rows=rows)).part

    assert (part("eager"), part("jax"), part("eager", "jax")) == ("workloads", *["programs"] * 2)
    assert part("malloc_async") == "workloads"


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
    def named(part):
        return {name for workload in WORKLOADS if workload.part == part for name in workload.rows}

    ours = {"cuda_bindings", "swappable_bindings", "bindings_events", "eager_events"}
    assert named("workloads") == set(ROWS) - ours
    assert named("programs") < set(SOURCES)
