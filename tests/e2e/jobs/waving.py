"""Two copies of a training loop in one process, each with its own thread and stream."""

import contextlib
import threading

from cuda.bindings import driver as cu
from gpu import ok, outside
from waiting import NON_BLOCKING

from tandem import waves

BLOCKS, THREADS, KERNELS = 32, 256, 5  # of a phase: on half of the SMs


class _Turns(waves._Turns):
    """Lets virtual time pass while a thread waits for its turn."""

    def enter(self, wave):
        with outside():
            return super().enter(wave)


class Ungated:
    """A wave that waits for nobody."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def forward(self, _):
        return contextlib.nullcontext()

    backward = forward


def loop(gpu, wave, iterations, both, *, fails_at=None):
    """Run forward and backward passes, each on the sum that the one before has left."""
    ok(cu.cuCtxSetCurrent(gpu.context))
    stream, word = ok(cu.cuStreamCreate(NON_BLOCKING)), ok(cu.cuMemAlloc(4))
    both.wait()  # virtual time stands here; it would pass for a thread not yet on its clock
    how = {"grid": BLOCKS, "block": THREADS, "stream": stream}
    with wave:
        for number in range(iterations):
            for phase in ("forward", "backward"):
                with getattr(wave, phase)(stream):
                    if number == fails_at:
                        return
                    for _ in range(KERNELS):
                        ok(gpu.launch(phase, (word,), (None,), **how))
            ok(cu.cuStreamSynchronize(stream))


def train(gpu, iterations, *, gated, fails_at=None):
    """Run both loops to their end; with `fails_at`, the second leaves in that iteration."""
    waves._Turns = _Turns
    two = waves.Waves(2) if gated else [Ungated(), Ungated()]
    both = threading.Barrier(2)
    threads = [
        threading.Thread(target=loop, args=(gpu, two[0], iterations, both)),
        threading.Thread(
            target=loop, args=(gpu, two[1], iterations, both), kwargs={"fails_at": fails_at}
        ),
    ]
    for thread in threads:
        thread.start()
    with outside():
        for thread in threads:
            thread.join()
