"""Jobs placed by a plan, on sets of SMs and in turns; on the virtual clock."""

import re
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from bench import partition_scaling
from running_job import until

from tandem import softgpu

pytestmark = pytest.mark.slow

BLOCKS = {"large": 4000, "small": 100, "other": 100}  # of each kernel; 8 fit on an SM
GROUP_SMS, SMS = 8, 128
PATIENCE_S = 120.0
MEASURED = re.compile(r"is predicted and ([\d.]+) measured.*over (\d+) ms")
BY_SET = "gpu time that several jobs use at once is split by SMs, an estimate: "
FIGURES = re.compile(r"plan: progress ([\d.]+) is predicted and ([\d.]+) measured")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "sizing.so"
    softgpu.compile_kernels(Path(partition_scaling.__file__).parent / "partition_scaling.cu", path)
    return path


@contextmanager
def started(place, image, planner, blocks=BLOCKS):
    """Three trainers that never end, under a policy by which all take turns, and a client."""
    place.env |= {"TANDEM_SOFTGPU_MODE": "mps", "TANDEM_SOFTGPU_PROFILE": "h200"}
    place.env |= {"TEST_IMAGE": str(image)}
    config = place.folder / "config.toml"
    config.write_text(
        '[scheduler]\npolicy = "fair"\nprobe_sets = false\n[gpu."*"]\nmode = "mps+green"\n'
        f'[partition]\nplanner = "{planner}"\nwindow_s = 0.1\n'
    )
    place.start_daemon("--config", str(config))
    with place.client() as client:
        client.status()  # connect while the daemon is idle
        jobs = {name: place.job(name) for name in blocks}
        for name, job in jobs.items():
            train = f"__import__('sizing').train(gpu, {blocks[name]}, 20)"
            job.go_on(f"lambda: {train}")
        yield client, list(jobs.values())


def given(client):
    return {job.display_name: job.given_sms for gpu in client.partitions() for job in gpu.jobs}


def explained(client, name):
    return "\n".join(client.explain(name).lines)


def figures(told):
    """Return the foretold and the measured progress, or None if there is none yet."""
    found = FIGURES.search(told)
    return tuple(map(float, found.groups())) if found else None


def overlaps(place, jobs, since_ns):
    """Tell whether kernels of two jobs have run at the same time since then."""
    rows = [row for job in jobs for row in place.ran(job.pid) if row["t_start_ns"] >= since_ns]
    rows.sort(key=lambda row: row["t_start_ns"])
    return any(
        after["t_start_ns"] < before["t_end_ns"] and after["pid"] != before["pid"]
        for before, after in pairwise(rows)
    )


def run_on(place, jobs):
    """Tell whether kernels overlap from now on, once what is running has ended."""
    now_ns = max(row["t_end_ns"] for job in jobs for row in place.ran(job.pid))
    settled_ns = now_ns + 50_000_000

    def have_gone_on():
        ends_ns = (max(row["t_end_ns"] for row in place.ran(job.pid)) for job in jobs)
        return min(ends_ns) > settled_ns + 50_000_000

    until(have_gone_on, what="all ran on", within_s=PATIENCE_S)
    return overlaps(place, jobs, settled_ns)


def test_jobs_run_side_by_side_as_planned_and_explain_says_what_came_of_it(fresh_place, image):
    with started(fresh_place, image, "on") as (client, jobs):

        def is_placed():
            return "plan: space: " in explained(client, "large")

        until(is_placed, what="a plan in space", within_s=PATIENCE_S)
        assert run_on(fresh_place, jobs)

        def is_measured():
            return all(figures(explained(client, name)) for name in BLOCKS)

        until(is_measured, what="something is measured", within_s=PATIENCE_S)
        sizes, told = given(client), {name: explained(client, name) for name in BLOCKS}
        ((best, *_),) = (gpu.plans for gpu in client.plans())

    assert sum(sizes.values()) == SMS
    assert sizes["large"] >= SMS - 4 * GROUP_SMS
    for name in BLOCKS:
        foretold, measured = figures(told[name])
        assert measured == pytest.approx(foretold, rel=0.25)
        assert "plan: not time: it promises " in told[name]
    assert (best.kind, best.in_force) == ("space", True)
    for job in best.jobs:
        assert job.measured_progress_ratio == pytest.approx(job.progress_ratio, rel=0.25)


def paid_ns(client):
    return {job.display_name: job.gpu_time_ns for job in client.jobs()}


def go_on(client):
    """Let the jobs run for a while; return what each is charged for it."""
    before_ns, paid = paid_ns(client), {}

    def is_over():
        paid.update((name, now_ns - before_ns[name]) for name, now_ns in paid_ns(client).items())
        return sum(paid.values()) > 300_000_000

    until(is_over, what="all went on", within_s=PATIENCE_S)
    return paid


def test_each_pays_for_its_part_of_the_sms_while_all_have_work(fresh_place, image):
    with started(fresh_place, image, "on") as (client, _):

        def is_told():
            told = explained(client, "large")
            return all(f"{sms} for " in told for sms in given(client).values()) and BY_SET in told

        until(is_told, what="all are on their sets", within_s=PATIENCE_S)
        go_on(client)  # the poller learns of new sets within a tenth of a second
        sizes = given(client)
        paid, sizes_then = go_on(client), given(client)

    assert sizes_then == sizes
    assert sum(sizes.values()) == SMS
    for name in BLOCKS:
        part = paid[name] / sum(paid.values())
        assert part == pytest.approx(sizes[name] / SMS, rel=0.1, abs=0.01), (name, paid)


def test_progress_is_measured_by_iterations_that_ended_and_what_one_takes_alone(fresh_place, image):
    blocks = dict.fromkeys(BLOCKS, 8192)  # each takes an SM for 10 us, so they scale evenly
    alone_ms = 3 * 0.01 * 8192 / SMS

    def measured(client):
        told = [MEASURED.search(explained(client, name)) for name in blocks]
        return [(float(one[1]), float(one[2])) for one in told if one]

    with started(fresh_place, image, "on", blocks) as (client, jobs):

        def is_measured():  # for so long that one turn more or less does not matter
            found = measured(client)
            return len(found) == len(jobs) and min(over_ms for _, over_ms in found) > 600

        until(is_measured, what="enough is measured", within_s=PATIENCE_S)
        found = measured(client)
        for job, (progress, over_ms) in zip(jobs, found, strict=True):
            rows = [row for row in fresh_place.ran(job.pid) if row["kind"] == "kernel"]
            since_ns = rows[-1]["t_end_ns"] - over_ms * 1e6
            ended = sum(row["t_end_ns"] > since_ns for row in rows) / 3
            assert progress == pytest.approx(ended * alone_ms / over_ms, rel=0.1, abs=0.02)


def test_beside_who_stays_on_the_whole_gpu_all_take_turns_on_all_of_it(fresh_place, image):
    with started(fresh_place, image, "on", {"small": 100}) as (client, jobs):
        staying = fresh_place.job("staying")
        train = "__import__('sizing').train(gpu, 100, 20, stays=True)"
        staying.go_on(f"lambda: {train}")

        def is_said():
            told = "plan: time: all take turns on all SMs, because work of "
            return told in explained(client, "small")

        until(is_said, what="all take turns", within_s=PATIENCE_S)
        assert not run_on(fresh_place, [*jobs, staying])
        assert given(client)["small"] == SMS
        ((plan,),) = (gpu.plans for gpu in client.plans())

    assert (plan.kind, plan.in_force) == ("time", True)


def test_without_the_planner_they_take_turns(fresh_place, image):
    with started(fresh_place, image, "off") as (client, jobs):

        def is_known():
            return all("an iteration takes" in explained(client, name) for name in BLOCKS)

        until(is_known, what="how all scale", within_s=PATIENCE_S)
        assert not run_on(fresh_place, jobs)
        told, (plans,) = explained(client, "large"), client.plans()

    assert plans.planner == "no plan is in force: partition.planner is off"
    assert not any(plan.in_force for plan in plans.plans)
    assert "plan: " not in told
