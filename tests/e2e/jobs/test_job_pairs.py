"""Trainers under MPS share turns if they are bound by different resources, else they do not."""

import signal
from itertools import chain

import pytest
from running_job import DEADLINE_S, start_together, until

pytestmark = pytest.mark.slow

UNKNOWN = "what bounds its work is not known"
FOUND = (  # what is told of the job called smooth
    "what bounds its work: memory",
    "'crunch': bound by memory bandwidth and by computing",
    "'other': both are bound by memory bandwidth",
)
TRAINERS = {"crunch": "crunch", "smooth": "smooth", "other": "smooth"}  # name, kernel
ITERATIONS = 30  # of 1 ms each
FIRST_NS = 3_000_000  # all gates are open until a job has the turn


@pytest.fixture
def image(pairing):
    return pairing


def explained(place, name):
    with place.client() as client:
        found = client.explain(name)
    return found.mode, " ".join(found.lines)


def told(place, words):
    return any(words in explained(place, name)[1] for name in TRAINERS)


def is_found(place):
    _, lines = explained(place, "smooth")
    return all(words in lines for words in FOUND)


def overlap_ns(ran, *names):
    """Return how long kernels of both ran at once."""
    edges = [[(k["t_start_ns"], 1), (k["t_end_ns"], -1)] for name in names for k in ran[name]]
    overlap, running, since_ns = 0, 0, 0
    for at_ns, change in sorted(chain.from_iterable(edges)):
        overlap += at_ns - since_ns if running == 2 else 0
        running, since_ns = running + change, at_ns
    return overlap


def train(place, jobs):
    """Train in all jobs at once; return the time until the last ends, and each job's kernels."""
    start_together(
        {j: f"pairing.train(gpu, {TRAINERS[n]!r}, {ITERATIONS})" for n, j in jobs.items()}
    )
    times = [job.result() for job in jobs.values()]
    begin_ns, end_ns = min(b for b, _ in times), max(e for _, e in times)
    settled_ns = begin_ns + FIRST_NS
    ran = {
        n: [k for k in place.ran(j.pid) if k["t_start_ns"] > settled_ns] for n, j in jobs.items()
    }
    return end_ns - begin_ns, ran


def train_under(place, jobs, said, **options):
    """Train with other settings, once `explain` shows their effect."""
    place.configured(**options)
    place.daemon.send_signal(signal.SIGHUP)
    until(lambda: told(place, said), what=said)
    return train(place, jobs)


def who_shared(client, events):
    """Return which jobs had a turn together, up to the point where no job has a turn any more."""
    names = {job.name: job.display_name for job in client.jobs()}
    found = set()
    for event in events:
        if event.kind == "turn" and len(event.jobs) > 1:
            found.add(frozenset(names[job] for job in event.jobs))
        if event.kind == "turn" and found and not event.jobs:
            events.close()
    return found


def test_trainers_bound_by_different_things_run_side_by_side_and_no_others(fresh_place):
    place = fresh_place
    place.env["TANDEM_SOFTGPU_MODE"] = "mps"
    place.start_daemon(*place.configured(policy="'priority'"))
    jobs = {name: place.job(name) for name in TRAINERS}

    by_priority_ns, by_priority = train(place, jobs)
    off = {"policy": "'pair'", "classify_kernels": "false"}
    unclassified_ns, unclassified = train_under(place, jobs, "is not recorded (scheduler", **off)
    train_under(place, jobs, UNKNOWN, policy="'pair'")
    until(lambda: is_found(place) or not train(place, jobs), what="recordings of all three")
    with place.client() as client:
        events = client.trace(seconds=DEADLINE_S)
        paired_ns, paired = train(place, jobs)
        shared = who_shared(client, events)

    for ran in (by_priority, unclassified):
        assert overlap_ns(ran, "crunch", "smooth") == overlap_ns(ran, "smooth", "other") == 0
    assert overlap_ns(paired, "crunch", "smooth") > 0
    assert overlap_ns(paired, "crunch", "other") > 0
    assert overlap_ns(paired, "smooth", "other") == 0
    assert paired_ns < min(by_priority_ns, unclassified_ns)
    assert shared == {frozenset({"crunch", name}) for name in ("smooth", "other")}
    mode, _ = explained(place, "smooth")
    assert mode == "mps"
