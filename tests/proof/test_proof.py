"""No program can tell that the shim is there: random programs run bare and managed."""

import random
from collections import Counter
from contextlib import closing

import proof_coverage as coverage
import proof_data as data
import proof_things as things
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proof_compare import differences
from proof_generator import CODES, build, random_codes
from proof_model import Model
from proof_program import program_of
from proof_stage import Stage


@pytest.fixture(scope="module")
def stage(made):
    found = Stage(made=made)
    yield found
    found.close()


def compare(stage, codes, *, tidily):
    """Assert that there is no difference; return how often each subject was reached."""
    program = build(codes, tidily=tidily)
    bare = stage.bare(program)
    found = differences(program, bare, stage.managed(program))
    assert not found, "\n".join([str(program), *found])
    return coverage.subjects(coverage.succeeded(program, bare))


@settings(max_examples=10)
@given(codes=CODES)
def test_a_few_random_programs_come_to_the_same(stage, codes):
    compare(stage, codes, tidily=True)


@pytest.mark.slow
@settings(max_examples=80)
@given(codes=CODES, tidily=st.booleans())
def test_random_programs_come_to_the_same(stage, codes, tidily):
    compare(stage, codes, tidily=tidily)


@pytest.mark.slow
def test_programs_with_much_in_them_come_to_the_same_and_reach_every_subject(stage):
    reached = Counter()

    for number in range(120):
        codes, tidily = random_codes(random.Random(f"much-{number}"))
        reached += compare(stage, codes, tidily=tidily)

    assert coverage.SUBJECTS.keys() == reached.keys()


def test_random_programs_come_to_the_same_while_their_set_of_sms_changes(made):
    switches = 0
    with closing(Stage(in_sets=True, made=made)) as stage:
        for number in range(8):
            codes, tidily = random_codes(random.Random(f"sets-{number}"))
            program = build(codes, tidily=tidily)
            bare, managed = stage.bare(program), stage.managed(program)
            assert not differences(program, bare, managed), str(program)
            switches += managed.watched.switches

    assert switches >= 8


@given(codes=CODES)
def test_a_program_is_data(codes):
    program = build(codes)

    assert program_of(program.json()) == program


@pytest.mark.slow
def test_a_program_comes_to_the_same_under_tandemd_which_holds_it(made):
    launch = ("launch", bytes(10))
    program = build([launch, ("hold", b""), launch, ("hold", b""), launch])
    with closing(Stage(under_tandemd=True, made=made)) as stage:
        bare, managed = stage.bare(program), stage.managed(program)

    assert not differences(program, bare, managed)
    assert len(managed.watched.waited) == 2


def test_without_the_wait_that_a_capture_refuses_nothing_is_copied(stage):
    model = Model()
    things.begin(model)
    lane = model.lanes[0]
    model.emit(0, "cuStreamBeginCapture_v2", "s0", 2)
    data.do_now(model, lane, "cuMemcpyDtoH_v2", "H0", "d0!", 64)
    wait, copy = len(model.program.steps) - 2, len(model.program.steps) - 1
    model.emit(0, "cuStreamEndCapture", "s0", "&g0")
    things.finish(model, tidily=True)

    bare = stage.bare(model.finished())

    assert not lane.is_blocking
    assert bare.steps[wait].split()[0] == "900"  # CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    assert bare.steps[copy].split() == ["left-out"]


def test_a_held_call_waits_and_is_seen_to(stage):
    launch = ("launch", bytes(10))
    program = build([("hold", b""), launch, ("hold", b""), launch])

    managed = stage.managed(program)

    assert managed.watched.is_attached
    assert len(managed.watched.waited) == 2


@pytest.mark.parametrize(
    ("thread", "ending"),
    [(1, ("cuStreamEndCapture", "s1", "&g0")), (1, ("cuStreamDestroy_v2", "s1"))],
    ids=["ended", "destroyed"],
)
def test_a_thread_whose_capture_another_ends_waits_at_the_gate_again(stage, thread, ending):
    model = Model()
    things.begin(model)
    model.enter(thread, "c0")
    model.emit(0, "cuStreamCreate", "&s1", 1)
    model.emit(0, "cuStreamBeginCapture_v2", "s1", 2)
    model.emit(thread, *ending)
    things.hold(model)
    model.work(model.lanes[0], "cuMemsetD32Async", "d0", 9, 8, "s0", thread=0)
    things.finish(model, tidily=True)
    program = model.finished()

    managed = stage.managed(program)

    assert not differences(program, stage.bare(program), managed)
    assert len(managed.watched.waited) == 1
