"""Processes that write arbitrary bytes into the pages they share with the daemon."""

import random
import struct

import pytest
from fake_shim import BATCH, LATENCY, MAPPED, SLOTS_OFFSET, STATE_HEADER_BYTES, packet
from running_daemon import until

from tandem._wire import tandem_pb2 as pb

ROUNDS = 40
MOST = 2**63 - 1


def ones(_, size):
    return b"\xff" * size


def noise(generator, size):
    return generator.randbytes(size)


def live_slots_that_never_end(_, size):
    slot = struct.pack("=QQQIIQQQQ", 2**64 - 1, 0, 7, 1, 1, 2**63, 2**64 - 1, 2**64 - 1, 2**64 - 1)
    return (b"\xff" * (SLOTS_OFFSET - STATE_HEADER_BYTES) + slot * 256).ljust(size, b"\xff")


def deface(shim, fill, generator):
    """Overwrite everything after the header that the daemon wrote, and sometimes that too."""
    start = generator.choice([0, STATE_HEADER_BYTES])
    shim.state[start:] = fill(generator, len(shim.state))[start:]
    shim.presence[:] = fill(generator, len(shim.presence))[: len(shim.presence)]


@pytest.mark.parametrize(
    ("policy", "fill"),
    [
        ("priority", ones),
        ("fifo", noise),
        ("fifo", live_slots_that_never_end),
        ("fair", live_slots_that_never_end),
    ],
)
def test_garbage_in_the_pages_of_one_leaves_the_others_their_turns(daemon, fill, policy):
    generator = random.Random(7)
    config = daemon.base / "config.toml"
    config.write_text("[scheduler]\ndrain_ms = 10\nmax_hold_s = 0.5\n")
    daemon.start("--policy", policy, "--config", str(config))
    hostile = daemon.shim(job_class=BATCH, name="hostile")
    honest = daemon.shim(job_class=BATCH, name="honest")

    with daemon.rpc() as rpc:
        for _ in range(ROUNDS):
            deface(hostile, fill, generator)
            jobs = {job.display_name: job for job in rpc.jobs()}
            assert set(jobs) == {"hostile", "honest"}
            assert jobs["honest"].status.gpu_time.ToNanoseconds() == 0
        honest.work(busy=False, waiting=True)
        until(lambda: not honest.is_held, what="the honest one has its turn")
        hostile.close()
        until(lambda: len(rpc.jobs()) == 1, what="the hostile one is forgotten")
    assert daemon.process.poll() is None
    assert "level=error" not in daemon.log.read_text()


def test_processes_of_a_job_whose_claims_overflow_together_end_nothing(daemon):
    hostile = daemon.start().shim(name="hostile")
    all_three = (hostile, *(daemon.shim(job_id=hostile.job_id) for _ in range(2)))
    honest = daemon.shim(name="honest")

    with daemon.rpc() as rpc:
        for shim in all_three:
            deface(shim, ones, random.Random(7))
        until(lambda: swapped_by(rpc, "hostile") == MOST, what="the claim is seen")
        until(lambda: MOST in swapped_since(rpc, "hostile"), what="and kept")
        honest.work(busy=False, waiting=True)
        until(lambda: not honest.is_held, what="the honest one has its turn")
    assert daemon.process.poll() is None
    assert "level=error" not in daemon.log.read_text()


def swapped_by(rpc, name):
    return next(job.status.swapped_bytes for job in rpc.jobs() if job.display_name == name)


def swapped_since(rpc, name):
    curves = rpc.call(rpc.gpu_service.GetMemoryHistory, pb.GetMemoryHistoryRequest()).curves
    return [each for curve in curves if curve.display_name == name for each in curve.swapped_bytes]


def test_a_latency_process_that_is_always_busy_does_not_hold_the_others_for_ever(daemon):
    hostile = daemon.start().shim(job_class=LATENCY)
    honest = daemon.shim(job_class=BATCH)
    until(lambda: honest.presence_mask == 1, what="the presence is shown")

    hostile.presence[:] = b"\xff" * len(hostile.presence)
    hostile.state[STATE_HEADER_BYTES:] = b"\xff" * (len(hostile.state) - STATE_HEADER_BYTES)
    honest.work(busy=False, waiting=True)

    until(lambda: not honest.honours_presence, what="it is told to go on nevertheless")


def test_mapped_said_twice_is_no_harm(daemon):
    shim = daemon.start().shim()

    for _ in range(50):
        shim.socket.send(packet(MAPPED))

    with daemon.rpc() as rpc:
        assert len(rpc.jobs()) == 1
    assert not shim.is_held
    assert "level=error" not in daemon.log.read_text()
