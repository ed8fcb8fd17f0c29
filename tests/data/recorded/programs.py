"""The programs that record.py records: `python programs.py ROLE DEMO_IMAGE OWN_IMAGE`.

Each marks its iterations by `tandem.step()`, and `transformer` its phases by `tandem.phase()`.
"""

from __future__ import annotations

import random
import sys
import threading
from ctypes import c_uint32, c_void_p
from pathlib import Path

from cuda.bindings import driver

import tandem
from tandem.demo.gpu import Gpu, Handle, check
from tandem.demo.trainer import make_trainer

WORDS = 1024
FORWARD = "norm gemm attend gemm add norm gemm gelu gemm add"
BACKWARD = "add gemm gemm gelu_backward gemm gemm norm_backward gemm gemm attend_backward gemm gemm"


class Network:
    """Launches kernels of kernels.cu one after the other on one stream."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.stream: Handle = gpu.stream()
        self._words = gpu.allocate(WORDS)
        self._host = gpu.pinned(WORDS)

    def run(self, names: str, blocks: int = 4) -> None:
        types = (c_void_p, c_void_p, c_uint32)
        for name in names.split():
            values = (self._words, self._words, WORDS)
            self.gpu.launch(name, blocks, self.stream, (values, types))

    def bring(self) -> None:
        self.gpu.copy_in(self._words, self._host, self.stream)

    def ask(self) -> None:
        self.gpu.copy_out(self._host, self._words, self.stream)
        self.gpu.synchronize(self.stream)

    def allocate(self, words: int) -> Handle:
        return check(driver.cuMemAllocAsync(4 * words, self.stream))

    def free(self, address: Handle) -> None:
        check(driver.cuMemFreeAsync(address, self.stream))


def demo(gpu: Gpu, role: str, *, iterations: int) -> None:
    """A trainer of `tandem demo`."""
    trainer = make_trainer(gpu, role, 1)
    for number in range(iterations):
        trainer.iterate(number)
        tandem.step()


def transformer(gpu: Gpu, *, iterations: int = 40, layers: int = 8) -> None:
    """Activations from the driver's own pool, and a log every seventh iteration."""
    network = Network(gpu)
    for number in range(iterations):
        network.bring()
        kept = []
        with tandem.phase("forward"):
            network.run("embed")
            for _ in range(layers):
                kept.append(network.allocate(1 << 16))
                network.run(FORWARD)
            network.run("head loss")
        with tandem.phase("backward"):
            network.run("loss_backward gemm gemm")
            while kept:
                network.run(BACKWARD)
                network.free(kept.pop())
        with tandem.phase("update"):
            network.run("adam " * 2 * layers)
        network.ask()
        if number % 7 == 6:
            network.run("norm")
            network.ask()
        tandem.step()


def decoder(gpu: Gpu, *, tokens: int = 150, layers: int = 6) -> None:
    """A growing cache; now and then another request's prompt comes in between."""
    network = Network(gpu)
    chance = random.Random(1)
    for token in range(tokens):
        if token % 16 == 0:
            network.gpu.allocate(1 << 14)
        if chance.random() < 0.08:
            network.bring()
            network.run("embed " + "norm gemm attend gemm add norm gemm gelu gemm " * layers, 16)
        network.run("embed")
        network.run("norm gemm attend gemm add norm gemm gelu gemm add " * layers, 1 + token // 16)
        network.run("head argmax")
        network.ask()
        tandem.step()


def loader(gpu: Gpu, *, iterations: int = 40, layers: int = 8) -> None:
    """A thread of its own copies batches, ahead by up to two."""
    network, batches = Network(gpu), Network(gpu)
    room, ready = threading.Semaphore(2), threading.Semaphore(0)
    context = check(driver.cuCtxGetCurrent())

    def load() -> None:
        check(driver.cuCtxSetCurrent(context))
        for _ in range(iterations):
            room.acquire()
            batches.bring()
            batches.run("norm")
            gpu.synchronize(batches.stream)
            ready.release()

    thread = threading.Thread(target=load)
    thread.start()
    for _ in range(iterations):
        ready.acquire()
        network.run("embed " + FORWARD + (" " + FORWARD) * (layers - 1) + " head loss")
        room.release()
        network.run("loss_backward gemm gemm " + (BACKWARD + " ") * layers)
        network.run("adam " * 2 * layers)
        network.ask()
        tandem.step()
    thread.join()


def wanderer(gpu: Gpu, *, pieces: int = 60) -> None:
    """Work of any kind and length: nothing repeats, and nothing is marked."""
    network = Network(gpu)
    chance = random.Random(2)
    names = [*dict.fromkeys((FORWARD + " " + BACKWARD).split()), "embed", "adam", "argmax"]
    for _ in range(pieces):
        network.bring()
        network.run(" ".join(chance.choice(names) for _ in range(chance.randrange(5, 200))))
        network.ask()


def main() -> None:
    """Run one of them."""
    role, demo_image, own_image = sys.argv[1:]
    if role in ("vision", "language"):
        demo(Gpu(Path(demo_image).read_bytes()), role, iterations=40)
        return
    roles = {one.__name__: one for one in (transformer, decoder, loader, wanderer)}
    roles[role](Gpu(Path(own_image).read_bytes()))


if __name__ == "__main__":
    main()
