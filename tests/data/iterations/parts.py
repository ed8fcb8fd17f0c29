"""What made-up programs are put together from.

A program yields what one thread does: ("launch", function), ("graph", name), ("to_device",),
("to_host",), ("sync",), ("memset",) and ("step",). A step stands where the loop's body ends; it is
a label, never part of what a detector sees.
"""

from collections.abc import Iterator

Operation = tuple[str, ...]
Program = Iterator[Operation]


def repeat(names: str, count: int, prefix: str) -> Program:
    for _ in range(count):
        for name in names.split():
            yield "launch", f"{prefix}.{name}"


def set_up(parameters: int = 40) -> Program:
    """What every program does before its loop."""
    for _ in range(parameters):
        yield ("to_device",)
        yield "launch", "init.normal"
    yield ("sync",)


def forward(layers: int, prefix: str = "") -> Program:
    yield "launch", f"{prefix}embed"
    yield from repeat("norm gemm softmax gemm add norm gemm gelu gemm add", layers, f"{prefix}f")
    yield "launch", f"{prefix}loss"


def backward(layers: int, prefix: str = "") -> Program:
    yield "launch", f"{prefix}loss.grad"
    yield from repeat("add gemm gemm gelu gemm gemm norm add gemm gemm", layers, f"{prefix}b")


def update(tensors: int, prefix: str = "") -> Program:
    for _ in range(tensors):
        yield "launch", f"{prefix}adam"
