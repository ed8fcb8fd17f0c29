"""Which memory the launches of a recording use, and what is independent as a result."""

import pytest
from programs import ONE, TWO, Program
from recordings import recording_of

from tandem._marks import STEP
from tandem._native import Allocations
from tandem.dag.from_trace import from_trace
from tandem.dag.graph import graph_of
from tandem.dag.model import UNRESOLVED
from tandem.dag.rests import Memory
from tandem.dag.stats import stats_of

A, B, C, BYTES = 0x7F00_0000_0000, 0x7F00_0010_0000, 0x7F00_0020_0000, 4096
UNKNOWN = 0x7FFF_0000_0000
FILL, COPY, PLAIN, PAIR, WALK = range(0xF0, 0xF5)
CUT = 8


def program(**where):
    """A program with three allocations and five kernels."""
    made = Program(**where).function(FILL, b"_Z4fillPf", (8,))
    made.function(COPY, b"_Z4copyPKfPfi", (8, 8, 4)).function(PLAIN, b"plain", (8,))
    made.function(PAIR, b"_Z4pair4PairPf", (16, 8)).function(WALK, b"_Z4walkP4Node", (8,))
    for address in (A, B, C):
        made.on("cuMemAlloc_v2", 9, address, BYTES)
    return made


def graph(thread):
    return graph_of(from_trace(recording_of(thread), "x.trace"))


def last(thread):
    """Return the accesses of the last operation, and whether they are complete."""
    operation = from_trace(recording_of(thread), "x.trace").operations[-1]
    uses = list(operation.accesses)
    return uses, not operation.flags & UNRESOLVED


def test_two_readers_between_two_writers():
    made = program().run(ONE, function=FILL, parameters=(A,))
    made.run(ONE, function=COPY, parameters=(A, B, 7)).run(TWO, function=COPY, parameters=(A, C, 7))
    made.run(ONE, function=FILL, parameters=(A,))

    found = graph(made)

    assert [(a, b, kind.name) for a, b, kind in found.data_edges()] == [
        (3, 4, "READ_AFTER_WRITE"),
        (3, 5, "READ_AFTER_WRITE"),
        (4, 6, "WRITE_AFTER_READ"),
        (5, 6, "WRITE_AFTER_READ"),
    ]
    assert found.dag.independent(4, 5)
    assert not found.dag.independent(5, 6)


def test_figures_say_what_data_asks_for_if_all_is_known():
    made = program()
    for stream, to in ((ONE, B), (TWO, C)):
        made.run(stream, function=COPY, parameters=(A, to, 7), device_ns=1000)
    known = stats_of(graph(made))
    unknown = stats_of(graph(made.run(ONE, function=PLAIN, parameters=(A,))))

    assert (known.data_critical_ns, known.unknown.accesses) == (1000, 0)
    assert (unknown.data_critical_ns, unknown.unknown.accesses) == (None, 1)
    assert any("more memory than is known" in doubt for doubt in unknown.doubts())


@pytest.mark.parametrize(
    ("between", "between_ns", "resting_bytes", "is_bound"),
    [
        (FILL, 700, BYTES, False),  # the way to the host and back takes 683 ns
        (FILL, 600, 0, False),
        (PLAIN, 700, BYTES, True),  # which may use A as well
    ],
)
def test_memory_rests_if_it_could_go_and_be_back_before_it_is_used(
    between, between_ns, resting_bytes, is_bound
):
    made = program().run(ONE, function=FILL, parameters=(A,), device_ns=1000)
    made.run(ONE, function=between, parameters=(B,), device_ns=between_ns)
    made.run(ONE, function=COPY, parameters=(A, C, 7), device_ns=1000)

    found = stats_of(graph(made))

    assert found.memory == Memory(
        used_bytes=3 * BYTES, resting_bytes=resting_bytes, is_bound=is_bound
    )
    said = dict(found.facts())["rests for long enough to move"]
    bound = "at most " * is_bound
    assert said == (
        f"{bound}4 KiB, to the host and back at 12 GB/s" if resting_bytes else "nothing"
    )


def test_of_an_iteration_what_comes_next_is_the_same_again():
    made = program()
    for _ in range(3):
        made.run(ONE, function=FILL, parameters=(A,), device_ns=1000)
        made.on("tandem_mark_v1", STEP, 0, 0)
    recorded = from_trace(recording_of(made), "x.trace")

    # Each iteration uses it once, and the next iteration's use follows immediately.
    assert stats_of(graph_of(recorded, iteration=2)).memory.resting_bytes == 0
    (use,) = graph_of(recorded, iteration=2).analysis.next_uses
    assert use.next is not None


@pytest.mark.parametrize(
    ("function", "parameters", "uses"),
    [
        (COPY, (A + 8, B, 7), [(A, BYTES, True), (B, BYTES, False)]),
        (COPY, (A, A + 8, 7), [(A, BYTES, False)]),
        (COPY, (A, 0, 7), [(A, BYTES, True)]),
    ],
)
def test_what_the_name_explains_is_all(function, parameters, uses):
    made = program().run(ONE, function=function, parameters=parameters)

    assert last(made) == (uses, True)


@pytest.mark.parametrize(
    ("function", "parameters", "uses"),
    [
        (PAIR, (A, 5, B), [(A, BYTES, False), (B, BYTES, False)]),  # a structure by value
        (PAIR, (UNKNOWN, 5, B), [(B, BYTES, False)]),
        (WALK, (A,), [(A, BYTES, False)]),  # pointers behind the pointer
        (PLAIN, (A,), [(A, BYTES, False)]),  # a name without types
        (COPY, (A, UNKNOWN, 7), [(A, BYTES, True)]),
        (COPY, (A, B + BYTES, 7), [(A, BYTES, True)]),
        (COPY, (A, B), [(A, BYTES, True), (B, BYTES, False)]),  # fewer words than parameters
        (0xFF, (A,), []),  # an undescribed function
        (FILL, (0,), []),
    ],
)
def test_what_the_name_does_not_explain_may_be_more(function, parameters, uses):
    made = program().run(ONE, function=function, parameters=parameters)

    assert last(made) == (uses, False)


def test_cut_parameters_may_be_more():
    words = (COPY, 1, 1, 1, 32, 1, 1, 0, ONE, 0x1000, 0, A, B, 7)
    made = program().on("cuLaunchKernel", *words, stream=ONE, flags=CUT)

    assert last(made) == ([(A, BYTES, True), (B, BYTES, False)], False)


def test_where_calls_are_missing_what_is_allocated_is_not_sure():
    made = program()
    made.next += 1

    assert last(made.run(ONE, function=FILL, parameters=(A,))) == ([(A, BYTES, False)], False)


def test_pitched_memory_is_used_with_its_padding():
    made = program().on("cuMemAllocPitch_v2", 9, UNKNOWN, 8, 512, 100, 3, 4)
    made.run(ONE, function=FILL, parameters=(UNKNOWN,))

    assert last(made) == ([(UNKNOWN, 1536, False)], True)


def test_an_allocation_takes_the_place_of_those_that_were_freed_unseen():
    known = Allocations()
    for address in (100, 200, 300, 400):
        known.add(address, 100)

    known.add(250, 100)

    assert [known.holding(address) for address in (199, 249, 250, 349, 350, 400)] == [
        (100, 100),
        None,
        (250, 100),
        (250, 100),
        None,
        (400, 100),
    ]
    assert (known.remove(200), known.remove(250), known.holding(250)) == (0, 100, None)
    assert (known.remove(2**64 - 1), known.holding(0)) == (0, None)


def test_allocations_at_the_ends_of_the_address_space():
    known = Allocations()
    known.add(2**64 - 8, 2**64 - 1)
    known.add(0, 0)

    assert known.holding(2**64 - 1) == (2**64 - 8, 2**64 - 1)
    assert known.holding(0) is None
