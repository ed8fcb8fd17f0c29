"""Workloads in few words, and their outcomes."""

from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path

from tandemd.sim.run import simulate
from tandemd.sim.workload import workload_of

MS = 1_000_000


def trainer(name, iterations, gpu, host="0ms", **job):
    work = {"iterations": iterations, "gpu": gpu, "host": host}
    work |= {key: job.pop(key) for key in ("marks", "kernel", "variation", "seed") if key in job}
    return {"name": name, "training": work, **job}


def server(name, gpu, *, rate=None, duration=None, arrivals=None, seed=0, **job):
    said = {"rate": rate, "duration": duration, "arrivals": arrivals}
    serving = {key: value for key, value in said.items() if value is not None}
    return {"name": name, "serving": {"gpu": gpu, "seed": seed, **serving}, **job}


def workload(*jobs, gpu=None, classes=None, **scheduler):
    said = {"job": list(jobs), "gpu": gpu or {}, "scheduler": scheduler, "class": classes or {}}
    return workload_of(said, Path("jobs.toml"), {})


def played(*jobs, until_ms=None, **settings):
    until_ns = None if until_ms is None else until_ms * MS
    return simulate(workload(*jobs, **settings), until_ns=until_ns, keep_stretches=True)


def ends_ms(outcome):
    return {job.name: None if job.ended_ns is None else job.ended_ns / MS for job in outcome.jobs}


@dataclass(frozen=True)
class Turn:
    """An uninterrupted period in which one context had the GPU."""

    context: int
    begin_ns: int
    end_ns: int
    worked_ns: int


def turns(outcome):
    runs = [list(run) for _, run in groupby(outcome.stretches, key=attrgetter("context"))]
    return [
        Turn(
            context=run[0].context,
            begin_ns=run[0].begin_ns,
            end_ns=run[-1].end_ns,
            worked_ns=sum(stretch.end_ns - stretch.begin_ns for stretch in run),
        )
        for run in runs
    ]


def gaps_ns(outcome):
    return [after.begin_ns - before.end_ns for before, after in pairwise(turns(outcome))]
