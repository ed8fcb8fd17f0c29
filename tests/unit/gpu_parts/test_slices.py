"""Stamps of two programs' kernels become slices, switches, waits and overlap."""

import json
from array import array

import pytest
from bench.gpu.figures.slices import (
    NONE_SEEN,
    Ran,
    Run,
    busy_ns,
    overlap_ns,
    runs_of,
    spread,
    stretches_of,
    turns_of,
)
from bench.gpu.figures.windows_rows import LAUNCH_NS, Timeline, read_rows


def ran(*stretches, ready_ns=0):
    return Ran(ready_ns, stretches)


@pytest.mark.parametrize(
    ("gaps", "left"),
    [
        ([], ((10, 90),)),
        ([(30, 50)], ((10, 30), (50, 90))),
        ([(60, 70), (31, 49), (30, 50)], ((10, 30), (50, 60), (70, 90))),  # reported by two threads
        ([(40, 60), (30, 50)], ((10, 30), (60, 90))),
        ([(5, 20)], ((20, 90),)),
        ([(80, 95)], ((10, 80),)),
    ],
)
def test_a_kernel_is_what_its_gaps_leave_of_it(gaps, left):
    assert stretches_of(10, 90, gaps) == left


def test_kernels_of_one_program_in_a_row_are_one_run():
    first = [ran((0, 10)), ran((10, 20)), ran((50, 60))]
    second = [ran((25, 45))]

    assert [(run.who, run.begin_ns, run.end_ns) for run in runs_of(first, second)] == [
        (0, 0, 20),
        (1, 25, 45),
        (0, 50, 60),
    ]


def test_what_was_cut_off_is_ready_to_go_on():
    cut_off = ran((0, 100), (180, 250))

    runs = runs_of([cut_off], [ran((110, 170), ready_ns=40)])

    assert runs == [Run(0, 0, 100, 0), Run(1, 110, 170, 40), Run(0, 180, 250, 100)]


def test_a_slice_counts_only_where_the_other_waited_from_its_beginning():
    # The second's first kernel arrives in the middle of a run; its next one waits from the start.
    first = [ran((0, 100), (180, 250))]
    second = [ran((110, 170), ready_ns=40), ran((260, 300), ready_ns=175)]

    turns = turns_of(runs_of(first, second))

    assert turns.slices == ([70], [60])
    assert turns.switches == [10, 10, 10]
    assert turns.waits == ([80], [70, 85])


def test_who_comes_to_an_idle_device_does_not_switch():
    turns = turns_of(runs_of([ran((0, 100))], [ran((150, 200), ready_ns=140)]))

    assert (turns.switches, turns.slices, turns.waits) == ([], ([], []), ([], []))


def test_kernels_side_by_side_overlap_and_take_no_turns():
    first, second = [ran((0, 100)), ran((200, 300))], [ran((50, 250))]

    turns = turns_of(runs_of(first, second))

    assert overlap_ns(first, second) == overlap_ns(second, first) == 100
    assert (turns.switches, turns.slices) == ([], ([], []))


def test_turns_do_not_overlap():
    assert overlap_ns([ran((0, 10), (20, 30))], [ran((10, 20)), ran((30, 40))]) == 0


def test_two_kernels_of_a_program_are_not_counted_twice():
    assert busy_ns([ran((0, 100)), ran((50, 120)), ran((130, 140))]) == 130


def test_lengths_are_told_in_microseconds():
    assert spread(range(1000, 101_000, 1000)) == {"median_us": 50.5, "p99_us": 100.0, "count": 100}
    assert spread([]) == {"median_us": NONE_SEEN, "p99_us": NONE_SEEN, "count": 0}


def test_rows_are_read_in_the_hosts_time(tmp_path):
    ahead_ns = 1_000_000
    path = tmp_path / "rows"
    words = [100, 200, 900, ahead_ns + 300, ahead_ns + 800, 1, ahead_ns + 400, ahead_ns + 600]
    words += [1000, 1000, 0, 0, 0, 0]  # not stamped by the device
    path.write_bytes(array("Q", words).tobytes())

    seen, unseen = read_rows(path, ahead_ns)

    assert (seen.arrival_ns, seen.submitted_ns, seen.done_ns) == (100, 200, 900)
    assert seen.ran == Ran(200 + LAUNCH_NS, ((300, 400), (600, 800)))
    assert (unseen.done_ns, unseen.ran.stretches) == (0, ())


def test_a_timeline_is_read_as_it_grows(tmp_path):
    path = tmp_path / "timeline.jsonl"
    parts = [
        {"pid": 7, "op": 1, "t_start_ns": 10, "t_end_ns": 20},
        {"pid": 8, "op": 1, "t_start_ns": 30, "t_end_ns": 40},
        {"pid": 7, "op": 1, "t_start_ns": 50, "t_end_ns": 60},
        {"pid": 7, "op": 1, "t_start_ns": 60, "t_end_ns": 70},  # on other SMs
    ]
    rest = {"kind": "kernel", "name": "stamped", "t_ready_ns": 5}
    other = {**parts[0], "name": "clock_now"}
    text = "".join(json.dumps({**rest, **part}) + "\n" for part in [*parts, other])
    path.write_text(text + '{"kind": "ker')
    timeline = Timeline(path)

    assert timeline.new() == {7: [Ran(5, ((10, 20), (50, 70)))], 8: [Ran(5, ((30, 40),))]}
    assert timeline.new() == {}

    path.write_text(text + json.dumps({**rest, **parts[1]}) + "\n")
    assert timeline.new() == {8: [Ran(5, ((30, 40),))]}
