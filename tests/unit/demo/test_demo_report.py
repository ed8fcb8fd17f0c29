import json
from dataclasses import replace

import pytest
from demo_reports import kernel, outcome, place, server, trainer

from tandem.demo.conductor import default_seconds
from tandem.demo.report import Results, build_report, format_table
from tandem.demo.trace import write_trace


@pytest.fixture
def results():
    def trainers(each_ms):
        return (
            trainer("vision", iterations=4, each_ms=each_ms, pid=2),
            trainer("language", iterations=2, each_ms=2 * each_ms, pid=3),
        )

    vision, language = trainers(100)
    spans = [kernel(0, 200, pid=1), kernel(200, 600, pid=2), kernel(600, 900, pid=3, stream=9)]
    return Results(
        place=place(),
        alone={
            "server": outcome("alone", server(10, 20), spans=[kernel(0, 280, pid=1)]),
            "vision": outcome("alone", vision),
            "language": outcome("alone", language),
        },
        shared={
            "unmanaged": outcome("unmanaged", server(30, 60), *trainers(250), spans=spans),
            "tandem": outcome("tandem", server(12, 24), *trainers(200), spans=spans),
        },
        request_ns=8_000_000,
    )


def test_the_report_has_exactly_the_promised_keys(results):
    report = build_report(results)

    assert list(report) == ["device", "scenarios", "ratios"]
    assert set(report["device"]) == {"name", "kind", "mode", "clock"}
    assert set(report["scenarios"]) == {"alone", "unmanaged", "tandem"}
    for scenario in report["scenarios"].values():
        assert set(scenario) == {"server", "trainers", "gpu_busy_ratio"}
        assert set(scenario["server"]) == {"requests", "p50_ms", "p99_ms", "errors"}
        for one in scenario["trainers"]:
            assert set(one) == {"name", "iterations_per_s", "checksum_ok"}
    assert set(report["ratios"]) == {
        "server_p99_vs_alone",
        "trainers_vs_alone",
        "trainers_share_of_idle",
    }
    assert all(set(r) == {"unmanaged", "tandem"} for r in report["ratios"].values())
    json.dumps(report)


def test_ratios_are_against_the_alone_runs(results):
    report = build_report(results)

    assert report["ratios"]["server_p99_vs_alone"] == {"unmanaged": 3.0, "tandem": 1.2}
    assert report["ratios"]["trainers_vs_alone"] == {"unmanaged": 0.4, "tandem": 0.5}
    assert report["ratios"]["trainers_share_of_idle"]["tandem"] == pytest.approx(0.875)
    assert report["scenarios"]["alone"]["gpu_busy_ratio"] == pytest.approx(0.28)
    assert report["scenarios"]["tandem"]["gpu_busy_ratio"] == pytest.approx(0.9)


def test_one_wrong_checksum_makes_the_whole_run_wrong(results):
    assert results.all_correct

    bad = outcome("tandem", server(10), trainer("vision", iterations=1, each_ms=1, correct=False))
    wrong = Results(
        place=results.place,
        alone=results.alone,
        shared={**results.shared, "tandem": bad},
        request_ns=1,
    )

    assert not wrong.all_correct


def test_further_ways_to_share_are_columns_of_their_own(results):
    shared = dict(results.shared)
    shared["mps"] = replace(results.shared["unmanaged"], name="mps", mode="mps")
    report = build_report(replace(results, shared=shared))

    assert report["ratios"]["server_p99_vs_alone"]["mps"] == 3.0
    assert format_table(report).splitlines()[2].split() == ["alone", "unmanaged", "tandem", "mps"]
    # Kernels overlap under MPS, so the timeline does not tell the time used.
    shares = report["ratios"]["trainers_share_of_idle"]
    assert shares["mps"] != shares["unmanaged"]


def test_the_table_says_where_and_in_which_mode_it_ran(results):
    text = format_table(build_report(results), notes=["once more"])

    assert text.startswith("Tandem Software GPU (tiny) (software), mode time, virtual clock")
    assert "24.0 ms (1.20x)" in text
    assert "5.00 it/s (0.50x)" in text
    assert "WRONG" not in text
    assert text.endswith("once more")


def test_the_trace_has_a_track_for_each_program_and_stream(results, tmp_path):
    write_trace(tmp_path / "trace.json", results.shared.values())

    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {
        f"{scenario}: {role}"
        for scenario in ("unmanaged", "tandem")
        for role in ("server", "vision", "language")
    }
    tracks = {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}
    assert len(tracks) == 12  # six programs, each with its own items and one stream
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in events if e["ph"] == "X")


def test_the_default_length_gives_enough_requests_for_a_p99():
    assert default_seconds(gap_ns=28_000_000) > 300 * 0.028
