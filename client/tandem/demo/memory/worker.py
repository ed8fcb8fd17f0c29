"""One job of the memory demo: `python -m tandem.demo.memory.worker ORDER`.

It speaks the JSON lines of tandem.demo.worker. A failing call ends it as it ends most programs:
with a traceback and exit code 1. After its result it waits for one more line, so that the daemon's
figures can be read while it is still a job.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cuda.bindings import driver

from tandem.demo.gpu import CHUNK_WORDS, WORD_BYTES, Gpu, check
from tandem.demo.lines import say
from tandem.demo.memory.model import Model
from tandem.demo.memory.settings import NOTEBOOKS, TRAINERS, Order
from tandem.demo.worker import agreed_start_ns, join

PROBE_WORDS = 1024 * CHUNK_WORDS  # 16 MiB
ROUNDS = 3


def main() -> None:
    """Carry out the order on the command line."""
    order = Order.from_json(sys.argv[1])
    say("up")
    sys.stdin.readline()
    gpu = Gpu(Path(order.image).read_bytes())
    if not order.iterations:
        _measure(gpu)
        return
    joined_ns = join(gpu, order.start_grid_ns)
    start_ns = agreed_start_ns(gpu, order.start_grid_ns, joined_ns)
    gpu.clock.wait_until_ns(start_ns + order.delay_ns)
    _work(gpu, order)


def _work(gpu: Gpu, order: Order) -> None:
    begin_ns = gpu.clock.now_ns()
    model = Model(gpu, order.share)
    correct = True
    for cell in range(order.cells):
        if cell:
            gpu.clock.wait_until_ns(gpu.clock.now_ns() + order.gap_ns)
        for number in range(order.iterations):
            correct &= model.iterate(cell * order.iterations + number)
    correct &= model.is_right()
    model.free()
    say("result", begin_ns=begin_ns, end_ns=gpu.clock.now_ns(), correct=correct)
    with gpu.clock.outside():
        sys.stdin.readline()


def _measure(gpu: Gpu) -> None:
    say(
        "result",
        name=gpu.name,
        memory_bytes=int(check(driver.cuDeviceTotalMem(gpu.device))),
        link_bytes_s=_link_bytes_s(gpu),
        iteration_ns=[_iteration_ns(gpu, kind.share) for kind in (TRAINERS, NOTEBOOKS)],
    )


def _iteration_ns(gpu: Gpu, share: float) -> int:
    """The length of an iteration of a model that has the device to itself."""
    model = Model(gpu, share)
    model.iterate(1)  # a function's first launch may load it
    begin_ns = gpu.clock.now_ns()
    for number in range(ROUNDS):
        model.iterate(2 + number)
    took_ns = gpu.clock.now_ns() - begin_ns
    model.free()
    return max(1, took_ns // ROUNDS)


def _link_bytes_s(gpu: Gpu) -> float:
    """The rate of copies between pinned host memory and the device, in the slower direction."""
    host, device = gpu.pinned(PROBE_WORDS), gpu.allocate(PROBE_WORDS)
    stream, start, end = gpu.stream(), gpu.event(timing=True), gpu.event(timing=True)
    rates = []
    for way in ("in", "out"):
        for _ in range(2):  # the first round may touch its pages for the first time
            gpu.record(start, stream)
            for _ in range(ROUNDS):
                if way == "in":
                    gpu.copy_in(device, host, stream)
                else:
                    gpu.copy_out(host, device, stream)
            gpu.record(end, stream)
            gpu.synchronize(stream)
        rates.append(ROUNDS * PROBE_WORDS * WORD_BYTES * 1e3 / gpu.elapsed_ms(start, end))
    gpu.free(device)
    return min(rates)


if __name__ == "__main__":
    main()
