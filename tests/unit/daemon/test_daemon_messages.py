"""What jobs report about themselves, as messages for everybody who lists them."""

from dataclasses import replace

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from past_job import PAST
from structlog.testing import capture_logs

from tandem import _convert
from tandem._wire import tandem_pb2 as pb
from tandem.errors import UsageError
from tandemd.core.model import Job, JobClass, JobSpec, JobState, Process, Usage
from tandemd.core.sums import MOST
from tandemd.edges.messages import job_message, past_message, past_query
from tandemd.views import JobView

VIEW = JobView(
    job_id=0x7F3A,
    uid=1000,
    user="ann",
    command="",
    spec=JobSpec(job_class=JobClass.BATCH),
    state=JobState.RUNNING,
    reason="",
    created_wall_ns=0,
    processes=(),
    gpus=(0,),
    gpu_names=("0",),
    mode="time",
    gpu_ns=0,
    shared_ns=0,
    waits_ns=(0, 0, 0, 0, 0),
    launches=0,
    moved_bytes=(0, 0),
    moved_ns=(0, 0),
    steps=0,
    iterations=0,
    audited_bytes=0,
    refused_by=(0, 0, 0),
    memory_wait_bytes=0,
    memory_wait_place=0,
    share=0.0,
    requests=0,
    p99_ns=0,
    owed=0.0,
    findings=(),
)


def test_what_the_processes_of_a_job_claim_together_is_as_much_as_a_message_holds():
    job = Job(job_id=1, uid=0, arrival=0, created_ns=0, registered=True, spec=JobSpec())
    job.retired_launches = job.retired_steps = MOST
    for number in (1, 2):
        usage = Usage(
            process_id=number,
            launches=MOST,
            steps=MOST,
            exclusive_ns=MOST,
            shared_ns=MOST,
            swap_out_bytes=MOST,
            swap_in_ns=MOST,
            refused_by=(MOST, 0, 0),
            wait_total_ns=(0, MOST, 0, 0, 0),
        )
        job.processes[number] = Process(process_id=number, job_id=1, gpu=0, usage=usage)

    assert (job.launches, job.steps, job.gpu_ns, job.shared_ns) == (MOST,) * 4
    assert (job.moved_bytes, job.moved_ns) == ((MOST, 0), (0, MOST))
    assert (job.refused_by, job.waited_ns(1)) == ((MOST, 0, 0), (0, MOST, 0, 0, 0))


def test_figures_that_no_message_holds_are_told_as_what_it_holds_at_most():
    huge = 3 * MOST
    view = replace(
        VIEW, launches=huge, steps=huge, requests=huge, gpu_ns=huge, waits_ns=(0, huge, 0, huge, 0)
    )

    status = job_message(view).status

    assert (status.launches, status.steps, status.requests) == (MOST,) * 3
    assert status.gpu_time.ToNanoseconds() == status.wait_time.ToNanoseconds() == MOST


@pytest.mark.parametrize("energy_mj", [None, 0, 2500])
def test_energy_that_is_not_known_is_no_nothing(energy_mj):
    living = _convert.job(job_message(replace(VIEW, energy_mj=energy_mj)))
    ended = _convert.past_job(past_message(replace(PAST, energy_mj=energy_mj)))

    assert (living.energy_mj, ended.energy_mj) == (energy_mj, energy_mj)


def test_waiting_for_its_own_window_is_not_waiting_for_others():
    view = replace(VIEW, waits_ns=(0, 5, 70, 11, 13))

    assert job_message(view).status.wait_time.ToNanoseconds() == 5 + 11 + 13


def test_a_job_that_cannot_be_told_hides_no_other():
    with capture_logs() as logs:
        names = [job_message(view).name for view in (replace(VIEW, sms=2**40), VIEW)]
        broken = job_message(replace(VIEW, sms=2**40))

    assert names == ["j-7f3a", "j-7f3a"]
    assert (broken.uid, broken.user, len(broken.warnings)) == (1000, "ann", 1)
    assert [line["what"] for line in logs] == ["the message of a job"]


@pytest.mark.parametrize("field", ["since", "until"])
@pytest.mark.parametrize("moment", [Timestamp(seconds=2**62), Timestamp(seconds=1, nanos=-5)])
def test_what_no_time_can_be_is_an_error_of_who_asks(field, moment):
    request = pb.ListHistoryRequest(**{field: moment})

    with pytest.raises(UsageError, match=f"{field} is not a valid time: "):
        past_query(request, before_id=0, most=1)
