"""What the daemon suggests to the jobs of a GPU with sets of SMs."""

from dataclasses import replace

from talk import Talk

from tandemd.core.explain.scaling import scaling_lines
from tandemd.core.explain.sets import why_no_set
from tandemd.core.model import Options, Split
from tandemd.core.space.partition import parts_of
from tandemd.core.space.scaling import Curve

MPS = Options(sm_counts={0: 132}, mps_gpus=frozenset({0}))
GREEN = replace(MPS, splits={0: Split(16, 8)})
COUNTS = tuple(range(8, 129, 8))
EVEN = Curve(
    sm_counts=COUNTS,
    iteration_ns=tuple(128_000_000 // sms for sms in COUNTS),
    recorded_sms=128,
    recorded_ns=1_000_000,
)


def sized(talk):
    for job in talk.core.jobs.values():
        for process in job.processes.values():
            process.scaling = EVEN
    return parts_of(talk.core, 0)


def test_to_whom_a_percentage_holds_nothing_is_proposed_and_nothing_kept():
    talk = Talk(GREEN)
    talk.attach(1)
    talk.attach(2)
    talk.core.processes[1].mps_percent = 25.0

    held, free = sized(talk)

    assert (held.proposed_sms, held.given_sms) == (0, 33)
    assert "an MPS percentage, 25%" in held.why_no_set
    assert held.why == "it has use for all SMs"
    assert (free.proposed_sms, free.why_no_set) == (128, "")
    assert "would fit it" not in " ".join(scaling_lines(talk.core, held.job))
    assert "beside the others 128 SMs of gpu 0 would fit it" in " ".join(
        scaling_lines(talk.core, free.job)
    )


def test_a_job_on_another_gpu_takes_nothing_from_those_of_this_one():
    talk = Talk(replace(MPS, sm_counts={0: 132, 1: 132}, mps_gpus=frozenset({0, 1})))
    talk.attach(1)
    talk.attach(2, gpu=1)

    (own,) = sized(talk)

    assert (own.job.job_id, own.proposed_sms) == (1, 128)


def test_who_was_there_before_its_gpu_had_sets_gets_none_and_takes_none_from_others():
    talk = Talk(MPS)
    talk.attach(1)
    assert why_no_set(talk.core.jobs[1], MPS) == ""
    talk.core.options = GREEN
    talk.attach(2)

    early, late = sized(talk)

    assert (early.proposed_sms, early.given_sms) == (0, 132)
    assert "restart it to give it one" in early.why_no_set
    assert early.job.set is None
    assert (late.proposed_sms, late.job.set.count, late.why_no_set) == (128, 16, "")


def test_who_comes_while_sets_are_proved_may_have_one_later():
    talk = Talk(replace(MPS, proving=frozenset({0})))
    talk.attach(1)
    talk.core.options = GREEN
    talk.attach(2)

    assert [job.set is not None for job in talk.core.jobs.values()] == [True, True]


def test_in_mode_mps_a_job_is_told_that_its_percentage_keeps_it_from_what_would_fit():
    talk = Talk(MPS)
    talk.attach(1)
    talk.attach(2, sm_percent=50)
    talk.core.processes[1].mps_percent = 25.0
    talk.core.processes[2].mps_percent = 50.0

    own, asked = sized(talk)

    assert (own.given_sms, own.why_no_set) == (33, "")
    assert own.why.endswith("; an MPS percentage limits it to 33 SMs as long as it runs")
    assert (asked.given_sms, asked.proposed_sms, asked.why) == (66, 66, "it asks for 50%")
