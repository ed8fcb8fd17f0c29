from itertools import product

import pytest
from talk import BATCH, LATENCY, MS, NORMAL, Talk

from tandemd.core.errors import IllegalTransitionError, UnknownJobError
from tandemd.core.events import (
    AnnounceJob,
    ForgetProcess,
    JobTurnedAway,
    SetClass,
    SetLinger,
    SetMemoryLimit,
)
from tandemd.core.explain.explain import explain, summarise
from tandemd.core.finished import MOST, MOST_OF_UID
from tandemd.core.model import (
    NO_LIMIT,
    Job,
    JobSpec,
    JobState,
    Options,
    Phases,
    Usage,
    WaitReason,
)
from tandemd.core.states import TABLE, Stimulus, advance


def job_in(state):
    job = Job(job_id=0x7F3A, uid=1, arrival=0, created_ns=0, registered=True, spec=JobSpec())
    job.state = state
    job.tell(5, "something happened")
    return job


@pytest.mark.parametrize("pair", sorted(TABLE, key=str), ids=str)
def test_every_row_of_the_table_leads_where_it_says(pair):
    job = job_in(pair[0])

    advance(job, pair[1])

    assert job.state is TABLE[pair]


@pytest.mark.parametrize("pair", sorted(set(product(JobState, Stimulus)) - set(TABLE), key=str))
def test_a_pair_without_a_row_raises_with_the_story(pair):
    with pytest.raises(IllegalTransitionError, match=r"j-7f3a is .*something happened"):
        advance(job_in(pair[0]), pair[1])


def test_every_state_but_the_last_can_end_or_empty():
    ways_out = {state for state, stimulus in TABLE if stimulus in (Stimulus.EXITED, Stimulus.LEFT)}

    assert ways_out == set(JobState) - {JobState.EXITED}


def test_a_registered_job_outlives_its_processes():
    talk = Talk()
    talk.register(7)
    talk.attach(1, job_id=7)

    talk.leave(1)

    assert talk.core.jobs[7].state is JobState.DETACHED


def test_a_job_whose_process_was_refused_is_detached_and_says_why():
    talk = Talk()
    talk.register(7)
    talk.say(JobTurnedAway(now_ns=talk.now_ns, job_id=7, why="no shared memory"))
    job = talk.core.jobs[7]
    assert job.state is JobState.DETACHED
    assert summarise(talk.core, talk.core.jobs[7], talk.now_ns).endswith(
        "runs unshared: no shared memory"
    )

    talk.attach(1, job_id=7)
    talk.say(JobTurnedAway(now_ns=talk.now_ns, job_id=7, why="another"))
    assert job.state is JobState.IDLE  # one of its processes is attached

    talk.leave(1)
    assert said(talk, 7).summary.endswith("has left the gpu")


def test_a_job_outlives_the_process_that_registered_it():
    talk = Talk()
    talk.register(7)
    talk.attach(1, job_id=7)

    talk.end(7)

    assert talk.core.jobs[7].state is JobState.IDLE


def test_a_job_ends_with_the_last_that_keeps_it():
    talk = Talk()
    talk.register(7)
    talk.attach(1, job_id=7)
    talk.end(7)

    talk.leave(1)

    assert talk.core.jobs == {}
    assert talk.core.groups == {}
    assert talk.of(ForgetProcess) == [ForgetProcess(process_id=1)]
    assert AnnounceJob(job_id=7, kind="exited") in talk.actions


def test_a_finished_job_keeps_its_figures_for_ten_minutes():
    talk = Talk()
    talk.attach(1)
    talk.sample(1, exclusive_ns=3 * MS, shared_ns=MS, launches=5, steps=2)
    talk.leave(1)

    job = talk.core.job(1)

    assert (job.gpu_ns, job.shared_ns, job.launches, job.steps) == (4 * MS, MS, 5, 2)
    talk.tick(after_ms=600_001)
    with pytest.raises(UnknownJobError, match="j-1"):
        talk.core.job(1)


def test_a_finished_job_is_forgotten_in_time_while_others_never_rest():
    talk = Talk()
    talk.attach(1)
    talk.attach(2)
    talk.leave(1)

    talk.now_ns += 600_001 * MS
    talk.sample(2, busy=True)

    assert not talk.core.finished


def test_of_finished_jobs_the_newest_are_known_so_many_of_each_uid_and_of_all():
    talk = Talk()
    uids = MOST // MOST_OF_UID + 1
    for job_id in range(MOST_OF_UID * uids):
        talk.register(1 + job_id, uid=job_id // MOST_OF_UID)
        talk.end(1 + job_id)
    assert [*talk.core.finished] == [*range(1 + MOST_OF_UID, 1 + MOST_OF_UID * uids)]

    for job_id in (10_001, 10_002):  # of the newest uid
        talk.register(job_id, uid=uids - 1)
        talk.end(job_id)

    kept = [*talk.core.finished]
    assert len(kept) == MOST
    assert (kept[0], kept[-3:]) == (1 + MOST_OF_UID, [MOST_OF_UID * uids, 10_001, 10_002])
    assert 1 + MOST_OF_UID * (uids - 1) not in kept


def test_a_job_from_before_a_restart_is_made_again_when_its_process_returns():
    talk = Talk()

    talk.attach(1, LATENCY, job_id=0xABC)

    assert talk.core.jobs[0xABC].spec.job_class is LATENCY


def test_usage_of_a_process_that_left_is_ignored():
    talk = Talk()
    talk.attach(1)
    talk.attach(2, job_id=1)
    talk.leave(2)
    talk.usages[2] = Usage(process_id=2)

    talk.works(2)

    assert talk.core.jobs[1].state is JobState.IDLE


@pytest.mark.parametrize(
    ("figures", "state"),
    [
        ({"busy": True}, JobState.RUNNING),
        ({"busy": True, "waiting_threads": 1}, JobState.RUNNING),
        ({"waiting_threads": 1, "wait_reason": WaitReason.GATE}, JobState.WAITING),
        ({}, JobState.IDLE),
    ],
)
def test_the_state_follows_what_the_processes_do(figures, state):
    talk = Talk()
    talk.attach(1)

    talk.sample(1, launches=1, **figures)

    assert talk.core.jobs[1].state is state


def test_a_paused_job_stays_paused_whatever_its_processes_do():
    talk = Talk()
    talk.attach(1)
    talk.pause(1)

    talk.works(1)
    talk.attach(2, job_id=1)

    assert talk.core.jobs[1].state is JobState.PAUSED


def test_resuming_a_job_that_is_not_paused_changes_nothing():
    talk = Talk()
    talk.attach(1)

    assert talk.resume(1) == []


def test_a_job_paused_before_it_used_the_gpu_is_detached_when_resumed():
    talk = Talk()
    talk.register(7)
    talk.pause(7)

    talk.resume(7)

    assert talk.core.jobs[7].state is JobState.DETACHED
    assert said(talk, 7).summary == "has not used the gpu yet"


@pytest.mark.parametrize("word", ["pause", "resume", "end", "update"])
def test_an_event_for_an_unknown_job_is_refused(word):
    with pytest.raises(UnknownJobError, match="j-63"):
        getattr(Talk(), word)(99)


def test_a_process_of_a_latency_group_is_told_its_class_and_how_long_to_linger():
    talk = Talk(Options(linger_ns=42, linger_limit_ns=99))

    talk.attach(1, LATENCY)

    assert talk.of(SetClass) == [SetClass(process_id=1, job_class=LATENCY)]
    assert talk.of(SetLinger) == [SetLinger(process_id=1, linger_ns=42, limit_ns=99)]


def test_a_change_of_class_is_told_at_once():
    talk = Talk()
    talk.attach(1, NORMAL)

    talk.update(1, job_class=BATCH)

    assert talk.of(SetClass) == [SetClass(process_id=1, job_class=BATCH)]


def test_an_update_does_not_move_a_job_to_another_group():
    talk = Talk()
    talk.attach(1, group="ranks")

    talk.update(1, job_class=BATCH, group="elsewhere")

    assert talk.core.jobs[1].spec.group == "ranks"


def test_a_lone_process_may_use_the_whole_quota_of_its_job():
    talk = Talk()

    talk.attach(1, memory_bytes=1000)

    assert talk.of(SetMemoryLimit) == [SetMemoryLimit(process_id=1, limit_bytes=1000)]


def test_processes_of_a_job_share_its_quota():
    talk = Talk()
    talk.attach(1, memory_bytes=1000)
    talk.attach(2, job_id=1)

    talk.sample(1, device_bytes=300)

    assert talk.of(SetMemoryLimit) == [SetMemoryLimit(process_id=2, limit_bytes=700)]


@pytest.mark.parametrize("limits", [{}, {"memory_bytes": 1000}])
def test_news_of_memory_of_one_process_of_several_seats_nobody_anew(limits):
    talk = Talk()
    talk.attach(1, **limits)
    talk.attach(2, job_id=1)
    seats = talk.core.islands

    talk.sample(1, device_bytes=300)

    assert talk.core.islands is seats
    assert [type(told) for told in talk.actions] == [SetMemoryLimit] * len(limits)


def test_its_quota_holds_for_each_gpu_by_itself():
    talk = Talk()
    talk.attach(1, memory_bytes=1000, gpu=0)
    talk.attach(2, job_id=1, gpu=1)

    talk.sample(1, device_bytes=300)

    assert talk.of(SetMemoryLimit) == []  # process 2 keeps its whole quota


def test_a_process_on_two_gpus_takes_from_those_on_either():
    talk = Talk()
    talk.attach(1, memory_bytes=1000, gpu=0)
    talk.attach(2, job_id=1, gpu=1)
    talk.sample(1, device_bytes=300)

    talk.add_gpu(1, 1)

    assert talk.of(SetMemoryLimit) == [SetMemoryLimit(process_id=2, limit_bytes=700)]


def test_a_job_without_a_quota_has_no_limit():
    talk = Talk()

    talk.attach(1)

    assert talk.of(SetMemoryLimit) == [SetMemoryLimit(process_id=1, limit_bytes=NO_LIMIT)]


def said(talk, job_id):
    asked = talk.core, talk.core.job(job_id), talk.now_ns
    found = explain(*asked)
    assert summarise(*asked) == found.summary  # the text that a list of jobs shows
    return found


def test_explain_names_who_has_the_gpu_and_a_bound():
    talk = Talk(Options(policy="fair"))
    talk.attach(1, BATCH)
    talk.attach(2, BATCH)
    talk.works(1)
    talk.waits(2)
    talk.tick(after_ms=4)

    summary = said(talk, 2).summary

    assert summary == "waiting 4.0 ms: j-1 (class batch) has the gpu; at most 260 ms more"


def test_explain_says_that_work_of_another_drains():
    talk = Talk(Options(policy="fair"))
    talk.attach(1, BATCH)
    talk.attach(2, BATCH)
    talk.works(1)
    talk.waits(2)
    talk.works(1, after_ms=10, ran_ms=10)

    assert "it is next, once the work of j-1 has drained" in said(talk, 2).summary


def test_explain_bounds_a_wait_behind_a_higher_class_by_max_hold():
    talk = Talk()
    talk.attach(1, NORMAL)
    talk.attach(2, BATCH)
    talk.works(1)
    talk.waits(2)

    assert said(talk, 2).summary.endswith("at most 20 s more")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (WaitReason.PRESENCE, "yields to j-1, which is busy"),
        (WaitReason.WINDOW, "its window of 2 segments is full"),
    ],
)
def test_explain_names_the_reason_of_a_wait(reason, words):
    talk = Talk()
    talk.attach(1, LATENCY)
    talk.attach(2, BATCH)
    talk.works(1)

    talk.waits(2, reason=reason)

    assert words in said(talk, 2).summary


def test_explain_tells_each_state_apart():
    talk = Talk()
    talk.register(7)
    assert said(talk, 7).summary == "has not used the gpu yet"
    talk.attach(1, job_id=7)
    assert said(talk, 7).summary.startswith("idle")
    talk.works(1)
    assert said(talk, 7).summary.startswith("runs")
    talk.pause(7)
    assert "tandem resume j-7" in said(talk, 7).summary
    talk.resume(7)
    talk.sample(1, ungated=True)
    assert said(talk, 7).summary.startswith("runs ungated")
    talk.leave(1)
    assert said(talk, 7).summary == "has left the gpu"
    talk.end(7)
    assert said(talk, 7).summary == "ended"


def test_explain_names_the_paused_job_that_holds_its_group():
    talk = Talk()
    talk.attach(1, group="ranks")
    talk.attach(2, group="ranks")
    talk.pause(2)

    assert said(talk, 1).summary == "held with its group 'ranks', in which j-2 is paused"


def test_explain_lists_the_facts_of_sharing():
    talk = Talk()
    talk.attach(1, LATENCY)
    talk.attach(2, BATCH, group="ranks")
    talk.attach(3, BATCH, group="ranks")

    lines = said(talk, 2).lines

    assert "shares the gpu with j-1 (latency)" in lines
    assert "window: 2 segments of 100 us" in lines
    assert any("2 processes" in line for line in lines)


def test_explain_counts_the_threads_that_wait_now():
    talk = Talk()
    talk.attach(1, BATCH)
    talk.pause(1)
    talk.waits(1)

    explained = explain(talk.core, talk.core.jobs[1], talk.now_ns)

    assert "threads waiting now: 1" in explained.lines


@pytest.mark.parametrize("ends", ["steps", "iterations"])
def test_iterations_that_ended_stay_ended_whatever_a_process_says_later(ends):
    talk = Talk(Options(find_iterations=True))
    talk.attach(1)

    for count in (5, 3):
        talk.sample(1, **{ends: count})

    assert talk.core.processes[1].ends == 5


def test_explain_tells_of_a_claim_that_was_lost():
    talk = Talk()
    talk.attach(1, BATCH)
    talk.attach(2, BATCH)
    talk.waits(1)
    talk.tick(after_ms=1)
    talk.tick(after_ms=1000)

    explained = explain(talk.core, talk.core.jobs[1], talk.now_ns)

    assert any("until it has work on the gpu" in line for line in explained.lines)


def test_explain_says_when_a_class_is_owed_time():
    talk = Talk()
    talk.attach(1, LATENCY)
    talk.attach(2, BATCH)
    for _ in range(11):
        talk.waits(2, after_ms=100, reason=WaitReason.PRESENCE)

    assert any("owed" in line for line in said(talk, 2).lines)


def test_the_story_keeps_the_newest_lines():
    job = job_in(JobState.IDLE)
    for number in range(100):
        job.tell(number, f"line {number}")

    assert [line for _, line in job.story] == [f"line {n}" for n in range(68, 100)]


def test_turns_do_not_drive_everything_else_out_of_the_story():
    job = job_in(JobState.IDLE)
    job.tell(0, "registered")
    for ms in range(100):
        job.tell(ms * 1_000_000, "held: j-2 has the gpu")
        job.tell(ms * 1_000_000 + 500, "its gate opened")

    assert list(job.story)[-3:] == [
        (0, "registered"),
        (99_000_000, "held: j-2 has the gpu (100 times in 0.099 s)"),
        (99_000_500, "its gate opened (100 times in 0.099 s)"),
    ]


def test_a_wait_in_progress_counts_as_waited():
    usage = Usage(
        process_id=1,
        waiting_threads=1,
        wait_reason=WaitReason.GATE,
        wait_since_ns=10 * MS,
        wait_total_ns=(0, 5 * MS, 0, 0, 0),
    )

    assert usage.waited_ns(30 * MS) == (0, 25 * MS, 0, 0, 0)
    assert usage.waited_ns(5 * MS) == (0, 5 * MS, 0, 0, 0)


@pytest.mark.parametrize(
    ("figures", "line"),
    [
        (
            {"iterations": 3, "iteration_ns": 12_300_000, "iteration_launches": 497},
            "iterations found in what it submits: 12 ms and 497 launches each",
        ),
        (
            {"steps": 5, "iterations": 3, "iteration_ns": 12_300_000},
            "iterations: 5 so far, marked by the job",
        ),
        (
            {"steps": 5, "iteration_ns": 12_300_000, "iteration_launches": 497},
            "marked iterations: 12 ms and 497 launches each",
        ),
        (
            {"phases": Phases(forward=0.38, backward=0.55, update=0.07, marked=False)},
            "phases: forward 38%, backward 55%, update 7% of its gpu time (found)",
        ),
        (
            {"phases": Phases(forward=0.4, backward=0.5, update=0.1, marked=True)},
            "phases: forward 40%, backward 50%, update 10% of its gpu time (marked)",
        ),
        ({"linger_ns": 512_000}, "counts as busy for 512 us after its last work"),
    ],
)
def test_explain_tells_what_is_known_of_a_job(figures, line):
    talk = Talk()
    talk.attach(1, LATENCY)
    talk.sample(1, **figures)

    assert line in explain(talk.core, talk.core.jobs[1], talk.now_ns).lines


def test_the_first_mark_of_an_iteration_takes_none_back():
    talk = Talk()
    talk.attach(1)
    talk.sample(1, iterations=5)
    (group,) = talk.core.groups.values()
    found = group.steps
    talk.sample(1, iterations=6, steps=1)

    assert (found, group.steps) == (5, 6)


def refused(talk, process_id, *by):
    return talk.sample(process_id, refused_by=by)


def test_who_told_a_job_out_of_memory_outlives_it():
    talk = Talk()
    talk.attach(1, memory_bytes=20 << 20)
    refused(talk, 1, 1, 0, 0)
    refused(talk, 1, 2, 1, 0)
    assert "was told out of memory 3 times: 2 by its limit, 1 by the driver" in said(talk, 1).lines

    talk.leave(1)

    job = talk.core.finished[1]
    assert said(talk, 1).summary == (
        "ended; was told out of memory 3 times: 2 by its limit, 1 by the driver"
    )
    told = [line.partition(" (")[0] for _, line in job.story]
    assert "told out of memory by its limit of 20 MiB" in told
    assert "told out of memory by the driver" in told


def test_a_job_that_was_never_told_so_says_nothing_of_it():
    talk = Talk()
    talk.attach(1)
    assert not any("out of memory" in line for line in said(talk, 1).lines)

    talk.leave(1)

    assert said(talk, 1).summary == "ended"


def test_what_watchers_were_told_is_kept_each_kind_once():
    talk = Talk()
    talk.register(7)
    talk.attach(1, job_id=7)
    came_ns = talk.now_ns
    for _ in range(3):
        talk.sample(1, after_ms=1, busy=True)
        talk.sample(1, after_ms=1, busy=False)

    assert [*talk.core.jobs[7].events.counted()] == [
        (came_ns, "registered", 1),
        (came_ns, "attached", 1),
        (came_ns + 5 * MS, "running", 3),
        (came_ns + 6 * MS, "idle", 4),
    ]


def waits_at_its_gate(talk, ended_ms, since_ms=0):
    talk.sample(
        1,
        waiting_threads=1 if since_ms else 0,
        wait_reason=WaitReason.GATE,
        wait_since_ns=since_ms * MS,
        wait_total_ns=(0, ended_ms * MS, 0, 0, 0),
    )


def test_who_waits_while_somebody_has_paused_it_does_not_wait_for_others():
    talk = Talk(now_ns=100 * MS)
    talk.attach(1)
    job = talk.core.jobs[1]

    def waited_ms():
        return job.waited_ns(talk.now_ns)[WaitReason.GATE] / MS

    waits_at_its_gate(talk, ended_ms=5)
    talk.pause(1)
    waits_at_its_gate(talk, ended_ms=5, since_ms=100)
    talk.now_ns += 60 * MS
    assert waited_ms() == 5
    talk.pause(1)  # a second pause
    talk.now_ns += 40 * MS
    assert waited_ms() == 5

    talk.resume(1)
    talk.now_ns += 10 * MS  # it still waits, now because of other jobs
    assert waited_ms() == 15
    waits_at_its_gate(talk, ended_ms=115)
    assert waited_ms() == 15
    talk.pause(1)
    talk.resume(1)
    assert waited_ms() == 15


def test_what_was_waited_does_not_fall_when_the_waiting_process_ends():
    talk = Talk(now_ns=100 * MS)
    talk.register(1)
    talk.attach(1)
    waits_at_its_gate(talk, ended_ms=5, since_ms=100)
    talk.now_ns += 20 * MS
    job = talk.core.jobs[1]
    assert job.waited_ns(talk.now_ns)[WaitReason.GATE] == 25 * MS

    talk.leave(1)
    talk.now_ns += 20 * MS

    assert job.waited_ns(talk.now_ns)[WaitReason.GATE] == 25 * MS
