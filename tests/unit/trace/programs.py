"""Recordings of whole programs, for drawing and counting."""

from recordings import Thread

ONE, TWO, FORK, JOIN, VADD, MUL = 0x55, 0x66, 1, 2, 0xF0, 0xF1
NON_BLOCKING = 32


class Program(Thread):
    """Numbers its calls."""

    def __init__(self, *, first=1, **where):
        super().__init__(**where)
        self.next = first

    def on(self, name, *words, stream=None, flags=NON_BLOCKING, **other):
        where = {} if stream is None else {"stream": stream, "flags": flags}
        self.call(name, *words, number=self.next, **where, **other)
        self.next += 1
        return self

    def run(self, stream, **other):
        self.launch(number=self.next, stream=stream, **other)
        self.next += 1
        return self


def diamond():
    """One kernel, then two in parallel, then one after both."""
    thread = Thread().function().function(MUL, b'mul "<b>"')
    thread.launch(number=1, stream=ONE, device_ns=1000)
    thread.call("cuEventRecord", FORK, ONE, number=2, stream=ONE, flags=32)
    thread.call("cuStreamWaitEvent", TWO, FORK, 0, number=3, stream=TWO, flags=32)
    thread.launch(number=4, stream=ONE, device_ns=1000)
    thread.launch(number=5, stream=TWO, device_ns=3000, function=MUL)
    thread.call("cuEventRecord", JOIN, TWO, number=6, stream=TWO, flags=32)
    thread.call("cuStreamWaitEvent", ONE, JOIN, 0, number=7, stream=ONE, flags=32)
    return thread.launch(number=8, stream=ONE, device_ns=1000)


def loop(iterations, launches=20, *, before=0):
    """Copies a batch, launches and waits, `iterations` times; may launch and wait once before."""
    thread, number = Thread(), 1
    for handle in range(launches):
        thread.function(VADD + handle, b"k%d" % handle)
    for _ in range(before):
        thread.launch(number=number, stream=ONE, function=VADD)
        number += 1
    if before:
        thread.call("cuStreamSynchronize", ONE, number=number, stream=ONE, flags=32)
        number += 1
    for _ in range(iterations):
        copy = (0x7F00, 9, 64, ONE)
        thread.call("cuMemcpyHtoDAsync_v2", *copy, number=number, stream=ONE, flags=32)
        for handle in range(launches):
            thread.launch(number=number + 1 + handle, stream=ONE, function=VADD + handle)
        number += launches + 1
        thread.call("cuStreamSynchronize", ONE, number=number, stream=ONE, flags=32)
        number += 1
    return thread
