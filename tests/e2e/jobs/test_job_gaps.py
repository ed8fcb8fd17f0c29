"""Best-effort work in the short gaps of a latency job: the gaps foreseen, and not."""

import signal

import pytest
from running_job import until

from tandem.demo.stats import percentile

pytestmark = pytest.mark.slow

# The linger leaves 130 us of each pause, less than a window and a segment.
PAUSE_NS, SEGMENT_NS = 430_000, 100_000
WARM_UP, REQUESTS = 40, 60


def configured(place, *, forecast):
    return place.configured(linger_max_us=0, forecast_gaps=str(forecast).lower())


def explained(place, name):
    with place.client() as client:
        return " ".join(client.explain(name).lines)


def serve(server, requests):
    return server.do(f"serving.serve(gpu, {requests}, {PAUSE_NS})")


def p99_ns(served):
    return percentile([end_ns - begin_ns for begin_ns, end_ns in served], 99)


def longest_hold_up_ns(served, kernels):
    """The most that kernels had of the GPU between a request and its result."""

    def within_ns(kernel, begin_ns, end_ns):
        return max(0, min(kernel["t_end_ns"], end_ns) - max(kernel["t_start_ns"], begin_ns))

    return max(sum(within_ns(kernel, *request) for kernel in kernels) for request in served)


def test_foreseen_gaps_that_are_short_let_less_work_in_front_of_a_request(fresh_place):
    place = fresh_place
    place.start_daemon(*configured(place, forecast=False))
    server, filler = place.job("server", "-p", "latency"), place.job("filler", "-p", "batch")
    filler.start("for_ever(lambda: serving.fill(gpu))")
    filler.result()
    serve(server, WARM_UP)

    unforeseen = serve(server, REQUESTS)
    assert "window: 2 segments of 100 us" in explained(place, "filler")
    configured(place, forecast=True)
    place.daemon.send_signal(signal.SIGHUP)
    until(lambda: "window: 1 segment of" in explained(place, "filler"), what="a narrow window")
    foreseen = serve(server, REQUESTS)

    kernels = place.ran(filler.pid)
    longest_ns = max(kernel["t_end_ns"] - kernel["t_start_ns"] for kernel in kernels)
    bound_ns = SEGMENT_NS + longest_ns
    assert 0 < longest_hold_up_ns(foreseen, kernels) <= bound_ns
    assert longest_hold_up_ns(unforeseen, kernels) > bound_ns
    assert p99_ns(foreseen) < p99_ns(unforeseen)
    assert "gaps in its work: once others may start, half are over" in explained(place, "server")
