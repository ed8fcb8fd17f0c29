"""Submissions of made-up programs, with the marks that their own loops would set.

A program yields what one thread does: ("launch", function), ("to_device",), ("to_host",),
("sync",), ("memset",) and ("step",). A step stands where the loop's body ends; it is a label, never
part of what a detector sees.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

Operation = tuple[str, ...]
Program = Iterator[Operation]


def _layers(names: str, count: int, prefix: str) -> Program:
    for _ in range(count):
        for name in names.split():
            yield "launch", f"{prefix}.{name}"


def _set_up(parameters: int = 40) -> Program:
    """What every program does before its loop."""
    for _ in range(parameters):
        yield ("to_device",)
        yield "launch", "init.normal"
    yield ("sync",)


def _forward(layers: int, prefix: str = "") -> Program:
    yield "launch", f"{prefix}embed"
    yield from _layers("norm gemm softmax gemm add norm gemm gelu gemm add", layers, f"{prefix}f")
    yield "launch", f"{prefix}loss"


def _backward(layers: int, prefix: str = "") -> Program:
    yield "launch", f"{prefix}loss.grad"
    yield from _layers("add gemm gemm gelu gemm gemm norm add gemm gemm", layers, f"{prefix}b")


def _update(tensors: int, prefix: str = "") -> Program:
    for _ in range(tensors):
        yield "launch", f"{prefix}adam"


def train(iterations: int = 60, layers: int = 24) -> Program:
    """A transformer: every iteration brings a batch and asks for the loss at its end."""
    yield from _set_up()
    for _ in range(iterations):
        yield ("to_device",)
        yield from _forward(layers)
        yield from _backward(layers)
        yield from _update(12)
        yield ("sync",)
        yield ("step",)


def train_asynchronously(iterations: int = 100, layers: int = 12) -> Program:
    """The host waits for nothing but every twentieth loss."""
    yield from _set_up()
    for number in range(1, iterations + 1):
        yield ("to_device",)
        yield from _forward(layers)
        yield from _backward(layers)
        yield from _update(12)
        if number % 20 == 0:
            yield ("to_host",)
        yield ("step",)


def train_with_logging(iterations: int = 100) -> Program:
    """Statistics every tenth iteration, from the middle of it and at its end."""
    yield from _set_up()
    for number in range(1, iterations + 1):
        yield ("to_device",)
        yield from _forward(8)
        if number % 10 == 0:
            yield from (("launch", "stat.mean"), ("launch", "stat.std"), ("to_host",))
        yield from _backward(8)
        yield from _update(6)
        yield ("sync",)
        if number % 10 == 0:
            yield from (("launch", "stat.norm"), ("to_host",), ("to_host",))
        yield ("step",)


def train_with_evaluation(iterations: int = 120) -> Program:
    """Ten forward passes every thirty iterations."""
    yield from _set_up()
    for number in range(1, iterations + 1):
        yield ("to_device",)
        yield from _forward(8)
        yield from _backward(8)
        yield from _update(6)
        yield ("sync",)
        yield ("step",)
        if number % 30 == 0:
            for _ in range(10):
                yield ("to_device",)
                yield from _forward(8, "eval.")
                yield ("sync",)


def accumulate(iterations: int = 120, micro_batches: int = 4) -> Program:
    """Several passes before one update, each with a batch of its own."""
    yield from _set_up()
    for _ in range(iterations):
        for _ in range(micro_batches):
            yield ("to_device",)
            yield from _forward(6)
            yield from _backward(6)
        yield from _update(20)
        yield ("sync",)
        yield ("step",)


def change_shapes(iterations: int = 200, seed: int = 1) -> Program:
    """The library picks other kernels of its own for every batch's length."""
    chance = random.Random(seed)
    yield from _set_up()
    for _ in range(iterations):
        variant = chance.choice(("128x64", "128x128", "256x64", "64x64", "splitk"))
        yield ("to_device",)
        for kind, *names in (*_forward(8), *_backward(8)):
            swapped = [f"{n}.{variant}" if n.endswith("gemm") else n for n in names]
            yield kind, *swapped
        yield from _update(16)
        yield ("sync",)
        yield ("step",)


def alternate(iterations: int = 60) -> Program:
    """Two models in turn, as in adversarial training: both together are one iteration."""
    yield from _set_up()
    for _ in range(iterations):
        for model in ("critic.", "maker."):
            yield ("to_device",)
            yield from _forward(5, model)
            yield from _backward(5, model)
            yield from _update(4, model)
            yield ("sync",)
        yield ("step",)


def decode(tokens: int = 200, layers: int = 32) -> Program:
    """A language model writes: every token is asked for before the next is begun."""
    yield from _set_up()
    yield ("to_device",)
    yield from _forward(layers, "prefill.")
    yield ("to_host",)
    for _ in range(tokens):
        yield "launch", "embed"
        yield from _layers("norm gemv rope attend gemv add norm gemv silu gemv add", layers, "d")
        yield from (("launch", "head"), ("launch", "argmax"), ("to_host",))
        yield ("step",)


def few_kernels(iterations: int = 200) -> Program:
    """A loop of three launches and a wait."""
    for _ in range(iterations):
        yield from (("launch", "a"), ("launch", "b"), ("launch", "c"), ("sync",))
        yield ("step",)


def replay_graphs(iterations: int = 100) -> Program:
    """A batch in, one graph, the result out."""
    yield from _set_up()
    for _ in range(iterations):
        yield from (("to_device",), ("launch", "graph"), ("to_host",))
        yield ("step",)


def train_then_decode() -> Program:
    """Another loop after the first: the first is lost, the second found."""
    yield from train(iterations=30, layers=6)
    yield from decode(tokens=400, layers=6)


def wander(operations: int = 20_000, functions: int = 30, seed: int = 2) -> Program:
    """Nothing repeats: any function may be next, and the host waits now and then."""
    chance = random.Random(seed)
    for _ in range(operations):
        draw = chance.random()
        if draw < 0.01:
            yield ("sync",)
        elif draw < 0.02:
            yield ("to_device",)
        else:
            yield "launch", f"k{chance.randrange(functions)}"


def explore(cells: int = 300, seed: int = 3) -> Program:
    """A notebook: pieces of work of a few kinds, in no order and of any length."""
    chance = random.Random(seed)
    for _ in range(cells):
        prefix = chance.choice(("a.", "b.", "c.", "d.", "e."))
        yield ("to_device",)
        yield from _forward(chance.randrange(1, 12), prefix)
        for _ in range(chance.randrange(30)):
            yield "launch", f"{prefix}{chance.randrange(12)}"
        yield ("sync",)


PERIODIC = {
    "train": train,
    "train_asynchronously": train_asynchronously,
    "train_with_logging": train_with_logging,
    "train_with_evaluation": train_with_evaluation,
    "accumulate": accumulate,
    "change_shapes": change_shapes,
    "alternate": alternate,
    "decode": decode,
    "few_kernels": few_kernels,
    "replay_graphs": replay_graphs,
    "train_then_decode": train_then_decode,
}
APERIODIC = {"wander": wander, "explore": explore}
