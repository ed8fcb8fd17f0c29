"""Sets of SMs chosen by how jobs scale, and the probes that find out how they scale."""

from dataclasses import replace

import pytest

from tandemd.core.events import ScalingTold
from tandemd.core.explain.scaling import scaling_lines
from tandemd.core.model import Job, JobClass, JobSpec, Options, Process, SmSet, Split, Usage
from tandemd.core.scheduler import Scheduler
from tandemd.core.space.probes import ITERATIONS, PATIENCE_NS, REMEMBER_NS, RETRY_NS, Probes
from tandemd.core.space.scaling import SHARED, Curve
from tandemd.core.space.sets import Span
from tandemd.core.space.sized_sets import SizedSets
from tandemd.core.space.sm_counts import given_sms, has_own_sms, take_scaling

GROUPS, GROUP_SMS = 16, 8
OPTIONS = Options(
    splits={0: Split(GROUPS, GROUP_SMS)},
    sm_counts={0: 132},
    mps_gpus=frozenset({0}),
)
COUNTS = tuple(range(8, 129, 8))
S = 1_000_000_000


def curve(knee, *, recorded_sms=128, source="predicted", iteration_ns=1_000_000):
    """Scales linearly up to `knee` groups."""
    times = tuple(iteration_ns * GROUPS // min(n, knee) for n in range(1, GROUPS + 1))
    return Curve(
        sm_counts=COUNTS,
        iteration_ns=times,
        source=source,
        recorded_sms=recorded_sms,
        recorded_ns=times[recorded_sms // GROUP_SMS - 1],
    )


def make(number, scaling=None, *, groups=GROUPS, **spec):
    job = Job(
        job_id=number,
        uid=1,
        arrival=number,
        created_ns=0,
        registered=True,
        spec=JobSpec(**spec),
    )
    process = Process(process_id=number, job_id=number, gpu=0, usage=Usage(process_id=number))
    process.scaling, process.scaling_doubt = scaling, "" if scaling else "graphs only"
    job.processes[number] = process
    put(job, Span(0, groups))
    return job


def put(job, span):
    """The job is placed on the span, and its processes have moved there."""
    job.set = span
    for process in job.processes.values():
        is_in = SmSet(span.first, span.count, GROUP_SMS)
        process.usage = replace(process.usage, in_set=is_in)


def by_id(*jobs):
    return {job.job_id: job for job in jobs}


def wanted(jobs):
    return [job.groups_wanted for job in jobs.values()]


def told(job):
    return " | ".join(line for _, line in job.story)


def test_jobs_get_the_groups_that_their_curves_call_for_and_none_without():
    jobs = by_id(make(1, curve(4), job_class=JobClass.LATENCY), make(2, curve(16)))
    off = by_id(make(1, curve(4), job_class=JobClass.LATENCY), make(2, curve(16)))

    SizedSets().decide(jobs, OPTIONS, 0)
    SizedSets().decide(off, replace(OPTIONS, size_sets=False), 0)

    assert wanted(jobs) == [4, 12]
    assert wanted(off) == [0, 0]
    assert "it gets 4 of 16 groups of SMs: beyond 32 SMs each SM gains less" in told(jobs[1])


def test_a_job_alone_has_all_of_it_again():
    jobs = by_id(make(1, curve(4)), make(2, curve(16)))
    sized = SizedSets()
    sized.decide(jobs, OPTIONS, 0)

    del jobs[2]
    sized.decide(jobs, OPTIONS, 1)

    assert wanted(jobs) == [0]
    assert "it gets the SMs that are left: it is alone" in told(jobs[1])


def test_what_a_person_fixed_and_what_others_change_stays():
    jobs = by_id(make(1, curve(4), sm_percent=50), make(2, curve(16)))
    jobs[1].groups_wanted = 8
    sized = SizedSets()
    sized.decide(jobs, OPTIONS, 0)
    assert wanted(jobs) == [8, 8]

    jobs[2].groups_wanted = 5
    sized.decide(jobs, OPTIONS, 1)
    assert wanted(jobs) == [8, 5]
    jobs[2].processes[2].scaling = curve(2)
    sized.decide(jobs, OPTIONS, 2)

    assert wanted(jobs) == [8, 2]


def test_a_probe_gives_fewer_groups_for_one_record_and_then_back():
    jobs, probes = by_id(make(1, curve(8), groups=12)), Probes()

    probes.decide(jobs, OPTIONS, 0)
    assert wanted(jobs) == [4]
    assert probes.wake_at_ns == PATIENCE_NS
    probes.decide(jobs, OPTIONS, 1)
    assert wanted(jobs) == [4]
    there = curve(16, recorded_sms=32, source="probed")
    take_scaling(jobs[1].processes[1], ScalingTold(now_ns=2, process_id=1, curve=there, doubt=""))
    probes.decide(jobs, OPTIONS, 2)

    assert wanted(jobs) == [0]
    assert "its probe on 32 SMs is over: an iteration took 4 ms, where 4 ms were predicted" in told(
        jobs[1]
    )
    probes.decide(jobs, OPTIONS, REMEMBER_NS - 1)
    assert wanted(jobs) == [0]


def test_a_job_that_shares_its_sms_is_given_some_of_its_own_to_be_recorded():
    sharing = make(1)
    sharing.processes[1].scaling_doubt = SHARED
    jobs = by_id(sharing, make(2))

    Probes().decide(jobs, OPTIONS, 0)

    assert wanted(jobs) == [5, 0]


def test_a_set_is_a_jobs_own_where_nobody_elses_overlaps_it():
    jobs = [make(1, groups=4), make(2, groups=4), make(3, groups=16)]
    put(jobs[1], Span(4, 4))
    jobs[2].processes.clear()

    assert has_own_sms(jobs[0], jobs, 0)
    jobs[1].set = Span(3, 4)  # it is about to move here
    assert not has_own_sms(jobs[0], jobs, 0)
    put(jobs[1], Span(3, 4))
    jobs[1].set = Span(4, 4)  # it is about to move away
    assert not has_own_sms(jobs[0], jobs, 0)


@pytest.mark.parametrize("whose", [0, 1])
@pytest.mark.parametrize("usage", [{"in_set": None}, {"in_set": SmSet(0, 0, GROUP_SMS)}])
def test_who_has_the_whole_gpu_is_in_no_set_and_in_all_of_others(whose, usage):
    jobs = [make(1, groups=4), make(2)]
    put(jobs[1], Span(4, 4))
    process = jobs[whose].processes[whose + 1]
    process.usage = replace(process.usage, **usage)

    assert not has_own_sms(jobs[0], jobs, 0)
    assert [given_sms(job, 0, OPTIONS) > 0 for job in jobs] == [whose != 0, whose != 1]


@pytest.mark.parametrize("usage", [{"staying_streams": (1, 0, 0, 0, 0, 0)}, {"runs_graphs": True}])
def test_work_of_others_that_stays_on_the_whole_gpu_is_in_its_set(usage):
    jobs = [make(1, groups=4), make(2)]
    put(jobs[1], Span(4, 4))
    process = jobs[1].processes[2]
    process.usage = replace(process.usage, **usage)

    assert not has_own_sms(jobs[0], jobs, 0)
    assert has_own_sms(jobs[1], jobs, 0)


@pytest.mark.parametrize("source", ["predicted", "probed"])
def test_whatever_a_probe_tells_a_minute_of_constant_load_sees_one(source):
    """No fit is possible for kernels that never fill a third of the SMs: it stays "predicted"."""
    jobs, probes, begun = by_id(make(1, curve(2))), Probes(), 0
    process = jobs[1].processes[1]
    for second in range(60):
        probes.decide(jobs, OPTIONS, second * S)
        if on := jobs[1].groups_wanted:
            begun += 1
        there = curve(
            2, recorded_sms=(on or GROUPS) * GROUP_SMS, source=source if on else "predicted"
        )
        event = ScalingTold(now_ns=second * S, process_id=1, curve=there, doubt="")
        take_scaling(process, event)
        probes.decide(jobs, OPTIONS, second * S + 1)

    assert begun == 1


def test_a_job_without_a_curve_is_probed_again_once_it_has_one_and_where_that_is_news():
    jobs, probes = by_id(make(1)), Probes()
    jobs[1].processes[1].scaling_doubt = SHARED
    probes.decide(jobs, OPTIONS, 0)
    jobs[1].processes[1].scaling = curve(8, recorded_sms=5 * GROUP_SMS)
    probes.decide(jobs, OPTIONS, 1)
    assert wanted(jobs) == [0]

    probes.decide(jobs, OPTIONS, 1 + RETRY_NS)
    assert wanted(jobs) == [0]  # a third would be the same five groups
    put(jobs[1], Span(0, 9))
    probes.decide(jobs, OPTIONS, 2 + RETRY_NS)

    assert wanted(jobs) == [3]


def test_who_takes_turns_on_a_part_of_a_plan_is_not_probed():
    jobs = by_id(make(1, curve(8)), make(2, curve(8)))
    for job in jobs.values():
        job.part, job.groups_wanted = 1, GROUPS

    Probes().decide(jobs, OPTIONS, 0)

    assert wanted(jobs) == [GROUPS, GROUPS]


def test_of_probes_on_two_gpus_the_first_to_end_is_waited_for():
    splits = {gpu: Split(GROUPS, GROUP_SMS) for gpu in (0, 1)}
    first, other = make(1, curve(8)), make(2, curve(8))
    other.processes[2].gpu, other.processes[2].gpus = 1, frozenset({1})
    probes = Probes()
    for number, jobs in enumerate((by_id(first), by_id(first, other))):
        probes.decide(jobs, replace(OPTIONS, splits=splits), number * S)

    assert wanted(jobs) == [5, 5]
    assert probes.wake_at_ns == PATIENCE_NS


def test_a_job_is_not_probed_on_a_set_that_a_plan_has_taken_from_it():
    """A third of its old set would exceed its part of the plan and take others' groups."""
    jobs, probes = by_id(make(1, curve(8), groups=12)), Probes()
    jobs[1].part, jobs[1].groups_wanted = 1, 3
    probes.decide(jobs, OPTIONS, 0)
    assert wanted(jobs) == [3]

    put(jobs[1], Span(0, 3))
    probes.decide(jobs, OPTIONS, 1)

    assert wanted(jobs) == [1]


def test_a_probe_that_records_nothing_is_given_up_and_not_tried_again_soon():
    jobs, probes = by_id(make(1, curve(8))), Probes()
    probes.decide(jobs, OPTIONS, 0)

    probes.decide(jobs, OPTIONS, PATIENCE_NS)

    assert wanted(jobs) == [0]
    assert "nothing was recorded" in told(jobs[1])
    probes.decide(jobs, OPTIONS, 3 * PATIENCE_NS - 1)
    assert wanted(jobs) == [0]
    probes.decide(jobs, OPTIONS, 3 * PATIENCE_NS)
    assert wanted(jobs) == [5]


def test_a_probe_lasts_for_some_iterations_however_long_and_its_pauses_are_longer():
    """With linear scaling, one takes 2 s on all groups, and 6.4 s on five of sixteen."""
    jobs, probes = by_id(make(1, curve(16, iteration_ns=2 * S))), Probes()
    lasts_ns = ITERATIONS * 32 * S // 5

    probes.decide(jobs, OPTIONS, 0)
    assert probes.wake_at_ns == lasts_ns > PATIENCE_NS
    probes.decide(jobs, OPTIONS, lasts_ns - 1)
    assert wanted(jobs) == [5]
    probes.decide(jobs, OPTIONS, lasts_ns)

    assert wanted(jobs) == [0]
    probes.decide(jobs, OPTIONS, 3 * lasts_ns - 1)
    assert wanted(jobs) == [0]
    probes.decide(jobs, OPTIONS, 3 * lasts_ns)
    assert wanted(jobs) == [5]


def test_a_job_of_which_one_probe_might_take_too_long_is_not_probed_and_told_why():
    jobs, scheduler = by_id(make(1, curve(16, iteration_ns=4 * S))), Scheduler(OPTIONS)
    Probes().decide(jobs, OPTIONS, 0)
    assert wanted(jobs) == [0]
    told = " ".join(scaling_lines(scheduler, jobs[1]))
    assert "its iterations may take 12.8 s there, and 5 of them have to end within 60 s" in told

    jobs[1].processes[1].scaling = curve(16, iteration_ns=3 * S)
    Probes().decide(jobs, OPTIONS, 0)
    assert wanted(jobs) == [5]
    assert "not probed" not in " ".join(scaling_lines(scheduler, jobs[1]))


def test_a_job_without_a_curve_is_probed_for_as_long_as_its_usual_iterations_take():
    sharing = make(1)
    sharing.processes[1].scaling_doubt = SHARED
    sharing.processes[1].usage = replace(sharing.processes[1].usage, iteration_ns=3 * S)
    probes = Probes()

    probes.decide(by_id(sharing, make(2)), OPTIONS, 0)

    assert probes.wake_at_ns == ITERATIONS * 48 * S // 5


def test_a_server_is_probed_for_as_long_as_its_pauses_take_too():
    """Its curve leaves out pauses: 1 ms of work every 3 s, or 3.2 ms on five of sixteen."""
    server = make(1, curve(16))
    server.processes[1].usage = replace(server.processes[1].usage, iteration_ns=3 * S)
    probes = Probes()

    probes.decide(by_id(server, make(2)), OPTIONS, 0)

    assert probes.wake_at_ns == ITERATIONS * (3 * S - 1_000_000 + 3_200_000) > PATIENCE_NS


def test_a_probe_ends_where_somebody_else_decides():
    jobs, probes = by_id(make(1, curve(8))), Probes()
    probes.decide(jobs, OPTIONS, 0)
    jobs[1].groups_wanted = 9

    probes.decide(jobs, OPTIONS, 1)

    assert wanted(jobs) == [9]
    assert probes.wake_at_ns is None


@pytest.mark.parametrize(
    "job",
    [
        make(1),
        make(1, curve(8, source="probed")),
        make(1, curve(8), sm_count=64),
        make(1, curve(8), groups=2),
        make(1, curve(8), job_class=JobClass.LATENCY, slo_p99_ns=6_000_000),  # 6.4 ms at worst
    ],
    ids=["no curve", "probed", "fixed", "few groups", "near its limit"],
)
def test_who_is_not_probed(job):
    jobs = by_id(job)

    Probes().decide(jobs, OPTIONS, 0)

    assert wanted(jobs) == [0]


def test_one_job_at_a_time_is_probed_and_none_where_that_is_off():
    jobs, probes = by_id(make(1, curve(8)), make(2, curve(8))), Probes()

    Probes().decide(jobs, replace(OPTIONS, probe_sets=False), 0)
    assert wanted(jobs) == [0, 0]
    probes.decide(jobs, OPTIONS, 0)
    assert wanted(jobs) == [5, 0]
    probes.decide(jobs, OPTIONS, 1)
    assert wanted(jobs) == [5, 0]
    del jobs[1]
    probes.decide(jobs, OPTIONS, 2)

    assert wanted(jobs) == [5]


def test_a_job_whose_work_no_set_holds_gets_no_groups_of_its_own_and_no_probe():
    jobs, probes, sized = by_id(make(1, curve(8)), make(2, curve(8))), Probes(), SizedSets()
    (process,) = jobs[1].processes.values()
    process.usage = replace(process.usage, staying_streams=(1, 0, 0, 0, 0, 0))

    sized.decide(jobs, OPTIONS, 0)
    assert wanted(jobs) == [0, 8]
    for _ in range(3):
        probes.decide(jobs, OPTIONS, 0)
    assert wanted(jobs)[0] == 0

    process.usage = replace(process.usage, staying_streams=(0, 0, 0, 0, 0, 0))
    sized.decide(jobs, OPTIONS, 1)
    assert wanted(jobs) == [8, 8]


def test_one_launch_beside_the_set_takes_it_from_nobody():
    jobs, sized = by_id(make(1, curve(4)), make(2, curve(8))), SizedSets()
    (process,) = jobs[1].processes.values()
    process.usage = replace(process.usage, staying_streams=(1, 0, 0, 0, 0, 0), following_streams=3)

    sized.decide(jobs, OPTIONS, 0)

    assert wanted(jobs)[0] >= 4


def test_who_is_held_by_a_percentage_gets_no_groups():
    jobs, sized, probes = by_id(make(1, curve(8)), make(2, curve(8))), SizedSets(), Probes()
    (process,) = jobs[1].processes.values()
    process.mps_percent = 30.0

    sized.decide(jobs, OPTIONS, 0)
    del jobs[2]
    probes.decide(jobs, OPTIONS, 0)

    assert wanted(jobs) == [0]
    assert probes.gpus == frozenset()


def test_a_probe_ends_where_there_are_no_sets_any_more():
    jobs, probes = by_id(make(1, curve(8))), Probes()
    probes.decide(jobs, OPTIONS, 0)
    assert wanted(jobs) == [5]

    probes.decide(jobs, replace(OPTIONS, splits={}), 1)

    assert wanted(jobs) == [0]
    assert probes.wake_at_ns is None


def test_how_many_sms_a_job_has_is_known_when_it_is_in_its_set():
    job = make(1, groups=4)

    assert given_sms(job, 0, OPTIONS) == 32
    job.set = None
    assert given_sms(job, 0, OPTIONS) == 0


@pytest.mark.parametrize(("following", "sms"), [(0, 132), (2, 0)])
def test_streams_that_stay_on_the_whole_gpu_have_all_of_it_whatever_the_set_is(following, sms):
    job = make(1, groups=4)
    (process,) = job.processes.values()
    process.usage = replace(
        process.usage, staying_streams=(1, 0, 0, 0, 0, 0), following_streams=following
    )

    assert given_sms(job, 0, OPTIONS) == sms
