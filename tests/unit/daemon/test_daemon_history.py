"""Which points of the jobs' memory are kept, and which are not."""

from dataclasses import dataclass, field, replace

import pytest

from tandemd.core.model import MemoryWait, Usage
from tandemd.core.space.scaling import Curve as ScalingCurve
from tandemd.core.sums import MOST
from tandemd.observers.history import MOST_POINTS, STEP_NS, WORK_NS, Curve, Histories, Point

MIB = 1 << 20


@dataclass
class Process:
    """Stands for the core's process, with the fields that are read."""

    usage: Usage
    gpu: int = 0
    process_id: int = 1
    scaling: ScalingCurve | None = None


@dataclass
class Job:
    job_id: int = 1
    processes: dict[int, Process] = field(default_factory=dict)


def usage(process_id=1, **figures):
    return Usage(process_id=process_id, **figures)


def point(at_ns, resident_bytes=MIB, *, gpu_ns=0, swapped_bytes=0, filed_bytes=0, waiting_bytes=0):
    return Point(
        at_ns=at_ns,
        resident_bytes=resident_bytes,
        swapped_bytes=swapped_bytes,
        filed_bytes=filed_bytes,
        waiting_bytes=waiting_bytes,
        gpu_ns=gpu_ns,
    )


def curve_of(*points):
    curve = Curve()
    for one in points:
        curve.add(one)
    return list(curve.points())


def test_only_changes_are_kept():
    first, same, other = point(0), point(STEP_NS), point(2 * STEP_NS, 2 * MIB)

    assert curve_of(first, same, same, other) == [first, same, other]


def test_work_is_kept_once_a_second_and_up_to_a_change():
    looks = [point(n * STEP_NS, gpu_ns=n) for n in range(14)]
    moved = point(14 * STEP_NS, 0, gpu_ns=14, swapped_bytes=MIB)

    assert curve_of(*looks, moved) == [looks[0], looks[WORK_NS // STEP_NS], looks[13], moved]
    assert curve_of(*looks)[-1] == looks[13]  # the newest look is always reported


def test_work_after_a_rest_is_not_spread_over_the_rest():
    quiet = [point(n * STEP_NS) for n in range(50)]
    at_work = point(50 * STEP_NS, gpu_ns=STEP_NS)

    assert curve_of(*quiet, at_work) == [quiet[0], quiet[-1], at_work]


def test_of_a_job_that_nobody_looked_at_nothing_had_changed():
    curve = Curve()
    first, worked = point(0), point(2 * STEP_NS, gpu_ns=STEP_NS)
    curve.add(first)
    curve.add(worked, unchanged_ns=STEP_NS)

    curve.add(point(40 * STEP_NS, gpu_ns=2 * STEP_NS), unchanged_ns=39 * STEP_NS)

    assert list(curve.points()) == [
        first,
        worked,
        point(39 * STEP_NS, gpu_ns=STEP_NS),
        point(40 * STEP_NS, gpu_ns=2 * STEP_NS),
    ]


def test_a_curve_forgets_its_oldest_points():
    points = [point(n, n * MIB) for n in range(3 * MOST_POINTS)]

    kept = curve_of(*points)

    assert MOST_POINTS <= len(kept) < 2 * MOST_POINTS
    assert kept == points[-len(kept) :]


def looked(histories, *jobs, known=(1, 2), at_ns=0):
    histories.look({job.job_id: job for job in jobs}, known, at_ns)
    return {key: curve.newest for key, curve in histories.curves.items()}


def test_processes_of_a_job_count_together_on_each_gpu():
    wait = MemoryWait(ticket=1, size_bytes=3 * MIB, is_quota=False, is_alone=False, tried_round=0)
    swapped = {"device_bytes": 5 * MIB, "swappable_bytes": 4 * MIB, "swapped_bytes": 4 * MIB}
    swapped |= {"filed_bytes": 2 * MIB}
    job = Job(
        processes={
            1: Process(usage(1, device_bytes=2 * MIB, exclusive_ns=5, shared_ns=2)),
            2: Process(usage(2, **swapped, memory_wait=wait)),
            3: Process(usage(3, device_bytes=7 * MIB), gpu=1),
        }
    )

    assert looked(Histories(), job) == {
        (1, 0): point(
            0, 3 * MIB, gpu_ns=7, swapped_bytes=4 * MIB, filed_bytes=2 * MIB, waiting_bytes=3 * MIB
        ),
        (1, 1): point(0, 7 * MIB),
    }


def test_claims_that_no_word_could_hold_together_are_as_much_as_one_can():
    wait = MemoryWait(ticket=1, size_bytes=MOST, is_quota=False, is_alone=False, tried_round=0)
    claims = {
        "device_bytes": MOST,
        "exclusive_ns": MOST,
        "shared_ns": MOST,
        "filed_bytes": MOST,
        "memory_wait": wait,
    }
    known = ScalingCurve(sm_counts=(8,), iteration_ns=(1,), held_sms=2.5)
    job = Job(processes={n: Process(usage(n, **claims), process_id=n) for n in (1, 2)})
    job.processes[3] = Process(usage(3), process_id=3, scaling=known)
    histories = Histories()
    looked(histories, job)
    job.processes[3].usage = usage(3, work_ns=MOST)
    histories.note(1)

    assert looked(histories, job, at_ns=1)[1, 0] == Point(
        at_ns=1,
        resident_bytes=MOST,
        swapped_bytes=0,
        filed_bytes=MOST,
        waiting_bytes=MOST,
        gpu_ns=MOST,
        sm_ns=MOST,
    )


def test_who_leaves_holds_nothing_from_then_on_until_it_is_forgotten():
    histories = Histories()
    job = Job(processes={1: Process(usage(device_bytes=MIB))})
    looked(histories, job)

    assert looked(histories, Job(), at_ns=STEP_NS) == {(1, 0): point(STEP_NS, 0)}
    assert looked(histories, at_ns=2 * STEP_NS) == {(1, 0): point(STEP_NS, 0)}
    assert looked(histories, known=(2,), at_ns=3 * STEP_NS) == {}


def test_a_job_that_fails_keeps_none_of_the_others_from_being_looked_at_later():
    histories = Histories()
    broken = Job(processes={1: Process(None)})
    other = Job(job_id=2, processes={2: Process(usage(2, device_bytes=MIB), process_id=2)})
    with pytest.raises(AttributeError):
        looked(histories, broken, other)
    histories.note(2)

    assert looked(histories, broken, other, at_ns=STEP_NS)[2, 0] == point(STEP_NS)


def test_only_jobs_that_have_changed_are_looked_at():
    histories = Histories()
    job = Job(processes={1: Process(usage(device_bytes=MIB))})
    looked(histories, job)
    job.processes[1].usage = usage(device_bytes=2 * MIB)

    assert looked(histories, job, at_ns=STEP_NS) == {(1, 0): point(0)}  # nobody noted the change
    histories.note(1)
    assert looked(histories, job, at_ns=2 * STEP_NS) == {(1, 0): point(2 * STEP_NS, 2 * MIB)}
    assert list(histories.curves[1, 0].points()) == [
        point(0),
        point(STEP_NS),
        point(2 * STEP_NS, 2 * MIB),
    ]


def test_sms_are_counted_by_what_is_submitted_and_what_kernels_hold():
    known = ScalingCurve(sm_counts=(8,), iteration_ns=(1,), held_sms=2.5)
    processes = {n: Process(usage(n, work_ns=100), process_id=n, scaling=known) for n in (1, 2)}
    job, histories = Job(processes=processes), Histories()

    def sm_ns(at_ns, *work_ns, scaling=known):
        for process, each_ns in zip(processes.values(), work_ns, strict=True):
            process.usage = replace(process.usage, work_ns=each_ns)
            process.scaling = scaling
        histories.note(1)
        return looked(histories, job, at_ns=at_ns)[1, 0].sm_ns

    assert sm_ns(0, 100, 100) == 0  # work done before the first look is unknown
    assert sm_ns(STEP_NS, 140, 100) == 100
    assert sm_ns(2 * STEP_NS, 140, 108) == 120
    assert sm_ns(3 * STEP_NS, 940, 908, scaling=None) == 120
    del processes[2]
    assert sm_ns(4 * STEP_NS, 944) == 130


def test_looks_are_so_far_apart():
    histories = Histories()
    assert histories.is_due(0)

    looked(histories)

    assert not histories.is_due(STEP_NS - 1)
    assert histories.is_due(STEP_NS)
