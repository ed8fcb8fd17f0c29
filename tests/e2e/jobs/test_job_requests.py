"""What requests take, as the daemon tells it and as the job measures it; on the virtual clock."""

import pytest
from running_job import until

from tandem.demo.stats import percentile

pytestmark = pytest.mark.slow

PAUSE_NS = 3_000_000  # more than what ends a burst
REQUESTS = 60


def told_ns(place, name, requests):
    """The daemon's p99, once it knows all of them but the newest, which may go on."""
    with place.client() as client:

        def job():
            return next(job for job in client.jobs() if job.display_name == name)

        until(lambda: job().requests >= requests - 1, what="the requests are known")
        return job().request_p99_ns


def p99_ns(served):
    return percentile([end_ns - begin_ns for begin_ns, end_ns in served], 99)


def test_bursts_are_told_as_the_job_measures_its_requests(fresh_place):
    place = fresh_place
    place.start_daemon()
    server = place.job("server", "-p", "latency", "--slo", "p99=50ms")
    server.do(f"serving.serve(gpu, 1, {PAUSE_NS})")  # from now on somebody looks

    served = server.do(f"serving.serve(gpu, {REQUESTS}, {PAUSE_NS})")

    assert told_ns(place, "server", REQUESTS) == pytest.approx(p99_ns(served), rel=0.1)
    assert "below its objective of 50 ms" in place.tandem("explain", "server")
    assert "/50 ms" in place.tandem("ps")


def test_requests_of_a_job_that_is_held_take_the_time_that_it_waits(fresh_place):
    place = fresh_place
    place.start_daemon(*place.configured(policy='"fair"'))
    server, other = place.job("server", "--slo", "p99=50ms"), place.job("other")
    other.start("for_ever(lambda: waiting.short(gpu))")
    other.result()
    server.do(f"serving.serve(gpu, 1, {PAUSE_NS})")

    served = server.do(f"serving.serve(gpu, {REQUESTS}, {PAUSE_NS})")

    assert p99_ns(served) > 5_000_000  # a quantum of the other lies before many of them
    assert told_ns(place, "server", REQUESTS) == pytest.approx(p99_ns(served), rel=0.1)
