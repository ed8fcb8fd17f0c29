"""Loops that train. Operations and labels: parts.py."""

import random

from iterations.parts import Program, backward, forward, repeat, set_up, update
from iterations.serving import decode


def train(iterations: int = 60, layers: int = 24) -> Program:
    """A transformer: every iteration brings a batch and asks for the loss at its end."""
    yield from set_up()
    for _ in range(iterations):
        yield ("to_device",)
        yield from forward(layers)
        yield from backward(layers)
        yield from update(12)
        yield ("sync",)
        yield ("step",)


def train_asynchronously(iterations: int = 100, layers: int = 12) -> Program:
    """The host waits for nothing but every twentieth loss."""
    yield from set_up()
    for number in range(1, iterations + 1):
        yield ("to_device",)
        yield from forward(layers)
        yield from backward(layers)
        yield from update(12)
        if number % 20 == 0:
            yield ("to_host",)
        yield ("step",)


def train_with_logging(iterations: int = 100) -> Program:
    """Statistics every tenth iteration, from the middle of it and at its end."""
    yield from set_up()
    for number in range(1, iterations + 1):
        yield ("to_device",)
        yield from forward(8)
        if number % 10 == 0:
            yield from (("launch", "stat.mean"), ("launch", "stat.std"), ("to_host",))
        yield from backward(8)
        yield from update(6)
        yield ("sync",)
        if number % 10 == 0:
            yield from (("launch", "stat.norm"), ("to_host",), ("to_host",))
        yield ("step",)


def train_with_evaluation(iterations: int = 120) -> Program:
    """Ten forward passes every thirty iterations."""
    yield from set_up()
    for number in range(1, iterations + 1):
        yield ("to_device",)
        yield from forward(8)
        yield from backward(8)
        yield from update(6)
        yield ("sync",)
        yield ("step",)
        if number % 30 == 0:
            for _ in range(10):
                yield ("to_device",)
                yield from forward(8, "eval.")
                yield ("sync",)


def accumulate(iterations: int = 120, micro_batches: int = 4) -> Program:
    """Several passes before one update, each with a batch of its own."""
    yield from set_up()
    for _ in range(iterations):
        for _ in range(micro_batches):
            yield ("to_device",)
            yield from forward(6)
            yield from backward(6)
        yield from update(20)
        yield ("sync",)
        yield ("step",)


def change_shapes(iterations: int = 200, seed: int = 1) -> Program:
    """The library picks other kernels of its own for every batch's length."""
    chance = random.Random(seed)
    yield from set_up()
    for _ in range(iterations):
        variant = chance.choice(("128x64", "128x128", "256x64", "64x64", "splitk"))
        yield ("to_device",)
        for kind, *names in (*forward(8), *backward(8)):
            swapped = [f"{n}.{variant}" if n.endswith("gemm") else n for n in names]
            yield kind, *swapped
        yield from update(16)
        yield ("sync",)
        yield ("step",)


def alternate(iterations: int = 60) -> Program:
    """Two models in turn, as in adversarial training: both together are one iteration."""
    yield from set_up()
    for _ in range(iterations):
        for model in ("critic.", "maker."):
            yield ("to_device",)
            yield from forward(5, model)
            yield from backward(5, model)
            yield from update(4, model)
            yield ("sync",)
        yield ("step",)


def train_then_decode() -> Program:
    """Another loop after the first: the first is lost, the second found."""
    yield from train(iterations=30, layers=6)
    yield from decode(tokens=400, layers=6)


def train_on_graphs(iterations: int = 80) -> Program:
    """Forward and backward are one captured graph each; the update is not captured."""
    yield from set_up()
    for _ in range(iterations):
        yield ("to_device",)
        yield "graph", "forward"
        yield "graph", "backward"
        yield from update(6)
        yield ("sync",)
        yield ("step",)


def prefetch(iterations: int = 80, layers: int = 8) -> Program:
    """The next batch is copied on another stream in the middle of the backward pass."""
    yield from set_up()
    yield ("to_device",)
    for _ in range(iterations):
        yield from forward(layers)
        yield from backward(layers // 2)
        yield ("to_device",)
        yield from backward(layers - layers // 2)
        yield from update(8)
        yield ("sync",)
        yield ("step",)


def train_beside_a_loader(iterations: int = 100, layers: int = 12) -> Program:
    """A thread of its own copies the batches: this one only computes, and asks for the loss."""
    yield from set_up()
    for _ in range(iterations):
        yield from forward(layers)
        yield from backward(layers)
        yield from update(12)
        yield ("to_host",)
        yield ("step",)


def recompute(iterations: int = 60, layers: int = 12) -> Program:
    """Gradient checkpointing: every layer is computed again before its gradient."""
    yield from set_up()
    for _ in range(iterations):
        yield ("to_device",)
        yield from forward(layers)
        for _ in range(layers):
            yield from repeat("norm gemm softmax gemm add norm gemm gelu gemm add", 1, "f")
            yield from backward(1)
        yield from update(12)
        yield ("sync",)
        yield ("step",)


def warm_up(iterations: int = 100, seed: int = 5) -> Program:
    """The learning rate grows at first, and an update whose gradients overflow is left out."""
    chance = random.Random(seed)
    yield from set_up()
    for number in range(iterations):
        yield ("to_device",)
        yield from forward(8)
        yield from backward(8)
        yield from repeat("unscale", 4, "scaler")
        yield ("to_host",)
        if number < 20:
            yield "launch", "rate.grow"
        if chance.random() > 0.1:
            yield from update(24)
        yield "launch", "scaler.update"
        yield ("step",)


def save_now_and_then(iterations: int = 100) -> Program:
    """Every twenty-fifth iteration all parameters are copied to the host."""
    yield from set_up()
    for number in range(1, iterations + 1):
        yield ("to_device",)
        yield from forward(8)
        yield from backward(8)
        yield from update(8)
        yield ("sync",)
        if number % 25 == 0:
            yield from (("to_host",) for _ in range(60))
        yield ("step",)


def critics(iterations: int = 150, steps: int = 5) -> Program:
    """Adversarial training with several steps of the critic for one of the maker."""
    yield from set_up()
    for _ in range(iterations):
        for model in (*["critic."] * steps, "maker."):
            yield ("to_device",)
            yield from forward(4, model)
            yield from backward(4, model)
            yield from update(4, model)
        yield ("sync",)
        yield ("step",)


def critics_that_report(iterations: int = 60, steps: int = 5) -> Program:
    """The same, but every step of the critic is waited for: each is an iteration of its own."""
    yield from set_up()
    for _ in range(iterations):
        for model in (*["critic."] * steps, "maker."):
            yield ("to_device",)
            yield from forward(4, model)
            yield from backward(4, model)
            yield from update(4, model)
            yield ("sync",)
            yield ("step",)


def roll_out_and_learn(rounds: int = 12, tokens: int = 64, updates: int = 16) -> Program:
    """Reinforcement learning: answers are written token by token, then learned from in batches.

    Each token and each update is an iteration: of loops in a loop, those in which the host waits.
    """
    yield from set_up()
    for _ in range(rounds):
        yield ("to_device",)
        for _ in range(tokens):
            yield from repeat("norm gemv rope attend gemv add norm gemv silu gemv add", 6, "d")
            yield from (("launch", "sample"), ("to_host",), ("step",))
        for _ in range(updates):
            yield ("to_device",)
            yield from forward(6, "policy.")
            yield from backward(6, "policy.")
            yield from update(6, "policy.")
            yield from (("sync",), ("step",))
