"""What a recording's marks and copy times yield."""

import pytest
from programs import ONE, VADD, Program
from recordings import recording_of

from tandem._marks import PHASE_BEGIN, PHASE_END, STEP, fnv1a
from tandem.dag.from_trace import from_trace
from tandem.dag.graph import graph_of
from tandem.dag.iterations import with_iterations
from tandem.dag.stats import stats_of
from tandem.trace.plan import make_plan

PHASES = {"forward": 3, "backward": 6, "update": 2}  # launches of each
LAUNCHES = sum(PHASES.values())


def mark(program, kind, name=""):
    return program.on("tandem_mark_v1", kind, fnv1a(name.encode()) if name else 0, 0)


def iterate(program, *, marks=True):
    """A training iteration that marks its phases and its end."""
    for name, launches in PHASES.items():
        if marks:
            mark(program, PHASE_BEGIN, name)
        for _ in range(launches):
            program.run(ONE, device_ns=1000)
        if marks:
            mark(program, PHASE_END, name)
    return mark(program, STEP) if marks else program


def window(*programs):
    return with_iterations(from_trace(recording_of(*programs), "x.trace"))


def test_iterations_end_where_the_program_says_so():
    made = Program().function(VADD)
    found = window(iterate(iterate(made)).run(ONE))

    assert found.iterations == ((0, LAUNCHES), (LAUNCHES, 2 * LAUNCHES))
    assert found.is_marked
    assert len(found.operations) == 2 * LAUNCHES + 1  # marks are not operations


def test_without_marks_iterations_are_looked_for():
    found = window(iterate(iterate(Program().function(VADD), marks=False), marks=False))

    assert not found.is_marked
    assert found.marks == ()


def test_marks_of_another_process_end_no_iteration():
    busy, other = Program(pid=1, tid=1).function(VADD), Program(pid=2, tid=2, first=100)
    found = window(iterate(busy), mark(other.function(VADD).run(ONE), STEP))

    assert found.iterations == ((0, LAUNCHES),)


@pytest.mark.parametrize("iteration", [1, 2])
def test_phases_are_those_that_the_program_marks(iteration):
    found = graph_of(window(iterate(iterate(Program().function(VADD)))), iteration)

    assert list(found.phases.values()) == [n for n, count in PHASES.items() for _ in range(count)]


@pytest.mark.parametrize(("copy_ns", "share"), [(400, 0.4), (None, 0.0)])
def test_kernels_overlap_with_copies_whose_times_are_known(copy_ns, share):
    made = Program().function(VADD).run(ONE, device_ns=1000)
    made.on("cuMemcpyHtoDAsync_v2", 0x7F00, 9, 64, 0x66, stream=0x66, device_ns=copy_ns)

    found = stats_of(graph_of(window(made)))

    assert found.overlap.ct == pytest.approx(share)
    assert found.unknown.durations == (copy_ns is None)


def test_a_replay_plays_no_marks_and_takes_no_copy_for_a_kernel():
    made = mark(Program().function(VADD), STEP)
    made.on("cuMemcpyHtoDAsync_v2", 0x7F00, 9, 64, ONE, stream=ONE, device_ns=400)
    made.run(ONE)  # not timed

    plan = make_plan(recording_of(made))

    assert plan.counts == {"copy": 1, "launch": 1}
    assert plan.kernel_ns == 0
    assert plan.left_out == {}
