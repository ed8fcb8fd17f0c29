"""The energy of jobs, as the software GPU counts it; on the virtual clock."""

import json
import re

import pytest
from running_job import start_together

pytestmark = pytest.mark.slow

IDLE_W, LIMIT_W = 5, 50  # of the profile
LASTING_MS, PAUSE_MS = 1500, 2


def energies(place):
    """Return, in mJ, each present or past job's energy, the GPU's, and the part not attributed."""
    told = place.tandem("metrics")
    gpu, nobodys = (
        round(1000 * float(re.search(rf"^{name}_total{{.*}} (\S+)$", told, re.MULTILINE)[1]))
        for name in ("tandem_gpu_energy_joules", "tandem_gpu_unattributed_energy_joules")
    )
    jobs = json.loads(place.tandem("ps", "-a", "--json"))
    return {job["display_name"]: job for job in jobs}, gpu, nobodys


def settled(place, job):
    """Return `energies` after two seconds in which the job waits, so all of it has been read."""
    job.do("waiting.pause(2000)")
    return energies(place)


def test_jobs_and_nobody_together_get_what_the_gpu_took(place):
    first, second, idle = (place.job(name) for name in ("first", "second", "idle"))
    start_together(
        {
            first: f"waiting.short_for(gpu, {LASTING_MS}, 0)",
            second: f"waiting.short_for(gpu, {LASTING_MS}, {PAUSE_MS})",
        }
    )
    assert [first.result(), second.result()] == [None, None]
    second.end()

    jobs, gpu_mj, nobodys_mj = settled(place, idle)

    assert sum(job["energy_mj"] or 0 for job in jobs.values()) + nobodys_mj == gpu_mj
    for name in ("first", "second"):
        ran_ms = jobs[name]["gpu_time_ns"] / 1e6
        assert IDLE_W * ran_ms < jobs[name]["energy_mj"] <= LIMIT_W * ran_ms
    assert jobs["first"]["energy_mj"] > jobs["second"]["energy_mj"]
    assert (jobs["idle"]["energy_mj"] or 0) <= LIMIT_W * jobs["idle"]["gpu_time_ns"] / 1e6
    assert nobodys_mj > IDLE_W * 1000  # it was idle for at least that long at the end


def test_a_job_that_ends_before_the_next_reading_has_its_part_in_the_history(place):
    watching, brief = place.job("watching"), place.job("brief")

    brief.start("(waiting.short_for(gpu, 200, 0), os._exit(1))")  # no time passes between the two
    assert brief.says_nothing_more()
    jobs, _, _ = settled(place, watching)

    (row,) = json.loads(place.tandem("history", "--json"))
    assert row["energy_mj"] == jobs["brief"]["energy_mj"]
    ran_ms = row["gpu_time_ns"] / 1e6
    assert IDLE_W * ran_ms < row["energy_mj"] <= LIMIT_W * ran_ms
    assert "J" in place.tandem("ps", "-a", "-o", "energy")
