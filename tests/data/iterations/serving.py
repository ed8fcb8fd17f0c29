"""Loops that only infer. Operations and labels: parts.py."""

import random

from iterations.parts import Program, forward, repeat, set_up


def decode(tokens: int = 200, layers: int = 32) -> Program:
    """A language model writes: every token is asked for before the next is begun."""
    yield from set_up()
    yield ("to_device",)
    yield from forward(layers, "prefill.")
    yield ("to_host",)
    for _ in range(tokens):
        yield "launch", "embed"
        yield from repeat("norm gemv rope attend gemv add norm gemv silu gemv add", layers, "d")
        yield from (("launch", "head"), ("launch", "argmax"), ("to_host",))
        yield ("step",)


def few_kernels(iterations: int = 200) -> Program:
    """A loop of three launches and a wait."""
    for _ in range(iterations):
        yield from (("launch", "a"), ("launch", "b"), ("launch", "c"), ("sync",))
        yield ("step",)


def replay_graphs(iterations: int = 100) -> Program:
    """A batch in, one graph, the result out."""
    yield from set_up()
    for _ in range(iterations):
        yield from (("to_device",), ("launch", "graph"), ("to_host",))
        yield ("step",)


def decode_with_growing_cache(tokens: int = 400, layers: int = 24) -> Program:
    """Attention is split further as the cache grows, and the cache gets a block now and then."""
    yield from set_up()
    yield from forward(layers, "prefill.")
    yield ("to_host",)
    for token in range(tokens):
        if token % 16 == 0:
            yield ("memset",)
        yield "launch", "embed"
        attend = f"attend{1 + token // 64}"
        names = f"norm gemv rope {attend} reduce gemv add norm gemv silu gemv add"
        yield from repeat(names, layers, "d")
        yield from (("launch", "head"), ("launch", "argmax"), ("to_host",))
        yield ("step",)


def batch_continuously(steps: int = 400, layers: int = 16, seed: int = 6) -> Program:
    """Requests come and go: the batch changes, and with it the kernels; some steps prefill."""
    chance = random.Random(seed)
    yield from set_up()
    batch = 4
    for _ in range(steps):
        batch = min(32, max(1, batch + chance.choice((-1, 0, 0, 0, 1))))
        gemm = f"gemm{1 << batch.bit_length()}"
        yield ("to_device",)
        if chance.random() < 0.08:
            yield from repeat("norm gemm rope flash gemm add norm gemm silu gemm add", layers, "p")
        yield "launch", "embed"
        names = f"norm {gemm} rope paged {gemm} add norm {gemm} silu {gemm} add"
        yield from repeat(names, layers, "d")
        yield from repeat("head softmax topk sample", 1, "s")
        yield ("to_host",)
        yield ("step",)


def search_beams(sentences: int = 30, layers: int = 6, seed: int = 7) -> Program:
    """Beams are ranked and their caches put in order after each token; sentences vary in length."""
    chance = random.Random(seed)
    yield from set_up()
    for _ in range(sentences):
        yield ("to_device",)
        yield from forward(layers, "encoder.")
        for _ in range(chance.randrange(12, 40)):
            yield "launch", "embed"
            names = "norm gemm attend gemm add norm cross add norm gemm relu gemm"
            yield from repeat(names, layers, "d")
            yield from repeat("head logsoftmax topk", 1, "s")
            yield ("to_host",)
            yield from repeat("gather", 2 * layers, "cache")
            yield ("step",)


def speculate(steps: int = 200, layers: int = 16, seed: int = 8) -> Program:
    """A small model drafts four tokens, the large one checks them; what was wrong is undone."""
    chance = random.Random(seed)
    yield from set_up()
    for _ in range(steps):
        for _ in range(4):
            yield from repeat("norm gemv rope attend gemv add norm gemv silu gemv add", 3, "draft")
            yield "launch", "draft.argmax"
        yield from repeat("norm gemm rope attend gemm add norm gemm silu gemm add", layers, "check")
        yield "launch", "accept"
        yield ("to_host",)
        yield from (("launch", "cache.undo") for _ in range(chance.randrange(4)))
        yield ("step",)


def answer(requests: int = 150, layers: int = 12) -> Program:
    """One model, one request at a time: in, forward, out."""
    yield from set_up()
    for _ in range(requests):
        yield ("to_device",)
        yield from forward(layers)
        yield ("to_host",)
        yield ("step",)


def answer_for_two(requests: int = 300, seed: int = 9) -> Program:
    """Requests to two models in random order: each request is an iteration of its model."""
    chance = random.Random(seed)
    yield from set_up()
    for _ in range(requests):
        yield ("to_device",)
        yield from chance.choice((forward(12, "large."), forward(3, "small.")))
        yield ("to_host",)
        yield ("step",)


def denoise(pictures: int = 6, steps: int = 30) -> Program:
    """A picture takes many passes of one network; the sampler asks for a number after each."""
    yield from set_up()
    for _ in range(pictures):
        yield ("to_device",)
        yield from forward(4, "text.")
        for _ in range(steps):
            yield from repeat("norm conv silu norm conv add", 12, "down")
            yield from repeat("norm conv silu norm conv add up", 12, "up")
            yield from repeat("scale add", 2, "sampler")
            yield ("to_host",)
            yield ("step",)
        yield from forward(4, "decoder.")
        yield ("to_host",)
