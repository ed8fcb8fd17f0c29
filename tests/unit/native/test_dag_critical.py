"""When operations ran, which of them determine the length, and which had slack."""

import pytest
from timed_program import ESTIMATED, HOST_WAITS, PROGRAMMATIC, UNRESOLVED, TimedProgram


@pytest.fixture
def program():
    return TimedProgram()


def fork_and_join(program):
    """A fork: 100 ns, then 50 ns beside 300 ns, then 10 ns; all submitted at once."""
    fork = program.launch(program.one, takes=100)
    program.record(program.one, 1)
    program.wait(program.other, 1)
    long = program.launch(program.other, takes=300)
    program.record(program.other, 2)
    short = program.launch(program.one, takes=50)
    program.wait(program.one, 2)
    join = program.launch(program.one, takes=10)
    return fork, short, long, join


def test_an_operation_begins_when_it_was_handed_over_and_its_stream_is_free(program):
    program.launch(program.one, at=10, takes=100)
    program.launch(program.one, at=20, takes=5)
    program.launch(program.one, at=200, takes=5)

    found = program.analyse()

    assert found.starts_ns == [10, 110, 200]
    assert found.ends_ns == [110, 115, 205]


def test_a_wait_of_the_host_ends_with_what_it_waits_for(program):
    program.launch(program.one, at=10, takes=100)
    wait = program.sync(program.one, at=15)
    late = program.sync(program.one, at=300)

    found = program.analyse()

    assert (found.starts_ns[wait], found.ends_ns[wait]) == (15, 110)
    assert (found.starts_ns[late], found.ends_ns[late]) == (300, 300)


def test_measured_times_win_and_move_what_comes_after(program):
    program.launch(program.one, at=10, takes=100)
    program.launch(program.one, at=11, takes=5)

    found = program.analyse(measured=[(30, 150), None])

    assert found.starts_ns == [30, 150]
    assert found.critical_ns == 125


def test_work_from_before_the_window_delays_it(program):
    program.launch(program.one, at=0, takes=100)
    late = program.launch(program.one, at=1, takes=10)
    program.launch(program.other, at=2, takes=1)

    found = program.analyse(late)

    assert found.starts_ns == [100, 2]
    assert (found.critical_parts.earlier_ns, found.critical_parts.gpu_ns) == (98, 10)
    assert program.analyse(late, since=late).starts_ns == [1, 2]
    assert found.slack_ns == [0, 107]


def test_a_time_that_is_missing_is_that_of_the_call_before(program):
    program.launch(program.one, at=50, takes=1)
    program.launch(program.other, at=0, takes=1)

    assert program.analyse().starts_ns == [50, 50]


def test_the_longer_branch_is_critical_and_the_shorter_has_slack(program):
    fork, short, long, join = fork_and_join(program)

    found = program.analyse()

    kernels = {fork, short, long, join}
    assert [n for n in found.critical_path if n in kernels] == [fork, long, join]
    assert found.critical_ns == found.gpu_critical_ns == 410
    assert found.slack_ns[short] == 250
    assert {found.slack_ns[n] for n in (fork, long, join)} == {0}


def test_a_slow_host_is_critical_but_not_for_the_gpu_alone(program):
    program.launch(program.one, at=0, takes=10)
    program.launch(program.one, at=1000, takes=10)

    found = program.analyse()

    assert (found.critical_ns, found.gpu_critical_ns) == (1010, 20)
    assert (found.critical_parts.host_ns, found.critical_parts.gpu_ns) == (1000, 10)


def test_a_host_whose_launches_are_held_is_not_slow(program):
    program.launch(program.one, at=0, takes=10)
    program.launch(program.one, at=1000, takes=10)

    parts = program.analyse(held=[(5, 200), (100, 800), (2000, 3000)]).critical_parts

    assert (parts.host_ns, parts.held_ns, parts.gpu_ns) == (205, 795, 10)


def test_programmatic_launches_may_run_beside_each_other_and_end_in_their_order(program):
    program.launch(program.one, takes=100)
    program.launch(program.one, takes=100, flags=PROGRAMMATIC)
    program.launch(program.one, takes=30, flags=PROGRAMMATIC)
    program.launch(program.one, takes=50)

    found = program.analyse()

    assert (found.gpu_critical_ns, found.critical_ns) == (150, 280)
    assert found.gpu_critical_path == [1, 2, 3]  # the third ends after the second, then the last


def test_the_path_goes_through_what_the_host_waited_for(program):
    first = program.launch(program.one, at=0, takes=100)
    wait = program.sync(program.one, at=5)
    last = program.launch(program.other, at=130, takes=20)

    found = program.analyse()

    assert found.critical_path == [first, wait, last]
    assert (found.critical_parts.gpu_ns, found.critical_parts.host_ns) == (120, 30)


def test_a_wait_that_outlasts_what_is_known_was_for_the_work_without_a_duration(program):
    launches = [program.launch(program.one, at=at) for at in (0, 5, 10)]
    wait = program.sync(program.one, at=12, takes=500)

    found = program.analyse()

    assert found.critical_path == [*launches, wait]
    assert (found.critical_ns, found.ends_ns[wait]) == (512, 512)
    assert (found.critical_parts.gpu_ns, found.critical_parts.host_ns) == (500, 12)
    assert (found.slack_ns[launches[-1]], found.slack_ns[wait]) == (2, 0)


def test_the_work_without_a_duration_is_found_behind_an_event(program):
    first = program.launch(program.one, at=0)
    program.record(program.one, 1, at=1)
    wait = program.add("SYNC_EVENT", object=1, at=2, takes=98)
    last = program.launch(program.other, at=110, takes=20)

    found = program.analyse()

    assert found.critical_path == [first, wait, last]
    parts = found.critical_parts
    assert (parts.gpu_ns, parts.host_ns, parts.other_ns) == (98 + 20, 2 + 10, 0)


def test_a_wait_that_outlasts_known_durations_waited_for_something_else(program):
    launch = program.launch(program.one, at=0, takes=100)
    wait = program.sync(program.one, at=5, takes=200)

    found = program.analyse()

    assert found.critical_path == [launch, wait]
    assert (found.critical_parts.gpu_ns, found.critical_parts.other_ns) == (100, 105)


def test_a_copy_that_the_host_waits_for_delays_what_it_submits_next(program):
    copy = program.copy(program.one, at=0, takes=100, flags=HOST_WAITS)
    aside = program.launch(program.other, at=0, takes=110)
    program.launch(program.other, at=120, takes=20)

    found = program.analyse()

    assert found.slack_ns[copy] == 0
    assert found.slack_ns[aside] == 0  # submitted after the copy, and the other kernel follows it


def test_by_data_alone_there_is_a_path_only_where_all_accesses_are_known(program):
    first = program.launch(program.one, takes=10, uses=[(0, 8, False)])
    program.launch(program.one, takes=15, uses=[(64, 8, False)])
    last = program.launch(program.one, takes=20, uses=[(0, 8, True)])

    known = program.analyse()
    program.launch(program.one, takes=5)
    unknown = program.analyse()

    assert (known.data_critical_path, known.data_critical_ns) == ([first, last], 30)
    assert known.gpu_critical_ns == 45
    assert (unknown.data_critical_path, unknown.data_critical_ns) == (None, None)


def test_by_data_alone_there_is_no_path_across_a_loss(program):
    program.launch(program.one, takes=10, uses=[])
    program.dag.lose()
    program.launch(program.one, takes=10, uses=[])

    assert program.analyse().data_critical_ns is None
    assert program.analyse(1).data_critical_ns == 10


def test_it_says_what_it_does_not_know(program):
    program.launch(program.one, takes=10, flags=ESTIMATED, uses=[])
    program.launch(program.one, flags=UNRESOLVED)

    unknown = program.analyse().unknown

    assert (unknown.durations, unknown.estimated, unknown.accesses, unknown.order) == (1, 1, 1, 0)


def test_times_that_cannot_be_do_no_harm(program):
    program.launch(program.one, at=2**64 - 5, takes=2**64 - 1)
    program.launch(program.one, at=3, takes=2**63)

    assert program.analyse().ends_ns == [2**64 - 1, 2**64 - 1]


def test_an_empty_window_has_nothing(program):
    found = program.analyse()

    assert (found.critical_path, found.critical_ns, found.slack_ns) == ([], 0, [])


def test_what_is_not_there_cannot_be_analysed(program):
    program.launch(program.one)

    with pytest.raises(IndexError, match="nodes 0 to 2 are not there; 0 to 1 are"):
        program.analyse(0, 2)
    with pytest.raises(ValueError, match="measured has 2 entries; the window has 1"):
        program.analyse(measured=[None, None])
