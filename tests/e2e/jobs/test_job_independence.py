"""Which kernels of a running job are independent, by their names and parameters."""

import pytest

from tandem._native import OperationKind
from tandem.dag.from_job import from_job
from tandem.dag.graph import graph_of

MANGLED, PLAIN = "_Z7doubledPKfPf", "plain_doubled"


def launches(graph):
    return [n for n in graph.nodes if graph.operation(n).kind is OperationKind.LAUNCH]


def addresses(graph, node):
    return {access.address for access in graph.operation(node).accesses}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "work", "independent"),
    [(MANGLED, "read", True), (MANGLED, "write", False), (PLAIN, "read", False)],
)
def test_kernels_that_only_read_a_buffer_are_independent(place, sharers, kernel, work, independent):
    job = place.job("sharing")
    made = f"__import__('sharing_buffer').Sharing(gpu, {str(sharers)!r}, {kernel!r})"
    job.start(f"for_ever({made}.{work})")
    assert job.result() == "going"

    with place.client() as client:
        graph = graph_of(from_job(client.windows("sharing"), "sharing"))

    one, other = launches(graph)[:2]
    assert len(addresses(graph, one) & addresses(graph, other)) == 1
    assert not graph.dag.before(one, other)
    assert graph.dag.independent(one, other) is independent
