"""Programs of which nothing may be claimed. Operations: parts.py."""

import random

from iterations.parts import Program, forward, repeat


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
        yield from forward(chance.randrange(1, 12), prefix)
        for _ in range(chance.randrange(30)):
            yield "launch", f"{prefix}{chance.randrange(12)}"
        yield ("sync",)


def serve_a_mixture(requests: int = 200, seed: int = 4) -> Program:
    """Requests of random size to random models: a piece of work for each chunk of the input."""
    chance = random.Random(seed)
    for _ in range(requests):
        model = chance.choice(("a.", "b.", "c.", "d."))
        yield ("to_device",)
        for _ in range(chance.randrange(1, 40)):
            yield from repeat("norm gemm gelu gemm add", chance.randrange(2, 5), model)
        yield "launch", f"{model}head"
        yield ("to_host",)


def crawl(queries: int = 500, seed: int = 5) -> Program:
    """A data base on the GPU: every query is a plan of its own."""
    chance = random.Random(seed)
    operators = ["scan", "filter", "hash", "probe", "sort", "merge", "group", "sum"]
    for _ in range(queries):
        yield ("to_device",)
        for _ in range(chance.randrange(3, 30)):
            operator = chance.choice(operators)
            yield from repeat("count scatter", chance.randrange(1, 4), operator)
            if chance.random() < 0.2:
                yield ("to_host",)
        yield ("sync",)
