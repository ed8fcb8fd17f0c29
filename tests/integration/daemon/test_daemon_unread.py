"""A process that does not read, for example because it is stopped, has not gone."""

import struct

from fake_shim import BATCH, LATENCY, PRESENCE, PRESENCE_GONE
from running_daemon import until

MANY = 200  # arrivals and departures: more packets than fit in a connection


def catch_up(shim, until_fact):
    """Read until the fact holds; return {index: fd of its page}, and the number of packets read."""
    pages, count = {}, 0
    while not until_fact(pages):
        kind, body, fds = shim.receive()
        (index,) = struct.unpack_from("=I", body)
        assert kind in (PRESENCE, PRESENCE_GONE)
        if kind == PRESENCE:
            assert index not in pages, "shown in place of another"
            pages[index] = fds[0]
        else:
            del pages[index]
        count += 1
    return pages, count


def test_who_does_not_read_stays_and_is_shown_the_newest_once_it_does(daemon):
    stopped = daemon.start().shim(name="stopped", job_class=BATCH)
    with daemon.rpc() as rpc:
        for _ in range(MANY):
            daemon.shim(job_class=LATENCY).close()
            daemon.shims.pop()
        until(lambda: len(rpc.jobs()) == 1, what="all others have gone")
        latency = [daemon.shim(job_class=LATENCY) for _ in range(3)]

        assert "stopped" in [job.display_name for job in rpc.jobs()]
    pages, count = catch_up(stopped, lambda pages: len(pages) == len(latency))

    assert count < 2 * MANY
    until(
        lambda: stopped.presence_mask == sum(1 << index for index in pages),
        what="it looks at those that exist",
    )
    latency[0].close()
    kind, _, _ = stopped.receive()
    assert kind == PRESENCE_GONE
    assert stopped.presence_mask.bit_count() == 2
    assert "hanging up" not in daemon.log.read_text()
