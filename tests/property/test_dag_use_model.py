"""Width, overlap, gaps and next uses against a model that checks every ns and every pair."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem._native import Dag, Operation, OperationKind, StreamKind, analyse

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from([OperationKind.LAUNCH, OperationKind.COPY, OperationKind.MEMSET]),
        st.integers(0, 2),  # stream
        st.integers(0, 40),  # ns since the previous call
        st.integers(0, 60),  # duration
        st.none() | st.lists(st.tuples(st.integers(0, 20), st.integers(1, 4)), max_size=2),
    ),
    min_size=1,
    max_size=20,
)


def program(operations):
    dag = Dag()
    context = dag.add_context()
    streams = [dag.add_stream(context, StreamKind.NON_BLOCKING) for _ in range(3)]
    thread = dag.add_thread(context)
    now = 0
    for kind, stream, since, duration, uses in operations:
        now += since
        accesses = None if uses is None else [(at, size, True) for at, size in uses]
        operation = Operation(
            kind,
            thread=thread,
            stream=streams[stream],
            submitted_ns=now,
            duration_ns=duration,
            object=1000,
            bytes=1,
        )
        dag.add(operation, accesses)
    return dag


def running(dag, found):
    """Returns, for each ns, the nodes that run."""
    end = max(found.ends_ns)
    at = [[] for _ in range(end)]
    for node, (start, stop) in enumerate(zip(found.starts_ns, found.ends_ns, strict=True)):
        for ns in range(start, stop):
            at[ns].append(node)
    return at


def ratio(part, whole):
    return part / whole if whole else 0


@settings(max_examples=150, deadline=None)
@given(OPERATIONS)
def test_width_and_gaps_are_what_every_ns_says(operations):
    dag = program(operations)

    found = analyse(dag, 0, dag.end)

    at = running(dag, found)
    steps = dict(found.width)
    count, gaps = 0, []
    for ns, nodes in enumerate(at):
        count = steps.get(ns, count)
        assert count == len(nodes)
        if not nodes and any(at[:ns]) and any(at[ns:]):
            gaps.append(ns)
    assert gaps == [ns for gap in found.gaps for ns in range(gap.start_ns, gap.end_ns)]
    assert found.busy_ns == sum(1 for nodes in at if nodes)
    assert found.most_width == max(map(len, at), default=0)


@settings(max_examples=150, deadline=None)
@given(OPERATIONS)
def test_overlap_is_what_every_ns_says(operations):
    dag = program(operations)

    found = analyse(dag, 0, dag.end)

    ct = tc = cc = tot = kernels = transfers = total = 0
    for nodes in running(dag, found):
        kinds = [dag.node(n).kind for n in nodes]
        k, c = kinds.count(OperationKind.LAUNCH), kinds.count(OperationKind.COPY)
        kernels, transfers, total = kernels + k, transfers + c, total + len(nodes)
        ct += k if c else 0
        tc += c if k else 0
        cc += k if k > 1 else 0
        tot += max(0, len(nodes) - 1)
    overlap = found.overlap
    assert overlap.ct == pytest.approx(ratio(ct, kernels))
    assert overlap.tc == pytest.approx(ratio(tc, transfers))
    assert overlap.cc == pytest.approx(ratio(cc, kernels))
    assert overlap.tot == pytest.approx(ratio(tot, total))


@settings(max_examples=100, deadline=None)
@given(OPERATIONS, st.booleans())
def test_a_next_use_is_the_first_node_that_touches_the_buffer(operations, periodic):
    dag = program(operations)
    count = dag.end
    touched = [{b for a, s, _ in dag.accesses(n) for b in range(a, a + s)} for n in range(count)]
    unknown = [bool(dag.node(n).flags & 4) for n in range(count)]

    for use in analyse(dag, 0, count, periodic=periodic).next_uses:
        later = list(range(use.node + 1, count))
        if periodic:
            later += range(use.node + 1)
        buffer = set(range(use.address, use.address + use.bytes))
        step = next((i for i, n in enumerate(later) if touched[n] & buffer), None)
        between = later if step is None else later[:step]

        assert use.next == (None if step is None else later[step])
        assert use.distance_nodes == (None if step is None else step + 1)
        assert use.is_bound == any(unknown[n] for n in between)
