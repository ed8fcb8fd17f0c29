"""What jobs that run side by side are charged, against the SMs that the GPU gave to each."""

from itertools import pairwise

import pytest
from running_job import start_together, until

pytestmark = pytest.mark.slow

EDGES = "t_start_ns", "t_end_ns"
KERNELS = {"narrow": "smooth", "wide": "crunch"}  # bound by different things: they may pair
SMS = {"narrow": 1, "wide": 7}  # of the 8 of the profile `tiny`
ITERATIONS = {"narrow": 240, "wide": 54}  # chosen to take about equally long
SHARED = 0.7  # part of the time of a round
ERROR_NS = 2_000_000  # two rounds of the poller, one at each end


@pytest.fixture
def image(pairing):
    return pairing


def paid_ns(place):
    with place.client() as client:
        return {job.display_name: job.gpu_time_ns for job in client.jobs()}


def call(name):
    return f"pairing.train(gpu, {KERNELS[name]!r}, {ITERATIONS[name]}, {8 * SMS[name]})"


def train(place, jobs):
    """Train in all jobs at once; return what each has run meanwhile."""
    before = {name: len(place.ran(job.pid)) for name, job in jobs.items()}
    start_together({job: call(name) for name, job in jobs.items()})
    for job in jobs.values():
        job.result()
    return {name: place.ran(job.pid)[before[name] :] for name, job in jobs.items()}


def stretches(ran):
    """Yield the length of every stretch with the same kernels running, and the SMs of each job."""
    edges = sorted({row[edge] for rows in ran.values() for row in rows for edge in EDGES})
    for begin_ns, end_ns in pairwise(edges):
        yield (
            end_ns - begin_ns,
            {
                name: sum(
                    row["sms"]
                    for row in rows
                    if row["t_start_ns"] <= begin_ns and end_ns <= row["t_end_ns"]
                )
                for name, rows in ran.items()
            },
        )


def is_shared(ran):
    """Tell whether the jobs run side by side nearly all the time."""
    found = list(stretches(ran))
    return sum(ns for ns, sms in found if all(sms.values())) > SHARED * sum(ns for ns, _ in found)


def due_ns(ran):
    """Return each job's due: all time it had alone, plus its share by SMs, or by an even split."""
    by_sms, evenly = dict.fromkeys(ran, 0.0), dict.fromkeys(ran, 0.0)
    for ns, sms in stretches(ran):
        there = [name for name in sms if sms[name]]
        for name in there:
            by_sms[name] += ns * sms[name] / sum(sms.values())
            evenly[name] += ns / len(there)
    return by_sms, evenly


def test_who_fills_one_sm_of_eight_pays_for_an_eighth_of_the_time_of_both(fresh_place):
    place = fresh_place
    place.env["TANDEM_SOFTGPU_MODE"] = "mps"
    place.start_daemon(*place.configured(policy="'pair'", window_segments=0))
    jobs = {name: place.job(name) for name in KERNELS}
    until(lambda: is_shared(train(place, jobs)), what="both share their turns")

    before_ns = paid_ns(place)
    ran = train(place, jobs)
    paid = {name: now_ns - before_ns[name] for name, now_ns in paid_ns(place).items()}
    by_sms, evenly = due_ns(ran)
    for name, job in jobs.items():
        job.go_on(f"lambda: {call(name)}")

    assert is_shared(ran)
    for name in KERNELS:
        assert paid[name] == pytest.approx(by_sms[name], abs=ERROR_NS)
        assert abs(evenly[name] - by_sms[name]) > 5 * ERROR_NS
    with place.client() as client:
        assert all(job.gpu_time_estimated for job in client.jobs())
    said = "is split by SMs, an estimate: 1 for it (the grids of its kernels), 7 for "
    until(lambda: said in place.explain("narrow"), what=f"it is said that time {said}")
