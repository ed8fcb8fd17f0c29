"""Whatever the jobs and settings, no GPU time is lost or made up, and gates are obeyed."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandemd.core.policy import POLICIES
from tandemd.sim.poller import PERIOD_NS
from tandemd.sim.programs import Compute, program_of
from tandemd.sim.run import Simulation, simulate
from tandemd.sim.workload import workload_of

pytestmark = pytest.mark.slow

US = 1_000

micros = st.integers(1, 8_000).map(lambda number: f"{number}us")
pauses = st.integers(0, 3_000).map(lambda number: f"{number}us")
trainings = st.fixed_dictionaries(
    {
        "iterations": st.integers(1, 8),
        "gpu": micros,
        "host": pauses,
        "kernel": st.sampled_from(["1us", "70us", "900us"]),
        "marks": st.booleans(),
        "variation": st.sampled_from([0.0, 0.4]),
    }
).map(lambda said: {"training": said})
servings = st.fixed_dictionaries(
    {"gpu": micros, "host": pauses, "arrivals": st.lists(pauses, max_size=6)}
).map(lambda said: {"serving": said})
memories = st.fixed_dictionaries(
    {"persistent": st.sampled_from(["0B", "1GiB"]), "ephemeral": st.sampled_from(["0B", "2GiB"])}
)


@st.composite
def workloads(draw):
    jobs = []
    for number in range(draw(st.integers(1, 4))):
        job = {
            "name": f"j{number}",
            "class": draw(st.sampled_from(["latency", "normal", "batch"])),
            "arrival": draw(pauses),
            "group": draw(st.sampled_from(["", "", "together"])),
            "preemptible": draw(st.booleans()),
        }
        jobs.append(job | draw(memories) | draw(trainings | servings))
    scheduler = {
        "policy": draw(st.sampled_from(sorted(POLICIES))),
        "window_segments": draw(st.integers(0, 3)),
        "segment_us": draw(st.sampled_from([50, 100, 1000])),
        "quantum_ms": draw(st.sampled_from([0.5, 3, 10])),
        "min_share": draw(st.sampled_from([0, 0.05, 0.3])),
        "max_hold_s": draw(st.sampled_from([0.02, 20])),
    }
    # There is memory for all jobs, so none ends early for lack of it.
    gpu = {"memory": "12GiB", "slice": draw(st.sampled_from(["300us", "2ms"]))}
    said = {"job": jobs, "scheduler": scheduler, "gpu": gpu}
    return workload_of(said, Path("drawn.toml"), {})


class Watched(Simulation):
    """Checks after each event that the rules were kept."""

    def __init__(self, workload):
        super().__init__(workload)
        self.charged_rounds = 0
        self.engine.stretches = []
        self._submit, self.engine.submit = self.engine.submit, self._checked_submit
        self._look, self.poller.look = self.poller.look, self._counted_look

    def play(self, now_ns):
        super().play(now_ns)
        self.scheduler.check_invariants()

    def _checked_submit(self, context, work_ns):
        process = self.processes[context]
        assert process.told.is_open, "nothing begins behind a closed gate"
        if process.told.window_segments:
            busy = process.usage(exclusive_ns=0, shared_ns=0)
            assert busy.open_segments <= process.told.window_segments
        self._submit(context, work_ns)

    def _counted_look(self, now_ns):
        if self.poller.is_active and any(one.was_busy for one in self.poller._watched.values()):
            self.charged_rounds += 1
        return self._look(now_ns)


@settings(max_examples=100, deadline=None)
@given(workload=workloads())
def test_work_is_conserved_and_gates_are_obeyed(workload):
    simulation = Watched(workload)
    simulation.run(None)
    outcome = simulation.outcome()

    assert not outcome.is_stuck
    assert [job.problem for job in outcome.jobs] == [""] * len(workload.jobs)
    assert all(job.ended_ns is not None for job in outcome.jobs)
    for job, became in zip(workload.jobs, outcome.jobs, strict=True):
        asked_ns = sum(s.work_ns for s in program_of(job) if isinstance(s, Compute))
        assert became.gpu_ns == asked_ns
        assert became.ended_ns - became.arrival_ns >= asked_ns
    for before, after in pairwise(outcome.stretches):
        changes = before.context != after.context
        assert after.begin_ns - before.end_ns >= (workload.gpu.switch_ns if changes else 0)
    worked_ns = sum(one.end_ns - one.begin_ns for one in outcome.stretches)
    assert worked_ns == simulation.engine.worked_ns == sum(job.gpu_ns for job in outcome.jobs)
    # A round's time is charged in full if somebody was busy when it began.
    charged_ns = sum(job.charged_ns for job in outcome.jobs)
    assert charged_ns == simulation.charged_rounds * PERIOD_NS


@settings(max_examples=30, deadline=None)
@given(workload=workloads())
def test_the_same_workload_ends_the_same(workload):
    assert simulate(workload) == simulate(workload)


@settings(max_examples=30, deadline=None)
@given(workload=workloads())
def test_alone_nobody_is_held(workload):
    for job in workload.jobs:
        alone = simulate(workload.only(job))

        assert alone.switches == 0
        assert alone.jobs[0].held_ns == 0 or POLICIES[workload.options.policy].by_lanes
