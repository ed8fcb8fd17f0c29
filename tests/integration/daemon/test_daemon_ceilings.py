"""The most GPU memory that all jobs of a user may have, from the file to a job's request."""

import os
import signal

import grpc
import pytest
from fake_shim import register
from running_daemon import until

from tandem._wire import tandem_pb2 as pb

NOBODY = 65534
MIB = 1 << 20
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another uid")


@pytest.fixture
def limited(daemon):
    config = daemon.base / "config.toml"
    config.write_text('[limits.default]\nmax_memory = "100MiB"\n')
    return daemon.start("--config", str(config))


def registered(daemon, **asked):
    """Register another user's job; return the launcher's connection, which keeps it, and answer."""
    os.seteuid(NOBODY)
    try:
        launcher = daemon.connect()
        launcher.socket.send(register(**asked))
    finally:
        os.seteuid(0)
    return launcher, launcher.receive()[1]


def job(rpc, name):
    return rpc.call(rpc.job_service.GetJob, pb.JobName(name=name))


def set_memory(rpc, name, size_bytes):
    request = pb.UpdateJobRequest(job=pb.Job(name=name, spec=pb.JobSpec()))
    request.job.spec.memory_quota_bytes = size_bytes
    request.update_mask.paths.append("memory_quota_bytes")
    return rpc.call(rpc.job_service.UpdateJob, request).spec.memory_quota_bytes


def test_who_asks_for_more_gets_as_much_as_there_is_and_is_told(limited):
    with limited.rpc() as rpc:
        _more, answer = registered(limited, memory=300 * MIB, name="more")
        _less, quiet = registered(limited, memory=50 * MIB, name="less")

        assert [job(rpc, name).spec.memory_quota_bytes for name in ("more", "less")] == [
            100 * MIB,
            50 * MIB,
        ]
    told = (
        b"asked for 300 MiB of memory, and gets the 100 MiB that its user may have (limits.default."
    )
    assert (told in answer, b"all jobs" in quiet) == (True, False)
    # The job's shim shows this limit before it attaches.
    assert (b"TANDEM_MEMORY=100MiB" in answer, b"TANDEM_MEMORY" in quiet) == (True, False)


def test_who_asks_for_a_larger_share_is_told_the_one_that_it_gets(daemon):
    config = daemon.base / "config.toml"
    config.write_text('[limits.default]\nmax_memory = "40%"\n')
    limited = daemon.start("--config", str(config))

    _launcher, answer = registered(limited, memory_percent=60)

    assert b"asked for 60% of memory, and gets the 40%" in answer
    assert b"TANDEM_MEMORY=40%" in answer


def test_nobody_sets_more_until_the_file_says_so(limited):
    with limited.rpc() as rpc:
        _launcher, _ = registered(limited, memory=50 * MIB, name="job")
        assert set_memory(rpc, "job", 90 * MIB) == 90 * MIB
        with pytest.raises(grpc.RpcError) as refused:
            set_memory(rpc, "job", 101 * MIB)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert refused.value.details() == (
            "101 MiB is more than the 100 MiB that all jobs of uid 65534 may have on a gpu "
            "(limits.default.max_memory); raise that first"
        )

        (limited.base / "config.toml").write_text('[limits.default]\nmax_memory = "200MiB"\n')
        limited.process.send_signal(signal.SIGHUP)
        until(lambda: "configuration read again" in limited.log.read_text(), what="the other file")

        assert set_memory(rpc, "job", 101 * MIB) == 101 * MIB


def test_everybody_hears_what_he_may_have(limited):
    def allowance():
        with limited.rpc() as rpc:
            return rpc.call(rpc.daemon_service.GetStatus, pb.GetStatusRequest()).allowance

    root = allowance()
    os.seteuid(NOBODY)
    try:
        nobody = allowance()
    finally:
        os.seteuid(0)

    assert (nobody.max_class, nobody.max_class_key) == (
        pb.CLASS_NORMAL,
        "limits.default.max_class",
    )
    assert (nobody.max_memory_bytes, nobody.max_memory_percent) == (100 * MIB, 0)
    assert nobody.max_memory_key == "limits.default.max_memory"
    assert root == pb.Allowance(max_class=pb.CLASS_LATENCY)


def test_root_has_none(limited):
    with limited.rpc() as rpc:
        launcher = limited.connect()
        launcher.socket.send(register(memory=300 * MIB, name="job"))
        launcher.receive()

        assert job(rpc, "job").spec.memory_quota_bytes == 300 * MIB
