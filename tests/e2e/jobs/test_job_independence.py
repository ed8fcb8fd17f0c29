"""Which kernels of a running job are independent, judged by their names and parameters."""

import pytest
from running_job import until

from tandem._native import OperationKind
from tandem.dag.from_job import from_job
from tandem.dag.graph import graph_of
from tandem.errors import UsageError

MANGLED, PLAIN = "_Z7doubledPKfPf", "plain_doubled"
DECLARED = {PLAIN: "const float* from, float* to"}


def launches(graph):
    return [n for n in graph.nodes if graph.operation(n).kind is OperationKind.LAUNCH]


def addresses(graph, node):
    return {address for address, _, _ in graph.operation(node).accesses}


def share(place, sharers, kernel, work):
    """Start a job whose two streams launch the kernel for ever."""
    job = place.job("sharing")
    made = f"__import__('sharing_buffer').Sharing(gpu, {str(sharers)!r}, {kernel!r})"
    job.go_on(f"{made}.{work}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "signatures", "work", "independent"),
    [
        (MANGLED, {}, "read", True),
        (MANGLED, {}, "write", False),
        (PLAIN, {}, "read", False),
        (PLAIN, DECLARED, "read", True),
        (PLAIN, DECLARED, "write", False),
    ],
)
def test_kernels_that_only_read_a_buffer_are_independent(
    place, sharers, kernel, signatures, work, independent
):
    share(place, sharers, kernel, work)

    found = []

    def is_recorded():
        graph = graph_of(from_job(client.windows("sharing", signatures=signatures), "sharing"))
        known = [node for node in launches(graph) if addresses(graph, node)]
        found[:] = [graph, *known[:2]]
        return len(known) > 1

    # A window may begin with launches whose parameters were not yet recorded, or have only such.
    with place.client() as client:
        until(is_recorded, what="an iteration with its parameters")
    graph, one, other = found
    assert len(addresses(graph, one) & addresses(graph, other)) == 1
    assert not graph.dag.before(one, other)
    assert graph.dag.independent(one, other) is independent


@pytest.mark.slow
def test_a_signature_that_does_not_fit_its_kernel_is_refused(place, sharers):
    share(place, sharers, PLAIN, "read")

    with place.client() as client, pytest.raises(UsageError) as refused:
        client.windows("sharing", signatures={PLAIN: "const float* from, float* to, int n"})

    assert f"'{PLAIN}' takes 2 parameters and is declared with 3" in str(refused.value)
