import pytest
from click.testing import CliRunner
from demo_reports import place

from tandem.cli.demo import demo
from tandem.demo.memory.report import Comparison, Results, build_report, format_text
from tandem.demo.memory.scenario import JobReport, Outcome
from tandem.demo.memory.settings import Order, Pace, default_seconds, paces

S = 1_000_000_000
MIB = 1 << 20


def job(name, begin_s, end_s, *, correct=True, exit_code=0):
    return JobReport(
        name=name, exit_code=exit_code, begin_ns=begin_s * S, end_ns=end_s * S, correct=correct
    )


def dead(name):
    return JobReport(name=name, exit_code=1, error="CUDA_ERROR_OUT_OF_MEMORY")


def outcome(*jobs, **fields):
    return Outcome(jobs=jobs, peak_bytes=60 * MIB, **fields)


def comparison(*, unmanaged=None, ticktock=None):
    return Comparison(
        unmanaged=unmanaged or outcome(job("a", 0, 4), dead("b")),
        serial=[outcome(job("a", 10, 14)), outcome(job("b", 20, 26))],
        ticktock=ticktock
        or outcome(job("a", 2, 12), job("b", 3, 13), swapped_bytes=8_000_000_000, swap_s=5.0),
    )


def results(**changes):
    found = {"trainers": comparison(), "notebooks": comparison(), **changes}
    return Results(place=place(), memory_bytes=64 * MIB, link_bytes_s=2e9, **found)


def test_the_report_has_each_job_and_what_was_moved():
    report = build_report(results())

    unmanaged, serial, ticktock = (
        report["scenarios"][name] for name in ("unmanaged", "serial", "ticktock")
    )
    assert unmanaged["jobs"][1] == {
        "name": "b",
        "exit": 1,
        "checksum_ok": None,
        "seconds": 0.0,
        "error": "CUDA_ERROR_OUT_OF_MEMORY",
    }
    assert (unmanaged["finished"], unmanaged["swap_rate_vs_pinned"]) == (1, None)
    assert (serial["seconds"], len(serial["jobs"])) == (10.0, 2)
    assert ticktock["seconds"] == 11.0, "from the first begin to the last end"
    assert (ticktock["swapped_bytes"], ticktock["swap_rate_vs_pinned"]) == (8_000_000_000, 0.8)
    assert report["ratios"] == {"ticktock_vs_serial": 1.1, "notebooks_vs_serial": 1.1}


def test_the_text_says_who_died_of_what():
    text = format_text(build_report(results()))

    assert "b        exit 1, died with CUDA_ERROR_OUT_OF_MEMORY" in text
    assert "a        exit 0, 10.0 s, checksum right" in text
    assert "moved at 80% of the pinned rate" in text


def test_a_death_without_tandem_is_expected_and_nothing_else():
    assert results().are_right

    wrong = outcome(job("a", 0, 1), job("b", 0, 1, correct=False))
    for found in (
        comparison(ticktock=wrong),
        comparison(unmanaged=wrong),
        comparison(ticktock=outcome(job("a", 0, 1), dead("b"))),
        comparison(ticktock=outcome(job("a", 0, 1), job("b", 0, 1, exit_code=-6))),
    ):
        assert not results(trainers=found).are_right
        assert not results(notebooks=found).are_right


def test_the_checksum_of_a_failed_scenario_is_called_wrong():
    wrong = outcome(job("a", 0, 1), job("b", 0, 1, correct=False))
    assert "checksum WRONG" in format_text(
        build_report(results(notebooks=comparison(ticktock=wrong)))
    )


def test_a_run_lasts_several_turns_but_none_longer_than_a_job_may_be_held():
    short_s = default_seconds(memory_bytes=64_000_000, link_bytes_s=2e9)
    assert short_s == pytest.approx(4 * 50 * 0.4 * 0.032)

    assert default_seconds(memory_bytes=80_000_000_000, link_bytes_s=25e9) == 4 * 20


def test_notebooks_think_for_longer_than_they_compute():
    trainer, notebook = paces(seconds=2.0, iteration_ns=(100_000_000, 50_000_000))

    assert trainer == Pace(iterations=20)
    assert notebook == Pace(iterations=4, cells=4, gap_ns=3 * 4 * 50_000_000)


def test_an_order_survives_the_command_line():
    order = Order(image="k.so", share=0.7, iterations=3, gap_ns=5)
    assert Order.from_json(order.to_json()) == order


def test_options_of_the_demo_are_not_lost_in_front_of_its_command():
    done = CliRunner().invoke(demo, ["--json", "memory"])

    assert done.exit_code == 2
    assert "--json belongs after 'memory'" in done.output
