"""Conversations about the effect of `--sm` and `--isolation`."""

import pytest
from talk import BATCH, LATENCY, NORMAL, Talk, run

from tandemd.core.events import JobExited, MpsClientsListed, SubstrateFailed
from tandemd.core.explain.explain import explain
from tandemd.core.explain.space import space_lines
from tandemd.core.model import JobSpec, Options
from tandemd.core.space.asked import go_first, not_yet, owed_share, unfit, variables
from tandemd.core.space.mps_clients import beside_mps
from tandemd.core.space.sm_counts import given_sms
from tandemd.core.watchdog.rivalry import rivalry_on

SMS = {0: 132, 1: 8}


def talking(**options):
    return Talk(Options(**({"policy": "fair", "sm_counts": SMS} | options)))


def parts(got):
    return {process_id: ran / sum(got.values()) for process_id, ran in got.items()}


def owed(talk, job_id):
    job = talk.core.jobs[job_id]
    return owed_share(job, talk.core.group_of(job), talk.core.options)


def lines(talk, job_id, got=0.0):
    return " ".join(space_lines(talk.core, talk.core.jobs[job_id], got))


@pytest.mark.parametrize("policy", ["fair", "priority", "pair"])
@pytest.mark.parametrize(("said", "part"), [(75, 0.75), (20, 0.20), (0, 0.5)])
def test_a_job_gets_the_share_of_time_it_says_beside_one_that_says_none(policy, said, part):
    talk = talking(policy=policy)
    talk.attach(1, BATCH, sm_percent=said)
    talk.attach(2, BATCH)

    got = parts(run(talk, (1, 2), 4000))

    assert got[1] == pytest.approx(part, abs=0.03)
    assert owed(talk, 1) == pytest.approx(said / 100)


def test_a_number_of_sms_is_that_part_of_those_the_gpu_has():
    talk = talking()
    talk.attach(1, BATCH, sm_count=33)
    talk.attach(2, BATCH, gpu=1, sm_count=6)

    assert (owed(talk, 1), owed(talk, 2)) == pytest.approx((0.25, 0.75))


def test_where_the_number_of_sms_is_not_known_the_share_is_what_the_process_says():
    talk = talking(sm_counts={0: 0})
    talk.register(1, BATCH, sm_count=40)

    talk.attach(7, BATCH, job_id=1, sm_count=40, sm_percent=30)

    assert owed(talk, 1) == pytest.approx(0.3)


def test_time_that_the_others_leave_is_a_jobs_own_whatever_it_said():
    talk = talking()
    talk.attach(1, BATCH, sm_percent=20)
    talk.attach(2, BATCH)

    got = run(talk, (1,), 500)

    assert got[1] >= 495


def test_what_one_does_not_use_goes_to_the_others_in_proportion():
    talk = talking()
    talk.attach(1, BATCH, sm_percent=60)
    talk.attach(2, BATCH, sm_percent=20)
    talk.attach(3, BATCH)

    got = parts(run(talk, (1, 2), 4000))

    assert got[1] == pytest.approx(0.75, abs=0.03)


def test_shares_that_are_too_much_together_are_scaled_and_leave_the_others_their_minimum():
    talk = talking(min_share=0.1)
    for process_id, said in ((1, 90), (2, 90), (3, 0)):
        talk.attach(process_id, BATCH, sm_percent=said)

    got = parts(run(talk, (1, 2, 3), 6000))

    assert got[3] == pytest.approx(0.1, abs=0.02)
    assert got[1] == pytest.approx(0.45, abs=0.03)
    assert owed(talk, 1) == pytest.approx(0.45)
    assert "less than it asks for: all such shares add up to too much" in lines(talk, 1)


def test_two_that_claim_all_get_half_each():
    talk = talking()
    talk.attach(1, BATCH, sm_percent=100)
    talk.attach(2, BATCH, sm_count=132)

    got = parts(run(talk, (1, 2), 2000))

    assert got[1] == pytest.approx(0.5, abs=0.03)


def test_a_minimum_of_nothing_still_leaves_something_to_those_who_say_nothing():
    talk = talking(min_share=0)
    talk.attach(1, BATCH, sm_percent=100)
    talk.attach(2, BATCH)

    assert owed(talk, 1) == pytest.approx(0.99)


def test_another_share_counts_from_the_moment_it_is_set():
    talk = talking()
    talk.attach(1, BATCH, sm_percent=20)
    talk.attach(2, BATCH)
    before = parts(run(talk, (1, 2), 2000))

    talk.update(1, job_class=BATCH, sm_percent=80)
    after = parts(run(talk, (1, 2), 2000))

    assert before[1] == pytest.approx(0.2, abs=0.03)
    assert after[1] == pytest.approx(0.8, abs=0.03)


def test_a_share_counts_among_jobs_of_one_class_under_priority():
    talk = talking(policy="priority")
    talk.attach(1, NORMAL)
    talk.attach(2, BATCH, sm_percent=90)
    talk.attach(3, BATCH)

    got = run(talk, (1, 2, 3), 20_000)

    assert got[2] / (got[2] + got[3]) == pytest.approx(0.9, abs=0.05)
    assert sum(got[p] for p in (2, 3)) / sum(got.values()) == pytest.approx(0.05, abs=0.02)


@pytest.mark.parametrize(
    ("policy", "first"), [("priority", [1, 2]), ("pair", [1, 2]), ("fair", []), ("fifo", [])]
)
def test_higher_classes_go_first_and_the_others_share(policy, first):
    talk = talking(policy=policy)
    for job_id, job_class in enumerate((LATENCY, NORMAL, BATCH, BATCH), 1):
        talk.attach(job_id, job_class)
    group = talk.core.group_of(talk.core.jobs[3])
    island, _ = talk.core.island_of(group)

    found = go_first(group, island, talk.core.policy)

    assert sorted(job.job_id for job in found) == first


def test_jobs_of_a_group_are_owed_what_they_say_together():
    talk = talking()
    talk.attach(1, BATCH, group="both", sm_percent=20)
    talk.attach(2, BATCH, group="both", sm_percent=30)
    talk.attach(3, BATCH)

    assert talk.core.group_of(talk.core.jobs[1]).owed_share == pytest.approx(0.5)
    assert owed(talk, 2) == pytest.approx(0.3)


def test_the_watchdog_counts_on_what_a_share_owes():
    talk = talking()
    talk.attach(1, BATCH, sm_percent=80)
    talk.attach(2, BATCH)
    talk.works(1)
    talk.waits(2)
    group = talk.core.group_of(talk.core.jobs[2])

    island, _ = talk.core.island_of(group)

    rivalry = rivalry_on(island, talk.core.policy, talk.core.options)
    assert rivalry.owed_share(group) == pytest.approx(0.2)


def test_explain_says_what_a_share_is_owed_and_got():
    talk = talking()
    talk.attach(1, BATCH, sm_percent=30)
    talk.attach(2, BATCH)

    assert lines(talk, 1, got=0.28).startswith(
        "sm 30% is a share of time, not of SMs: while it has work, it is owed 30%"
    )
    assert "got 28% of the gpu in the last second" in lines(talk, 1, got=0.28)
    assert lines(talk, 2) == ""


@pytest.mark.parametrize(
    ("options", "job_class", "why"),
    [
        ({"policy": "fifo"}, BATCH, "under fifo a turn does not end while there is work"),
        ({"policy": "priority"}, LATENCY, "under priority its class takes no turns"),
    ],
)
def test_a_share_that_means_nothing_is_said_to(options, job_class, why):
    talk = talking(**options)
    talk.attach(1, job_class, sm_percent=30)
    talk.attach(2, BATCH)

    assert owed(talk, 1) == 0
    assert f"sm 30% has no effect: {why}" in lines(talk, 1)


def test_under_mps_a_share_is_of_the_sms_and_no_share_of_time():
    talk = talking(mps_gpus=frozenset({0}))
    talk.attach(1, BATCH, sm_percent=75)
    talk.attach(2, BATCH)

    got = parts(run(talk, (1, 2), 2000))

    assert got[1] == pytest.approx(0.5, abs=0.03)
    assert lines(talk, 1).startswith("sm 75%, as set by `tandem run` when the job")


BEHIND = {"CUDA_MPS_CLIENT_PRIORITY": "1"}


@pytest.mark.parametrize(
    ("spec", "gpus", "said"),
    [
        ({"sm_percent": 30}, {1}, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30"} | BEHIND),
        ({"sm_count": 3}, {1}, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "37.5"} | BEHIND),
        ({"job_class": NORMAL}, {1}, BEHIND),
        ({"job_class": BATCH}, {1}, BEHIND),
        ({"job_class": LATENCY}, {1}, {}),
        ({"job_class": BATCH, "sm_percent": 30}, {0}, {}),
        ({"sm_percent": 30}, (), {}),  # one GPU is in mode time
        ({"job_class": BATCH, "sm_percent": 30}, {257}, {}),  # a MIG instance
    ],
)
def test_what_a_job_has_to_have_in_its_environment(spec, gpus, said):
    options = Options(sm_counts=SMS, mps_gpus=frozenset({1}), mig_gpus=frozenset({257}))

    assert variables(JobSpec(**spec), frozenset(gpus), options) == said


def test_a_number_of_sms_is_had_on_whichever_gpu_the_job_comes_to():
    options = Options(sm_counts=SMS, mps_gpus=frozenset(SMS))

    said = variables(JobSpec(sm_count=4), frozenset(), options)

    assert said["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"  # of the smaller one


@pytest.mark.parametrize("mode", ["time", "mps"])
def test_two_jobs_that_claim_all_are_told_what_comes_of_it(mode):
    talk = talking(mps_gpus=frozenset({0} if mode == "mps" else ()))
    talk.attach(1, BATCH, sm_percent=100)
    alone = lines(talk, 1)
    talk.attach(2, BATCH, sm_percent=100)

    said = {
        "time": "that is less than it asks for: all such shares add up to too much",
        "mps": "jobs here ask for 200% of the SMs together, which mps allows",
    }[mode]
    assert said in lines(talk, 1)
    assert said in lines(talk, 2)
    assert said not in alone
    assert owed(talk, 1) == pytest.approx(0.5 if mode == "time" else 0)


def test_jobs_hear_of_what_they_ran_on_and_others_do_not():
    talk = talking(mps_gpus=frozenset({1}))
    talk.attach(1, BATCH, gpu=1)
    talk.attach(2, BATCH)
    for process_id in (3, 4):  # 3 ends long before the failure, 4 because of it
        talk.attach(process_id, BATCH, gpu=1)
        talk.tick(5)
        talk.leave(process_id)

    talk.say(
        SubstrateFailed(
            now_ns=talk.now_ns,
            since_ns=talk.now_ns - 3_000_000,
            gpus=frozenset({1}),
            what="mps has ended",
        )
    )

    def heard(job):
        return "mps has ended" in [line for _, line in job.story]

    assert [heard(talk.core.jobs[one]) for one in (1, 2)] == [True, False]
    assert [heard(talk.core.finished[one]) for one in (3, 4)] == [False, True]
    assert any("a fatal fault of one job" in line for _, line in talk.core.jobs[1].story)


def test_who_is_on_its_way_hears_of_it_too_and_who_has_been_there_long_ago_does_not():
    talk = talking(mps_gpus=frozenset({1}))
    for job_id, meant in enumerate(({1}, {0}, {0, 1}, {1}, {1}), start=1):
        talk.register(job_id, meant_gpus=meant)
    for job_id in (4, 5):  # 4 ends long before the failure, 5 because of it
        talk.tick(5)
        talk.say(JobExited(now_ns=talk.now_ns, job_id=job_id))

    talk.say(
        SubstrateFailed(
            now_ns=talk.now_ns,
            since_ns=talk.now_ns - 3_000_000,
            gpus=frozenset({1}),
            what="mps cannot start a server",
        )
    )

    jobs = talk.core.jobs | talk.core.finished
    heard = {one for one, job in jobs.items() if any("server" in line for _, line in job.story)}
    assert heard == {1, 5}


def test_the_mode_of_a_job_that_has_not_used_its_gpu_yet_is_that_of_the_gpu():
    talk = talking(mps_gpus=frozenset({1}))
    talk.register(1, meant_gpus={1})
    talk.register(2, meant_gpus={0, 1})

    said = [explain(talk.core, talk.core.jobs[one], talk.now_ns).lines[0] for one in (1, 2)]
    assert [line.partition(":")[0] for line in said] == ["mode mps", "mode time"]


def test_a_held_job_is_owed_nothing_meanwhile():
    talk = talking()
    talk.attach(1, BATCH, sm_percent=30)

    talk.pause(1)

    assert owed(talk, 1) == 0
    assert "it is held, so it takes no turns" in lines(talk, 1)


@pytest.mark.parametrize(
    ("asked", "gpus", "why"),
    [
        ({"sm_count": 133}, {0}, "it asks for 133 SMs, but gpu 0 has 132; ask for fewer"),
        ({"sm_count": 9}, {1}, "it asks for 9 SMs, but gpu 1 has 8"),
        ({"sm_count": 133}, (), "gpu 0 has 132"),
        ({"sm_count": 9}, (), None),  # it fits one of the GPUs
        ({"sm_percent": 100}, {1}, None),
        ({"isolation": "time"}, {0}, None),
        ({"isolation": "mps"}, {1}, None),
        ({"isolation": "mps"}, (), None),
        ({"isolation": "mps"}, {0}, "isolation mps, but gpu 0 is in mode time"),
        ({"isolation": "time"}, {1}, "isolation time, but gpu 1 is in mode mps"),
        ({"isolation": "mig"}, (), "mode time; an admin cuts it by `tandem partition apply --mig`"),
        ({"isolation": "mig"}, {257}, None),
        ({"isolation": "time"}, {257}, "isolation time, but gpu 1:0 is in mode mig"),
        ({"sm_count": 17}, {257}, "it asks for 17 SMs, but gpu 1:0 has 16"),
        ({"isolation": "mps+green"}, {1}, "isolation mps+green, but gpu 1 is in mode mps"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_reason(asked, gpus, why):
    options = Options(
        sm_counts=SMS | ({257: 16} if 257 in gpus else {}),
        mps_gpus=frozenset({1}),
        mig_gpus=frozenset({257}),
        gpu_names={257: "1:0"},
    )

    found = unfit(JobSpec(**asked), frozenset(gpus), options)

    assert (found is None) if why is None else (why in found)
    assert len(found or "") < 160  # the packet has no more room


def test_what_keeps_a_mode_from_working_is_the_reason_it_is_refused_for():
    why = "green contexts need CUDA 12.5, but the driver has 12.4"
    options = Options(sm_counts=SMS, why_not={0: {"mps": why}})

    assert why in unfit(JobSpec(isolation="mps"), frozenset({0}), options)
    assert why not in unfit(JobSpec(isolation="mps"), frozenset({1}), options)

    options = Options(sm_counts=SMS, unproved={0: "two processes shared SM 3"})
    assert "shared SM 3" in unfit(JobSpec(isolation="mps+green"), frozenset({0}), options)
    assert "shared SM 3" not in unfit(JobSpec(isolation="mps"), frozenset({0}), options)


def test_a_job_is_told_that_the_mode_it_came_to_does_not_let_jobs_share():
    why = "compute mode exclusive-process: a second job gets no context"
    talk = talking(why_not={0: {"time": why}})
    talk.attach(1, BATCH)
    talk.attach(2, BATCH, gpu=1)

    assert why in [line for _, line in talk.core.jobs[1].story]
    assert why not in [line for _, line in talk.core.jobs[2].story]
    assert why in explain(talk.core, talk.core.jobs[1], talk.now_ns).lines


def test_of_a_machine_whose_gpus_are_not_known_nothing_is_refused():
    assert unfit(JobSpec(sm_count=500, isolation="mps"), frozenset(), Options()) is None


def test_a_job_that_came_to_a_gpu_in_another_mode_is_told():
    talk = talking(mps_gpus=frozenset({1}))
    talk.register(1, BATCH, isolation="mps")

    talk.attach(7, BATCH, job_id=1, gpu=0)

    assert "it asks for isolation mps, but gpu 0 is in mode time" in lines(talk, 1)
    assert any("isolation mps" in line for _, line in talk.core.jobs[1].story)


@pytest.mark.parametrize("apart", [True, False])
def test_jobs_on_two_instances_of_mig_do_not_take_turns_and_on_one_they_do(apart):
    talk = talking(mig_gpus=frozenset({137, 145}), sm_counts={137: 16, 145: 60})
    talk.attach(1, BATCH, gpu=145, sm_count=30)
    talk.attach(2, BATCH, gpu=137 if apart else 145)
    talk.works(1)
    talk.works(2)

    assert [talk.is_open(1), talk.is_open(2)] == ([True, True] if apart else [True, False])
    assert owed(talk, 1) == pytest.approx(0.5)  # of its instance's time, not of 132 SMs


@pytest.mark.parametrize(
    ("asked", "gpus", "waits"),
    [
        ({"sm_percent": 30}, {0}, True),
        ({"sm_count": 4}, set(), True),  # it may end up on that one
        ({"isolation": "mps"}, {0}, True),
        ({"isolation": "mps+green"}, {0}, True),
        ({"isolation": "time"}, {0}, False),
        ({"sm_percent": 30}, {1}, False),
        ({}, {0}, False),
    ],
)
def test_what_depends_on_the_proof_of_sets_waits_for_it(asked, gpus, waits):
    options = Options(sm_counts=SMS, mps_gpus=frozenset({0}), proving=frozenset({0}))

    why = not_yet(JobSpec(**asked), frozenset(gpus), options)

    assert why == ("mode mps+green is being proved on gpu 0" if waits else "")


@pytest.mark.parametrize(
    ("asked", "percent", "told", "sms"),
    [
        (
            {"sm_percent": 25},
            25.0,
            "sm 25%: MPS lets it use 25% of the SMs, as set by `tandem run`",
            33,
        ),
        (
            {"sm_count": 44},
            33.33,
            "sm 44 SMs: MPS lets it use 33.33% of the SMs, as set by",
            44,
        ),
        (
            {"sm_percent": 25},
            50.0,
            "MPS lets it use at most 50% of the SMs, because of its own CUDA_MPS_ACTIVE",
            66,
        ),
        ({"sm_percent": 25}, 50.0, "PERCENTAGE, so sm 25% has no effect", 66),
        (
            {},
            12.5,
            "MPS lets it use at most 12.5% of the SMs, because of its own "
            "CUDA_MPS_ACTIVE_THREAD_PERCEN",
            16,
        ),
        (
            {"sm_percent": 25},
            100.0,
            "sm 25% has no effect: MPS lets it use all SMs, because it started",
            132,
        ),
        ({}, 100.0, "MPS lets it use all SMs: it has no percentage", 132),
        ({"sm_percent": 25}, 0.0, "unless the job brought a percentage of its own", 33),
        ({}, 0.0, "its shim does not say whether MPS lets it have all SMs", 132),
    ],
)
def test_which_percentage_holds_a_job_is_told(asked, percent, told, sms):
    talk = talking(mps_gpus=frozenset({0}), sm_counts={0: 132})
    talk.attach(1, **asked)
    talk.core.processes[1].mps_percent = percent

    assert told in lines(talk, 1)
    assert given_sms(talk.core.jobs[1], 0, talk.core.options) == sms


def test_who_works_and_is_no_client_of_mps_is_told_so():
    talk = talking(mps_gpus=frozenset({0}), sm_counts={0: 132})
    for process_id in (1, 2, 3):
        talk.attach(process_id, sm_percent=25)

    def named(*process_ids):
        listed = frozenset(process_ids)
        talk.say(MpsClientsListed(now_ns=0, gpus=frozenset({0}), process_ids=listed))
        return [bool(beside_mps(talk.core.jobs[one])) for one in (1, 2, 3)]

    assert named(1) == named(1) == [False, False, False]  # they may have no context yet
    talk.sample(2, launches=1)
    assert named(1) == [False, False, False]  # the list may be older than the context
    assert named(1) == [False, True, False]
    assert "it is not a client of mps: its kernels run beside no others" in lines(talk, 2)
    assert "in turns with all of them" in [*talk.core.jobs[2].story][-1][1]
    assert given_sms(talk.core.jobs[2], 0, talk.core.options) == 132
    assert named(1, 2) == [False, False, False]


def test_a_list_of_one_mps_says_nothing_of_who_runs_on_the_gpu_of_another():
    talk = talking(mps_gpus=frozenset({0, 1}), sm_counts={0: 132, 1: 132})
    talk.attach(1, gpu=1)
    talk.sample(1, launches=1)

    for _ in range(3):
        talk.say(MpsClientsListed(now_ns=0, gpus=frozenset({0}), process_ids=frozenset()))

    assert beside_mps(talk.core.jobs[1]) == ""


def test_who_was_a_client_of_mps_and_is_named_no_more_has_lost_its_server():
    talk = talking(mps_gpus=frozenset({0}), sm_counts={0: 132})
    talk.attach(1)
    talk.sample(1, launches=1)

    for named in ({1}, (), ()):
        listed = frozenset(named)
        talk.say(MpsClientsListed(now_ns=0, gpus=frozenset({0}), process_ids=listed))

    assert beside_mps(talk.core.jobs[1]) == ""
    assert "not a client" not in " ".join(line for _, line in talk.core.jobs[1].story)
