"""Best-effort work in a latency job's short gaps, with and without a forecast of the gaps."""

import signal

import pytest
from running_job import start_together, until

from tandem.demo.stats import percentile

pytestmark = pytest.mark.slow

# After the linger 130 us of each pause are left, less than a window and a segment.
PAUSE_NS, SEGMENT_NS = 430_000, 100_000
LINGER_NS, SWITCH_NS = 300_000, 200_000  # defaults of the daemon and of the software GPU
WARM_UP, REQUESTS = 40, 60


def configured(place, *, forecast):
    return place.configured(linger_max_us=0, forecast_gaps=str(forecast).lower())


def serve(server, requests):
    return server.do(f"serving.serve(gpu, {requests}, {PAUSE_NS})")


def p99_ns(served):
    return percentile([end_ns - begin_ns for begin_ns, end_ns in served], 99)


def longest_hold_up_ns(served, kernels):
    """Return the most GPU time that the kernels had between a request and its result."""

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
    assert "window: 2 segments of 100 us" in place.explain("filler")
    configured(place, forecast=True)
    place.daemon.send_signal(signal.SIGHUP)
    until(lambda: "window: 1 segment of" in place.explain("filler"), what="a narrow window")
    foreseen = serve(server, REQUESTS)

    kernels = place.ran(filler.pid)
    longest_ns = max(kernel["t_end_ns"] - kernel["t_start_ns"] for kernel in kernels)
    bound_ns = SEGMENT_NS + longest_ns
    assert 0 < longest_hold_up_ns(foreseen, kernels) <= bound_ns
    assert longest_hold_up_ns(unforeseen, kernels) > bound_ns
    assert p99_ns(foreseen) < p99_ns(unforeseen)
    assert "gaps in its work: once others may start, half of them end" in place.explain("server")


def test_work_that_the_server_does_not_wait_for_is_over_when_the_gpu_ends_it(fresh_place):
    place = fresh_place
    place.start_daemon(*place.configured(linger_max_us=0))
    server, filler = place.job("server", "-p", "latency"), place.job("filler", "-p", "batch")

    later = "clock.softgpu_wait_until_ns(ctypes.c_uint64(now_ns() + 100_000))"
    filling = f"({later}, serving.launch(gpu, 1))"
    start_together({server: "serving.submit(gpu, 100)", filler: filling})
    filler.result()

    served, filled = place.ran(server.pid), place.ran(filler.pid)
    idle_ns = filled[-1]["t_start_ns"] - served[-1]["t_end_ns"]
    assert idle_ns == LINGER_NS + SWITCH_NS
