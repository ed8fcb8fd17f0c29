import os

import pytest
from open_files import open_files

from tandemd.edges.outbox import MOST, Outbox, Outboxes


class Reader:
    """A process with room for `room` packets."""

    def __init__(self):
        self.room, self.got, self.tried = 0, [], 0

    def take(self, packet, fds):
        self.tried += 1
        if self.room == 0:
            return False
        self.room -= 1
        self.got.append((packet, [os.fstat(fd).st_ino for fd in fds]))
        return True


@pytest.fixture
def reader():
    return Reader()


@pytest.fixture
def outbox(reader):
    outbox = Outbox(reader.take)
    yield outbox
    outbox.close()


def test_what_waits_is_sent_once_in_order_and_equal_packets_once(outbox, reader):
    page = os.memfd_create("page")
    inode, before = os.fstat(page).st_ino, open_files()
    outbox.put(b"look", ())
    outbox.put(b"pool", (page,))
    outbox.put(b"look", ())
    assert not outbox.offer(b"presence", ())
    os.close(page)  # the waiting packet has a descriptor of its own
    assert reader.tried == 1  # not again before the process has read

    reader.room = 1
    assert not outbox.go_on()
    assert reader.got == [(b"pool", [inode])]
    reader.room = 5
    assert outbox.go_on()

    assert reader.got == [(b"pool", [inode]), (b"look", [])]
    assert outbox.offer(b"presence", ())
    assert open_files() == before - 1


def test_too_much_is_the_end_of_a_connection_and_nothing_is_left_of_it(reader):
    hung_up, boxes = [], Outboxes()
    boxes.open(1, send=reader.take, hang_up=lambda: hung_up.append(1))
    page = os.memfd_create("page")
    before = open_files()
    for _ in range(MOST):
        boxes.send(1, b"pool", (page,))
    assert (hung_up, open_files()) == ([], before + MOST)

    boxes.send(1, b"pool", (page,))
    assert (hung_up, open_files()) == ([1], before + MOST)
    boxes.close(1)
    boxes.send(1, b"pool", (page,))  # nobody is connected any more

    assert open_files() == before
    os.close(page)
