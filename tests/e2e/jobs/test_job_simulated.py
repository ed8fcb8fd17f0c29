"""The simulator says of a few jobs what the daemon makes of them on the software GPU."""

from pathlib import Path
from statistics import median

import pytest
from running_job import start_together

from tandemd.sim.run import simulate
from tandemd.sim.workload import workload_of

pytestmark = pytest.mark.slow

ITERATE = "exec('from training import iterate', globals())"
COUNTS = {"many": 120, "few": 60, "fewer": 30}
CLASSES = {"many": "normal", "few": "batch", "fewer": "normal"}


def played(place, policy):
    """By name: when the job's last kernel ended, and how much of it had run until the first end."""
    place.start_daemon(*place.configured(policy=f'"{policy}"'))
    jobs = {name: place.job(name, "-p", CLASSES[name]) for name in COUNTS}
    for job in jobs.values():
        job.do(ITERATE)
        job.do("iterate(gpu, 1)")  # memory and streams are there
    begun = {name: len(place.ran(job.pid)) for name, job in jobs.items()}
    start_together({job: f"iterate(gpu, {COUNTS[name]})" for name, job in jobs.items()})
    for job in jobs.values():
        job.result()
    return {name: place.ran(job.pid)[begun[name] :] for name, job in jobs.items()}


def told(kernels):
    begin_ns = min(ran[0]["t_ready_ns"] for ran in kernels.values())
    return {name: (ran[-1]["t_end_ns"] - begin_ns) / 1e6 for name, ran in kernels.items()}


def simulated(kernel_ns, policy):
    jobs = [
        {
            "name": name,
            "class": CLASSES[name],
            "training": {
                "iterations": count,
                "gpu": f"{kernel_ns}ns",
                "kernel": f"{kernel_ns}ns",
            },
        }
        for name, count in COUNTS.items()
    ]
    outcome = simulate(
        workload_of({"job": jobs, "scheduler": {"policy": policy}}, Path("jobs"), {})
    )
    return {job.name: job.ended_ns / 1e6 for job in outcome.jobs}


@pytest.mark.parametrize("policy", ["fair", "fifo", "priority"])
def test_jobs_end_in_the_order_and_about_when_the_simulator_says(fresh_place, policy):
    kernels = played(fresh_place, policy)
    whole_ns = [one["t_end_ns"] - one["t_start_ns"] for ran in kernels.values() for one in ran]

    real_ms, said_ms = told(kernels), simulated(int(median(whole_ns)), policy)
    assert sorted(real_ms, key=real_ms.get) == sorted(said_ms, key=said_ms.get)
    for name in COUNTS:
        assert said_ms[name] == pytest.approx(real_ms[name], rel=0.03)
