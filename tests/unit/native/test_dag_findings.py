"""What runs at once, what bounds it, when and why the GPU idles, and what is used next."""

import pytest
from timed_program import HOST_WAITS, TimedProgram

from tandem._native import GapCause, OperationClass

US = 1_000


@pytest.fixture
def program():
    return TimedProgram()


def test_width_counts_what_runs_at_once(program):
    program.launch(program.one, at=0, takes=100)
    program.copy(program.other, at=50, takes=100)
    program.launch(program.one, at=200, takes=50)

    found = program.analyse()

    assert found.width == [(0, 1), (50, 2), (100, 1), (150, 0), (200, 1), (250, 0)]
    assert (found.most_width, found.mean_width, found.busy_ns) == (2, 1.0, 200)


def test_neighbours_in_a_stream_are_one_width(program):
    program.launch(program.one, takes=100)
    program.launch(program.one, takes=100)

    assert program.analyse().width == [(0, 1), (200, 0)]


def test_overlap_of_a_kernel_and_a_transfer(program):
    program.launch(program.one, at=0, takes=100)
    program.copy(program.other, at=75, takes=50)

    overlap = program.analyse().overlap

    assert (overlap.ct, overlap.tc, overlap.cc) == (0.25, 0.5, 0.0)
    assert overlap.tot == pytest.approx(25 / 150)


def test_kernels_side_by_side_overlap_each_other(program):
    program.launch(program.one, at=0, takes=100)
    program.launch(program.other, at=0, takes=100)

    overlap = program.analyse().overlap

    assert (overlap.ct, overlap.tc, overlap.cc, overlap.tot) == (0.0, 0.0, 1.0, 0.5)


def classes_of(program):
    """Classes at 1 byte/ns, with 8 SMs, and 5 us as the limit for small."""
    found = program.analyse(sm_count=8, bandwidth_bytes_per_s=10**9)
    return [c.name for c in found.classes], found


@pytest.mark.parametrize(
    ("takes_us", "blocks", "uses", "name"),
    [
        (100, 7, [(0, 90 * US, True)], "SMALL"),
        (4, 100, [(0, 90 * US, True)], "SMALL"),
        (100, 100, [(0, 70 * US, True)], "MEMORY"),
        (100, 100, [(0, 10 * US, True)], "COMPUTE"),
        (100, 100, [(0, 40 * US, True)], "UNKNOWN"),  # between the two limits
        (100, 100, [(0, 101 * US, True)], "UNKNOWN"),  # too short to have touched all of that
        (100, 100, [(0, 70 * US, True), (0, 70 * US, False)], "MEMORY"),  # the same bytes twice
        (100, 100, None, "UNKNOWN"),
        (0, 100, [(0, 70 * US, True)], "UNKNOWN"),
    ],
)
def test_a_class_is_what_the_known_figures_say(program, takes_us, blocks, uses, name):
    program.launch(program.one, takes=takes_us * US, blocks=blocks, uses=uses)

    assert classes_of(program)[0] == [name]


def test_without_the_device_nothing_is_said_of_bandwidth(program):
    program.launch(program.one, takes=100 * US, blocks=1, uses=[(0, 8, True)])

    assert program.analyse().classes == [OperationClass.UNKNOWN]


def test_shares_are_of_gpu_time(program):
    program.launch(program.one, takes=300 * US, blocks=100, uses=[(0, 200 * US, True)])
    program.copy(program.one, takes=100 * US)
    program.record(program.one, 1)

    names, found = classes_of(program)

    assert names == ["MEMORY", "COPY", "NONE"]
    assert found.class_shares[OperationClass.MEMORY] == 0.75
    assert found.class_shares[OperationClass.COPY] == 0.25
    assert found.dominating_class is OperationClass.MEMORY


def only_gap(program, **rest):
    (gap,) = program.analyse(**rest).gaps
    return gap


def test_a_host_that_is_late_makes_a_gap(program):
    program.launch(program.one, at=0, takes=100)
    late = program.launch(program.one, at=150, takes=100)

    gap = only_gap(program)

    assert (gap.start_ns, gap.end_ns, gap.next, gap.cause) == (100, 150, late, GapCause.HOST)


def test_a_gap_after_a_wait_is_the_waits(program):
    program.launch(program.one, at=0, takes=100)
    program.sync(program.one, at=10)
    program.launch(program.one, at=150, takes=100)

    assert only_gap(program).cause is GapCause.SYNC
    assert only_gap(program, pause_ns=49).cause is GapCause.PAUSE


def test_a_gap_in_which_launches_were_held_is_no_fault_of_the_host(program):
    program.launch(program.one, at=0, takes=100)
    program.launch(program.one, at=150, takes=100)

    held = only_gap(program, held=[(110, 130), (125, 500)])
    hardly = only_gap(program, held=[(0, 110)])

    assert (held.cause, held.held_ns) == (GapCause.HELD, 40)
    assert (hardly.cause, hardly.held_ns) == (GapCause.HOST, 10)


def test_a_gap_behind_a_host_function_is_the_functions(program):
    program.launch(program.one, at=0, takes=100)
    program.add("HOST_FUNC", program.one, at=1, takes=50)
    program.launch(program.one, at=2, takes=100)

    assert only_gap(program).cause is GapCause.FUNCTION


def test_a_gap_for_which_the_graph_has_no_reason_is_not_explained(program):
    program.launch(program.one, at=0, takes=100)
    program.launch(program.one, at=1, takes=100)

    assert only_gap(program, measured=[(0, 100), (150, 250)]).cause is GapCause.OTHER


def test_work_from_before_the_window_is_no_gap(program):
    program.launch(program.one, at=0, takes=100)
    first = program.launch(program.other, at=150, takes=10)

    assert [(g.start_ns, g.end_ns) for g in program.analyse(first).gaps] == [(100, 150)]


def test_gaps_are_forecast_by_their_place_in_the_iteration(program):
    begins = []
    for number, pause_us in enumerate([60, 100, 80, 10]):
        begin = number * 1000 * US
        begins.append(program.launch(program.one, at=begin, takes=100 * US))
        program.launch(program.one, at=begin + (100 + pause_us) * US, takes=100 * US)

    places = program.analyse(iterations=begins).gap_places

    end, middle = places[0], places[1]
    assert (end.place, end.count, end.iterations) == (0, 3, 4)
    assert (middle.place, middle.count, middle.iterations) == (1, 3, 4)
    assert (middle.p50_ns, middle.p90_ns) == (80 * US, 100 * US)


def test_a_slow_host_is_launch_bound(program):
    for number in range(10):
        program.launch(program.one, at=number * 100, takes=50)

    found = program.analyse().launch_bound

    assert (found.operations, found.found_idle, found.share, found.verdict) == (10, 10, 1.0, True)
    assert found.idle_share == pytest.approx(450 / 950)


def test_a_full_queue_is_not_launch_bound(program):
    for number in range(10):
        program.launch(program.one, at=number, takes=50)

    found = program.analyse().launch_bound

    assert (found.found_idle, found.verdict) == (1, False)


def test_a_wait_names_what_it_was_for(program):
    kernel = program.launch(program.one, at=0, takes=100)
    program.record(program.one, 1, at=1)
    wait = program.add("SYNC_EVENT", object=1, at=10)
    again = program.add("SYNC_EVENT", object=1, at=200)
    copy = program.copy(program.one, at=300, takes=40, flags=HOST_WAITS)

    found = [(w.node, w.reason, w.waited_ns) for w in program.analyse().waits]

    assert found == [(wait, kernel, 90), (again, None, 0), (copy, copy, 40)]


def test_how_long_a_wait_took_is_what_the_host_measured(program):
    program.launch(program.one, at=0, takes=100)
    program.sync(program.one, at=10, takes=95)

    assert program.analyse().waits[0].waited_ns == 95


def uses_of(found):
    return [(u.node, u.next, u.distance_nodes, u.distance_ns, u.is_bound) for u in found.next_uses]


def test_the_next_use_of_a_buffer(program):
    program.launch(program.one, takes=100, uses=[(0, 64, False)])
    program.launch(program.one, takes=50, uses=[(100, 8, True)])
    program.launch(program.one, takes=50, uses=[(32, 64, True)])  # shares bytes with the first

    once = program.analyse().next_uses
    assert uses_of(program.analyse()) == [
        (0, 2, 2, 50, False),
        (1, None, None, None, False),
        (2, None, None, None, False),
    ]
    assert (once[0].address, once[0].bytes) == (0, 96)
    assert uses_of(program.analyse(periodic=True)) == [
        (0, 2, 2, 50, False),
        (1, 1, 3, 150, False),
        (2, 0, 1, 0, False),
    ]


def test_behind_unknown_accesses_a_next_use_is_an_upper_bound(program):
    program.launch(program.one, takes=100, uses=[(0, 64, False)])
    program.launch(program.one, takes=50)
    program.launch(program.one, takes=50, uses=[(0, 64, True)])
    program.launch(program.one, takes=50, uses=[(0, 64, True)])

    assert uses_of(program.analyse()) == [
        (0, 2, 2, 50, True),
        (2, 3, 1, 0, False),
        (3, None, None, None, False),
    ]
    assert uses_of(program.analyse(periodic=True))[-1] == (3, 0, 1, 0, False)
