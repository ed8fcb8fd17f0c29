"""One call steers all jobs of a group, or none of them."""

import os
import signal

import grpc
import pytest
from fake_shim import BATCH, PATIENCE_S
from running_daemon import until

from tandem._wire import tandem_pb2 as pb

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another uid")
NOBODY = 65534


def change(rpc, group, **what):
    request = pb.ChangeGroupRequest(group=group, **what)
    return list(rpc.call(rpc.job_service.ChangeGroup, request).jobs)


def refused(rpc, group, **what):
    with pytest.raises(grpc.RpcError) as caught:
        change(rpc, group, **what)
    return caught.value.code(), caught.value.details()


def update(**spec):
    request = pb.UpdateJobRequest(job=pb.Job(spec=pb.JobSpec(**spec)))
    request.update_mask.paths.extend(spec)
    return request


def states(jobs):
    return [job.status.state for job in jobs]


@pytest.fixture
def ranks(daemon):
    """Two ranks of one launch, and a job beside them."""
    daemon.start()
    return [
        daemon.shim(name=name, group=group)
        for name, group in (("rank0", "train"), ("rank1", "train"), ("other", ""))
    ]


@pytest.mark.usefixtures("ranks")
def test_a_group_is_paused_and_goes_on_as_a_whole(daemon):
    with daemon.rpc() as rpc:
        paused = change(rpc, "train", pause=pb.PauseJobRequest())
        beside = {job.display_name: job.status.state for job in rpc.jobs()}

        resumed = change(rpc, "train", resume=pb.JobName())

    assert [job.display_name for job in paused] == ["rank0", "rank1"]
    assert states(paused) == [pb.STATE_PAUSED] * 2
    assert beside["other"] != pb.STATE_PAUSED
    assert pb.STATE_PAUSED not in states(resumed)


@pytest.mark.usefixtures("ranks")
def test_what_is_set_for_a_group_is_so_for_each_of_its_jobs(daemon):
    with daemon.rpc() as rpc:
        change(rpc, "train", update=update(**{"class": BATCH}))
        members = change(rpc, "train")
        others = [job for job in rpc.jobs() if not job.spec.group]

    assert [getattr(job.spec, "class") for job in members] == [BATCH, BATCH]
    assert [getattr(job.spec, "class") for job in others] != [BATCH]


def test_what_one_job_may_not_have_none_gets(daemon):
    daemon.start()
    daemon.shim(name="small", group="train")
    daemon.shim(name="large", group="train")
    with daemon.rpc() as rpc:
        least = update(memory_min_bytes=1 << 30)
        least.job.name = "large"
        rpc.call(rpc.job_service.UpdateJob, least)

        said = refused(rpc, "train", update=update(memory_quota_bytes=1 << 20))
        members = change(rpc, "train")

    assert said[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "its minimum of 1 GiB is more than its limit" in said[1]
    assert (1 << 20) not in [job.spec.memory_quota_bytes for job in members]


@pytest.mark.usefixtures("ranks")
def test_a_promise_is_set_job_by_job(daemon):
    with daemon.rpc() as rpc:
        code, text = refused(rpc, "train", update=update(memory_min_bytes=1))

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "memory_min, persistent and ephemeral cannot be set for a group" in text


def test_a_name_that_all_ranks_have_is_said_to_be_that_of_a_group(daemon):
    daemon.start()
    for _ in range(2):
        daemon.shim(name="rank", group="train")
    with daemon.rpc() as rpc, pytest.raises(grpc.RpcError) as caught:
        rpc.call(rpc.job_service.PauseJob, pb.PauseJobRequest(name="rank"))

    assert caught.value.details().endswith("; name one of those, or all of them with -G 'train'")


def test_every_job_of_a_cancelled_group_is_signalled(daemon):
    daemon.start()
    with (
        daemon.client("--group", "train") as first,
        daemon.client("--group", "train") as second,
        daemon.client() as other,
        daemon.rpc() as rpc,
    ):
        for client in (first, second, other):
            client.stdout.readline()

        cancelled = change(rpc, "train", cancel=pb.CancelJobRequest())

        assert first.wait(PATIENCE_S) == second.wait(PATIENCE_S) == -signal.SIGTERM
        assert other.poll() is None
    assert len(cancelled) == 2


def test_there_is_no_such_group_or_it_has_ended(daemon):
    daemon.start()
    with daemon.rpc() as rpc:
        assert refused(rpc, "") == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "the name of the group is empty; give one such as 'torchrun:29500:none'",
        )
        unknown = "no group is named 'nope'; GROUP in `tandem ps` says which are"
        assert refused(rpc, "nope") == (grpc.StatusCode.NOT_FOUND, unknown)
        daemon.shim(name="short", group="train").close()
        until(lambda: not rpc.jobs(), what="the job has ended")

        ended = change(rpc, "train")

        assert states(ended) == [pb.STATE_EXITED]
        assert refused(rpc, "train", pause=pb.PauseJobRequest()) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "all jobs of group 'train' have ended",
        )


@as_root
def test_two_users_may_have_a_group_of_one_name(daemon):
    daemon.start()
    with (
        daemon.client("--group", "train", "--uid", str(NOBODY)) as theirs,
        daemon.client("--group", "train", "--uid", str(NOBODY + 1)) as others,
        daemon.rpc() as rpc,
    ):
        for client in (theirs, others):
            client.stdout.readline()
        several = refused(rpc, "train", pause=pb.PauseJobRequest())

        daemon.shim(name="mine", group="train")
        mine = change(rpc, "train", pause=pb.PauseJobRequest())
        everybody = {job.uid: job.status.state for job in rpc.jobs()}

    assert several[0] is grpc.StatusCode.NOT_FOUND
    assert f"uids {NOBODY} and {NOBODY + 1} each have a group 'train'" in several[1]
    assert [job.display_name for job in mine] == ["mine"]
    assert [uid for uid, state in everybody.items() if state == pb.STATE_PAUSED] == [0]
