"""The simulator predicts for a few jobs what the daemon does with them on the software GPU."""

from pathlib import Path
from statistics import mean, median

import pytest
from running_job import start_together

from tandemd.sim.run import simulate
from tandemd.sim.workload import workload_of

pytestmark = pytest.mark.slow

CLASSES = {"many": "normal", "few": "batch", "fewer": "normal"}
COUNTS = {"many": 120, "few": 60, "fewer": 30}

#: It is not defined when the daemon's rounds begin. A job that is nearly done may have one turn
#: more or less, and then waits for a turn of each of the others, which lasts a quantum, the rest of
#: an iteration and two rounds.
TURNS_MS = 2 * 14

REQUESTS, FILLS = 100, 500
#: The pauses vary, else all requests would meet the daemon's rounds at the same moment.
SERVE = """
def serve(gpu, count):
    import random, serving
    chance = random.Random(1)
    pauses_ns = [chance.randrange(3_000_000, 12_000_000) for _ in range(count)]
    return [serving.serve(gpu, 1, pause_ns)[0] for pause_ns in pauses_ns]
"""
FILL = """
def fill(gpu, count):
    import serving, tandem
    for _ in range(count):
        serving.fill(gpu)
        tandem.step()
"""


def defined(job, text):
    job.do(f"exec({text!r}, globals())")


def said(policy, *jobs):
    what = {"job": list(jobs), "scheduler": {"policy": policy}}
    return {job.name: job for job in simulate(workload_of(what, Path("jobs"), {})).jobs}


def kernel_ns(ran):
    return int(median(one["t_end_ns"] - one["t_start_ns"] for one in ran))


def in_order(ends_ms):
    return sorted(ends_ms, key=ends_ms.get)


@pytest.mark.parametrize("policy", ["fair", "fifo", "priority"])
def test_trainers_end_in_the_order_and_when_the_simulator_says(fresh_place, policy):
    place = fresh_place
    place.start_daemon(*place.configured(policy=f'"{policy}"'))
    jobs = {name: place.job(name, "-p", of) for name, of in CLASSES.items()}
    for job in jobs.values():
        defined(job, "from training import iterate")
        job.do("iterate(gpu, 1)")  # its memory is allocated
    before = {name: len(place.ran(job.pid)) for name, job in jobs.items()}

    start_together({job: f"iterate(gpu, {COUNTS[name]})" for name, job in jobs.items()})
    for job in jobs.values():
        job.result()

    ran = {name: place.ran(job.pid)[before[name] :] for name, job in jobs.items()}
    begin_ns = min(one[0]["t_ready_ns"] for one in ran.values())
    ended_ms = {name: (one[-1]["t_end_ns"] - begin_ns) / 1e6 for name, one in ran.items()}
    length = f"{kernel_ns([one for kernels in ran.values() for one in kernels])}ns"
    trainings = (
        {
            "name": name,
            "class": CLASSES[name],
            "training": {"iterations": count, "gpu": length, "kernel": length},
        }
        for name, count in COUNTS.items()
    )
    said_ms = {name: job.ended_ns / 1e6 for name, job in said(policy, *trainings).items()}
    assert in_order(said_ms) == in_order(ended_ms)
    assert said_ms == {
        name: pytest.approx(end_ms, abs=TURNS_MS) for name, end_ms in ended_ms.items()
    }


@pytest.mark.parametrize("policy", ["fair", "priority"])
def test_requests_beside_a_trainer_take_what_the_simulator_says(fresh_place, policy):
    place = fresh_place
    place.start_daemon(*place.configured(policy=f'"{policy}"'))
    server, trainer = place.job("server", "-p", "latency"), place.job("trainer", "-p", "batch")
    defined(trainer, FILL)
    defined(server, SERVE)
    trainer.do("fill(gpu, 1)")
    server.do("serving.launch(gpu, 1)")
    before = len(place.ran(trainer.pid))

    start_together(
        {
            server: f"serve(gpu, {REQUESTS})",
            trainer: f"fill(gpu, {FILLS})",
        }
    )
    served = server.result()
    trainer.result()

    ran = place.ran(trainer.pid)[before:]
    begin_ns, one_ns = ran[0]["t_ready_ns"], kernel_ns(place.ran(server.pid))
    serving = {
        "gpu": f"{10 * one_ns}ns",
        "kernel": f"{one_ns}ns",
        "arrivals": [f"{came_ns - begin_ns}ns" for came_ns, _ in served],
    }
    training = {"iterations": FILLS, "gpu": f"{64 * one_ns}ns", "kernel": f"{one_ns}ns"}
    told = said(
        policy,
        {"name": "server", "class": "latency", "serving": serving},
        {"name": "trainer", "class": "batch", "training": training},
    )
    took_ns = [answered_ns - came_ns for came_ns, answered_ns in served]
    assert mean(told["server"].requests_ns) == pytest.approx(mean(took_ns), rel=0.05)
    end_ns = ran[-1]["t_end_ns"] - begin_ns
    assert told["trainer"].ended_ns == pytest.approx(end_ns, rel=0.02)
