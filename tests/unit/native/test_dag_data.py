"""Which uses of memory need an order, and which operations are independent."""

import pytest
from dag_program import Program

from tandem._native import EdgeKind, OperationKind

RAW, WAR = EdgeKind.READ_AFTER_WRITE, EdgeKind.WRITE_AFTER_READ
WAW, UNKNOWN = EdgeKind.WRITE_AFTER_WRITE, EdgeKind.UNKNOWN_DATA
UNRESOLVED = 4


@pytest.fixture
def program():
    return Program()


def read(address, count):
    return (address, count, True)


def write(address, count):
    return (address, count, False)


def test_a_reader_depends_on_the_writer_and_so_does_the_next(program):
    writer = program.launch(program.one, accesses=[write(100, 10)])
    first = program.launch(program.one, accesses=[read(100, 10)])
    second = program.launch(program.other, accesses=[read(105, 1)])

    assert program.dag.data_edges(first) == [(writer, RAW)]
    assert program.dag.data_edges(second) == [(writer, RAW)]
    assert program.dag.edges(second) == []


def test_a_writer_depends_on_all_readers_since_the_last_write(program):
    program.launch(program.one, accesses=[write(100, 10)])
    first = program.launch(program.one, accesses=[read(100, 10)])
    second = program.launch(program.one, accesses=[read(100, 10)])
    writer = program.launch(program.one, accesses=[write(100, 10)])
    last = program.launch(program.one, accesses=[write(100, 10)])

    assert program.dag.data_edges(writer) == [(second, WAR), (first, WAR)]
    assert program.dag.data_edges(last) == [(writer, WAW)]


def test_only_common_bytes_count(program):
    left = program.launch(program.one, accesses=[write(100, 10)])
    right = program.launch(program.one, accesses=[write(105, 10)])
    inner = program.launch(program.one, accesses=[read(102, 6)])
    beside = program.launch(program.one, accesses=[read(115, 5), read(90, 10)])

    assert program.dag.data_edges(right) == [(left, WAW)]
    assert program.dag.data_edges(inner) == [(right, RAW), (left, RAW)]
    assert program.dag.data_edges(beside) == []


def test_what_uses_unknown_memory_depends_on_all_and_all_on_it(program):
    writer = program.launch(program.one, accesses=[write(100, 10)])
    unknown = program.launch(program.other)
    second = program.launch(program.one, accesses=[read(100, 10)])
    elsewhere = program.launch(program.one, accesses=[read(900, 10)])

    assert program.dag.node(unknown).flags == UNRESOLVED
    assert program.dag.data_edges(unknown) == [(writer, UNKNOWN)]
    assert program.dag.data_edges(second) == [(unknown, UNKNOWN)]
    assert program.dag.data_edges(elsewhere) == [(unknown, UNKNOWN)]


def test_an_access_beside_unknown_ones_is_kept(program):
    some = program.launch(program.one, accesses=[write(100, 10)], flags=UNRESOLVED)
    second = program.launch(program.one, accesses=[])

    assert program.dag.accesses(some) == [write(100, 10)]
    assert program.dag.node(second).flags == 0
    assert not program.dag.independent(some, second)


def test_freed_memory_has_no_past(program):
    program.add(OperationKind.ALLOC, object=100, bytes=10)
    writer = program.launch(program.one, accesses=[write(100, 10)])
    freed = program.add(OperationKind.FREE, object=100)
    program.add(OperationKind.ALLOC, object=100, bytes=20)
    reader = program.launch(program.one, accesses=[read(100, 10)])

    assert program.dag.accesses(freed) == [write(100, 10)]
    assert program.dag.data_edges(freed) == [(writer, WAW)]
    assert program.dag.data_edges(reader) == []


def test_memory_that_is_allocated_anew_has_no_past(program):
    program.launch(program.one, accesses=[write(100, 10)])
    program.add(OperationKind.ALLOC, object=95, bytes=10)
    reader = program.launch(program.one, accesses=[read(100, 4)])

    assert program.dag.data_edges(reader) == []


def test_memsets_say_themselves_what_they_write_and_copies_do_not(program):
    filled = program.add(OperationKind.MEMSET, program.one, object=100, bytes=10)
    copied = program.add(OperationKind.COPY, program.one, object=300, bytes=10)

    assert program.dag.accesses(filled) == [write(100, 10)]
    assert program.dag.node(filled).flags == 0
    assert program.dag.node(copied).flags == UNRESOLVED


def test_a_copy_reads_its_source_and_writes_its_destination(program):
    filled = program.add(OperationKind.MEMSET, program.one, object=100, bytes=10)
    accesses = [read(100, 10), write(300, 10)]
    copied = program.add(OperationKind.COPY, program.one, accesses, object=300, bytes=10)
    reader = program.launch(program.one, accesses=[read(300, 10)])

    assert program.dag.data_edges(copied) == [(filled, RAW)]
    assert program.dag.data_edges(reader) == [(copied, RAW)]


def test_const_readers_in_two_streams_are_independent(program):
    first = program.launch(program.one, accesses=[read(100, 10), write(200, 10)])
    second = program.launch(program.other, accesses=[read(100, 10), write(300, 10)])
    third = program.launch(program.blocking, accesses=[read(200, 1)])

    assert program.dag.independent(first, second)
    assert program.dag.independent(second, third)
    assert program.dag.may_overlap(first, third)
    assert not program.dag.independent(first, third)


def test_what_is_kept_in_order_is_not_independent(program):
    first = program.launch(program.one, accesses=[])
    second = program.launch(program.one, accesses=[])

    assert not program.dag.may_overlap(first, second)
    assert not program.dag.independent(first, second)
    assert not program.dag.independent(second, first)


def test_nothing_is_independent_across_a_loss(program):
    first = program.launch(program.one, accesses=[write(100, 10)])
    program.dag.lose()
    second = program.launch(program.other, accesses=[read(100, 10)])
    third = program.launch(program.one, accesses=[])

    assert program.dag.data_edges(second) == []
    assert not program.dag.independent(first, second)
    assert program.dag.independent(second, third)


def test_nothing_is_independent_across_a_wait_for_something_unknown(program):
    first = program.launch(program.one, accesses=[])
    program.add(OperationKind.MEMOP, program.other, accesses=[write(8, 8)], object=8)
    second = program.launch(program.other, accesses=[])

    assert not program.dag.independent(first, second)


def test_the_oldest_of_many_readers_are_stood_for_by_another(program):
    readers = [program.launch(program.one, accesses=[read(100, 10)]) for _ in range(257)]
    writer = program.launch(program.one, accesses=[write(100, 10)])

    assert program.dag.data_edges(writer) == [(readers[256], WAR)]
    assert program.dag.data_edges(readers[256]) == [(r, UNKNOWN) for r in reversed(readers[:256])]


def test_edges_from_forgotten_nodes_are_left_out_and_others_stay(program):
    nodes = [program.launch(program.one, accesses=[write(100, 10)]) for _ in range(5000)]

    program.dag.retire(nodes[4000])

    assert program.dag.data_edges(nodes[4000]) == []
    assert program.dag.data_edges(nodes[4001]) == [(nodes[4000], WAW)]
    assert program.dag.accesses(nodes[4000]) == [write(100, 10)]
    assert program.dag.before(nodes[4000], nodes[4999])


def test_an_access_beyond_the_last_address_is_refused(program):
    with pytest.raises(ValueError, match="access of 2 bytes at 18446744073709551615 goes beyond"):
        program.launch(program.one, accesses=[read(2**64 - 1, 2)])


def test_a_full_window_is_refused_until_nodes_are_retired():
    program = Program(most_nodes=2)
    program.launch(program.one), program.launch(program.one)

    with pytest.raises(ValueError, match="full with 2 of 2 nodes; retire some"):
        program.launch(program.one)
    program.dag.retire(1)
    assert program.launch(program.one) == 2
