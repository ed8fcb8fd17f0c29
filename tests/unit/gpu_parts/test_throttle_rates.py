"""A trainer's rate counts in the second half of a run, when the policy has settled."""

import itertools

import pytest
from bench.gpu.parts.throttle import kept

from tandem.demo.measure import Outcome, WorkerReport

SECOND_NS = 1_000_000_000


def report(role, *ends_s):
    edges_ns = [int(end * SECOND_NS) for end in (0, *ends_s)]
    items = tuple(
        {"begin_ns": begin_ns, "end_ns": end_ns, "correct": True}
        for begin_ns, end_ns in itertools.pairwise(edges_ns)
    )
    return WorkerReport(role=role, pid=1, exit_code=0, start_ns=0, items=items)


@pytest.mark.parametrize(
    ("ends_s", "part"),
    [
        ([2, 4, 5, 6, 7, 8], 0.5),  # the slow start does not count
        ([1, 2, 3, 4, 6, 8], 0.25),
        ([8], 0),
        ([], 0),
    ],
)
def test_only_the_second_half_counts(ends_s, part):
    outcome = Outcome(name="x", window_ns=8 * SECOND_NS, spans=(), workers=(report("a", *ends_s),))

    assert kept(outcome, {"a": 2.0}) == {"a": part}
    assert kept(outcome, {"a": 0.0}) == {"a": 0}
