"""How long requests take, by the daemon and by the job, and what the tuner does about it.

On the virtual clock.
"""

import re
import signal
from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families
from running_job import until

from tandem.demo.stats import percentile

pytestmark = pytest.mark.slow

PAUSE_NS = 3_000_000  # longer than the pause that ends a burst
REQUESTS = 60


def told_ns(place, name, requests):
    """Return the daemon's p99 once it knows all requests but the newest, which may still run."""
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
    server.do(f"serving.serve(gpu, 1, {PAUSE_NS})")  # from now on the daemon watches the job

    served = server.do(f"serving.serve(gpu, {REQUESTS}, {PAUSE_NS})")

    assert told_ns(place, "server", REQUESTS) == pytest.approx(p99_ns(served), rel=0.1)
    assert "below its objective of 50 ms" in place.explain("server")
    assert "/50 ms" in place.tandem("ps")


def test_requests_of_a_job_that_is_held_take_the_time_that_it_waits(fresh_place):
    place = fresh_place
    place.start_daemon(*place.configured(policy='"fair"'))
    server, other = place.job("server", "--slo", "p99=50ms"), place.job("other")
    other.start("for_ever(lambda: waiting.short(gpu))")
    other.result()
    server.do(f"serving.serve(gpu, 1, {PAUSE_NS})")

    served = server.do(f"serving.serve(gpu, {REQUESTS}, {PAUSE_NS})")

    plan = place.tandem("partition", "plan")
    assert "time: " in plan
    assert "is how jobs share it" in plan
    assert "taking turns, its p99 is predicted as" in plan
    assert p99_ns(served) > 5_000_000  # many of them wait for a quantum of the other job
    assert told_ns(place, "server", REQUESTS) == pytest.approx(p99_ns(served), rel=0.1)
    counted = scraped(place, "server")
    assert counted["tandem_job_slo_latency_seconds_count"] >= REQUESTS
    assert counted["tandem_job_slo_violations_total"] == 0
    assert counted["tandem_job_gate_wait_seconds_count"] > REQUESTS / 2
    assert counted["tandem_job_gate_wait_seconds_sum"] > 0.005  # as above
    assert scraped(place, "other")["tandem_job_preemptions_total"] > REQUESTS / 2


def scraped(place, name):
    """Return the metrics of a job, each summed over its series."""
    with place.client() as client:
        (job,) = [job for job in client.jobs() if job.display_name == name]
        text = client.metrics()
    found = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("job") == job.name:
                found[sample.name] += sample.value
    return found


# Handles requests of so many kernels one by one, and returns when each began and ended.
HANDLE = """
def handle(kernels, requests, p99_ms):
    answer, served = marks.slo(p99_ms=p99_ms)(lambda: serving.launch(gpu, kernels)), []
    for _ in range(requests):
        begin_ns = now_ns()
        answer()
        served.append((begin_ns, now_ns()))
    return served
"""


def test_what_a_job_marks_is_told_against_its_marks_whoever_wants_it_to_be_quick(fresh_place):
    place = fresh_place
    place.start_daemon()
    server = place.job("server")
    server.do(f"exec({HANDLE!r}, globals())")

    served = server.do(f"handle(10, {REQUESTS}, 5)")

    assert told_ns(place, "server", REQUESTS + 1) == pytest.approx(p99_ns(served), rel=0.1)
    with place.client() as client:
        job = client.job("server")
    assert (job.slo_p99_ns, job.marked_p99_ns, job.requests) == (None, 5_000_000, REQUESTS)
    assert "below the 5.0 ms that its marks allow (--slo asks for none)" in place.explain("server")
    assert "/(5 ms)" in place.tandem("ps")
    counted = scraped(place, "server")
    assert counted["tandem_job_slo_latency_seconds_count"] == REQUESTS
    assert counted["tandem_job_slo_marked_seconds"] == 0.005
    assert counted["tandem_job_slo_violations_total"] == 0
    assert "tandem_job_slo_seconds" not in counted

    longer = server.do("handle(400, 3, 5) + handle(400, 3, 500)")

    assert min(end_ns - begin_ns for begin_ns, end_ns in longer) > 5_000_000
    told_ns(place, "server", REQUESTS + 7)
    assert scraped(place, "server")["tandem_job_slo_violations_total"] == 3


SLO_MS = 8
SERVE = f"for_ever(marks.slo(p99_ms={SLO_MS})(lambda: serving.launch(gpu, 10)))"


def tuned(place, state):
    """Return options for a daemon with the tuner on or off."""
    words = place.configured(policy='"fair"', quantum_ms=4)
    with (place.folder / "config.toml").open("a") as file:
        file.write(f'[partition]\ntuner = "{state}"\nwindow_s = 0.2\n')
    return words


def contended(place):
    """Start a server that answers requests one by one, and two others that want the whole GPU."""
    others = [place.job(f"other{i}") for i in range(2)]
    for other in others:
        other.start("for_ever(lambda: waiting.short(gpu))")
        other.result()
    server = place.job("server", "--slo", f"p99={SLO_MS}ms")
    server.start(SERVE)
    server.result()


def test_the_tuner_gives_a_server_the_time_that_its_objective_takes(fresh_place):
    place = fresh_place
    place.start_daemon(*tuned(place, "off"))
    contended(place)
    until(lambda: "above its objective of 8.0 ms" in place.explain("server"), what="it misses")
    assert "tuner: off (partition.tuner)" in place.explain("server")

    tuned(place, "on")
    place.daemon.send_signal(signal.SIGHUP)

    until(lambda: "p99 of its last window was" in place.explain("server"), what="a window")
    kept = "below its objective\n"
    until(lambda: kept in place.explain("server"), what="it keeps its objective", within_s=60)
    share = re.search(r"tuner: its share of time is (\d+)%", place.explain("server"))
    assert int(share[1]) > 40
