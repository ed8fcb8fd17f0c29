"""The table of ways to share a GPU, joined from the results of several parts."""

import json

import pytest
from bench.gpu.figures.headline import COLUMNS, headline
from bench.gpu.harness.results import merge

SERVER = {"requests": 300, "p50_ms": 1.0, "p99_ms": 2.0, "errors": 0}


@pytest.fixture
def merged():
    ways = ("unmanaged", "mps", "tandem")
    return {
        "machine": {"gpu": "NVIDIA H200, 580.1", "torch": "2.11.0"},
        "colocation": {
            "commit": "abc",
            "gpu": "NVIDIA H200, 580.1",
            "device": {"name": "NVIDIA H200", "kind": "nvidia", "mode": "time", "clock": "real"},
            "scenarios": {way: {"server": SERVER} for way in ("alone", *ways)},
            "ratios": {
                "server_p99_vs_alone": {"unmanaged": 20.0, "mps": 4.0, "tandem": 1.1},
                "trainers_vs_alone": {"unmanaged": 0.4, "mps": 0.5, "tandem": 0.35},
                "trainers_share_of_idle": {"unmanaged": 0.9, "mps": 1.0, "tandem": 0.8},
            },
            "modes": {"unmanaged": "time", "mps": "mps", "tandem": "time"},
            "failed_arms": {"tandem_mps": "no word"},
        },
        "workloads": {
            "launch": {
                "bare": {"median_ns": 2110.4, "p99_ns": 3000.0},
                "managed": {"added_median_ns": 23.6, "added_p99_ns": 410.0},
            },
            "rows": {"eager": {"ratio": 0.981}, "graph": {"ratio": 0.995}},
        },
        "swap": {"out": {"vs_pinned": 0.91}, "in": {"vs_pinned": 0.88}},
    }


def cells(merged, way):
    (line,) = (line for line in headline(merged) if line.startswith(f"| {way} |"))
    return dict(zip(COLUMNS, [cell.strip() for cell in line.strip("|").split("|")], strict=True))


def test_each_way_has_a_row_with_its_mode_and_ratios(merged):
    assert cells(merged, "MPS") == {
        "way": "MPS",
        "mode": "mps",
        "server p99 / alone": "4.00",
        "trainers kept": "0.50",
        "share of idle used": "1.00",
        "throughput kept alone": "",
        "added to a launch": "",
        "moved memory / pinned copies": "",
    }
    assert cells(merged, "alone")["server p99 / alone"] == ""


def test_what_tandem_costs_stands_in_its_row_and_is_the_worst_of_what_was_measured(merged):
    row = cells(merged, "Tandem")

    assert row["throughput kept alone"] == "0.981 (eager, least of 2)"
    assert row["added to a launch"] == "median 24 to 2110 ns, p99 410 to 3000 ns"
    assert row["moved memory / pinned copies"] == "0.91 out, 0.88 in"


def test_parts_that_did_not_run_leave_their_cells_empty(merged):
    merged["swap"] = {"failed": 124}
    merged["workloads"] = {"launch": {"error": "x"}, "rows": {"eager": {"ratio": "not run"}}}
    row = cells(merged, "Tandem")

    assert row["throughput kept alone"] == row["moved memory / pinned copies"] == ""
    assert row["added to a launch"] == ""
    assert row["server p99 / alone"] == "1.10"


def test_a_way_that_could_not_be_had_says_why(merged):
    assert "Tandem, under MPS: not measured, no word" in headline(merged)[-1]


def test_without_the_ways_there_is_no_table(merged):
    assert headline({"colocation": {"failed": 1}}) == headline({}) == []


def test_the_table_is_written_beside_the_figures(merged, tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    for name, figures in merged.items():
        (parts / f"{name}.json").write_text(json.dumps(figures))

    merge(parts, tmp_path / "2026-01-01-card.json")

    text = (tmp_path / "2026-01-01-card.md").read_text()
    assert text.startswith("# Ways to share NVIDIA H200, 580.1")
    assert "torch 2.11.0" in text
    assert "| Tandem | time | 1.10 |" in text
