import pytest
from demo_reports import kernel, outcome, server, trainer

from tandem.demo.measure import (
    Alone,
    busy_ratio,
    idle_share,
    noise_ratio,
    server_figures,
    trainer_figures,
)

ALONE = Alone(request_ns=8e6, iteration_ns={"vision": 100e6, "language": 200e6})


def test_time_in_the_queue_counts_as_latency_and_not_as_noise():
    waited = server(8, 8, 8)
    waited.items[2].update(arrival_ns=100_000_000)  # arrived while another was served

    assert server_figures(waited)["p99_ms"] == 108.0
    assert noise_ratio(waited) == 1.0


def test_a_wrong_answer_is_an_error():
    assert server_figures(server(8, 8, correct=False))["errors"] == 2


def test_a_trainer_that_ended_badly_has_no_right_checksum():
    good = trainer("vision", iterations=2, each_ms=100)
    dead = trainer("vision", iterations=2, each_ms=100, exit_code=-9)
    idle = trainer("vision", iterations=0, each_ms=100)

    assert trainer_figures(good) == {
        "name": "vision",
        "iterations_per_s": 10.0,
        "checksum_ok": True,
    }
    assert trainer_figures(dead)["checksum_ok"] is False
    assert trainer_figures(idle)["checksum_ok"] is False


def test_the_device_is_busy_while_some_kernel_of_ours_runs_inside_the_window():
    spans = [
        kernel(0, 100, pid=1),
        kernel(50, 200, pid=2),
        kernel(300, 400, pid=99),  # not from our processes
        kernel(500, 600, pid=1, kind="copy"),
        kernel(900, 1500, pid=2),  # extends beyond the window
    ]
    both = outcome("x", server(8), trainer("vision", iterations=1, each_ms=1), spans=spans)

    assert busy_ratio(both, ALONE) == pytest.approx(0.3)


def test_the_window_begins_with_the_last_starter():
    late = trainer("vision", iterations=1, each_ms=1, start_ns=1_000_000_000)
    spans = [kernel(0, 1000, pid=2), kernel(1000, 1100, pid=2)]

    assert busy_ratio(outcome("x", late, spans=spans), ALONE) == pytest.approx(0.1)


def test_the_share_of_idle_comes_from_the_timeline_where_contexts_take_turns():
    spans = [kernel(0, 200, pid=1), kernel(200, 600, pid=2)]
    both = outcome("x", server(8), trainer("vision", iterations=1, each_ms=1), spans=spans)

    assert idle_share(both, ALONE) == pytest.approx(0.5)


def test_without_a_timeline_work_is_weighed_with_its_time_alone():
    # In one second, ten requests of 8 ms and 5 iterations that take 100 ms each when alone.
    both = outcome("x", server(*[20] * 10), trainer("vision", iterations=5, each_ms=200))

    assert idle_share(both, ALONE) == pytest.approx(500 / 920)
    assert busy_ratio(both, ALONE) == pytest.approx(0.58)


def test_work_past_the_window_counts_by_its_part_inside():
    over = outcome("x", trainer("vision", iterations=3, each_ms=400))

    assert idle_share(over, ALONE) == pytest.approx(0.25)
