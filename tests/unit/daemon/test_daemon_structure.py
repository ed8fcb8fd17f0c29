"""What is said of recorded iterations, and when they are recorded."""

import struct

from tandemd.core.model import Usage
from tandemd.observers.structure import ANEW_NS, Structures, describe

RECORD = struct.Struct("<QBBHIQQQIIQQ")
LAUNCH, SYNC, WAIT, OF_STREAM, GATE = 1, 6, 14, 1, 1
MS = 1_000_000


class Window:
    """Stands for `_native.Window`: two kernels of 4 ms, the first submitted at 0, and a sync."""

    begin_ns, end_ns = 0, 10 * MS
    first_iteration, lost, is_cut = 3, 0, False

    def __init__(self, *, iterations=1, second_at_ms=1):
        self.iterations = iterations
        end_ms = max(second_at_ms, 4) + 4
        self.records = b"".join(
            (
                record(0, LAUNCH, ns=4 * MS),
                record(second_at_ms * MS, LAUNCH, ns=4 * MS),
                record(end_ms * MS, SYNC, low=OF_STREAM, ns=(end_ms - second_at_ms) * MS),
            )
        )


class Poller:
    def __init__(self):
        self.wanted = []

    def want_window(self, *, process_id):
        self.wanted.append(process_id)

    def window(self, *, process_id):
        return Window() if process_id == 1 else None


def record(at_ns, kind, *, low=0, ns=0):
    context = 0 if kind == WAIT else 1 << 32
    return RECORD.pack(at_ns, kind, 1, 0, 5, 0x1000, 0xA, 0, 8, 32, ns, context | low)


def test_windows_are_taken_of_what_has_iterations_and_not_too_often():
    poller = Poller()
    structures = Structures(poller)
    iterating, other = Usage(process_id=1, iteration_ns=10 * MS), Usage(process_id=2)

    structures.look([iterating, other], now_ns=0)
    structures.look([iterating], now_ns=ANEW_NS - 1)
    assert poller.wanted == [1]
    structures.look([iterating], now_ns=ANEW_NS)

    assert poller.wanted == [1, 1]


def test_an_iteration_that_hangs_on_the_gpu_says_so():
    (line,) = Structures(Poller()).lines([1, 2], now_ns=1_010 * MS)

    assert "recorded 1.0 s ago: 2 operations on the gpu" in line
    assert "its 8.0 ms depend on the gpu for 100%" in line
    assert "the gpu alone would need 8.0 ms" in line


def test_an_iteration_that_waits_for_its_host_says_so():
    (line,) = describe(Window(second_at_ms=6), now_ns=10 * MS)  # it idles from 4 to 6 ms

    assert "its 10.0 ms depend on the gpu for 40% and on the host for 60%" in line
    assert "the gpu alone would need 8.0 ms" in line


def test_an_iteration_that_was_held_back_does_not_blame_its_host():
    window = Window(second_at_ms=6)  # for 4 of these its first kernel runs
    window.records += record(6 * MS, WAIT, low=GATE, ns=5 * MS)

    (line,) = describe(window, now_ns=10 * MS)

    assert "it was held for 2.0 ms of its 10.0 ms" in line
    assert "the other 8.0 ms depend on the gpu for 88% and on the host for 12%" in line


def test_what_is_not_known_is_told():
    window = Window()
    window.lost = 7

    assert "7 lost records" in describe(window, now_ns=10 * MS)[1]


def test_nothing_is_said_of_a_window_without_iterations():
    assert describe(Window(iterations=0), now_ns=10 * MS) == []
