"""Five networks as their papers describe them: how long a batch takes on so many SMs of a GPU.

A layer is one kernel. Its work is its multiply-adds, its bytes are weights and activations read and
written once, and each block computes TILE x TILE outputs, as implicit-GEMM kernels do. A kernel
takes as long as the waves of its blocks on the SMs or the transfer of its bytes at full bandwidth,
whichever is longer, as in the software GPU's model. All figures are peak figures, so only ratios
are meaningful.

Sources of the layers: LeCun et al. 1998 (LeNet-5, figure 2); Szegedy et al. 2015 (GoogLeNet, table
1); He et al. 2016 (ResNet-50, table 1); Howard et al. 2017 (MobileNet, table 1) with the extra
layers of Liu et al. 2016 (SSD300, figure 2); Simonyan and Zisserman 2015 (VGG-16, table 1, column
D).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

TILE = 64
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Card:
    """A GPU; by default that of gpu-let's measurements, the RTX 2080 Ti (NVIDIA, Turing paper)."""

    sms: int = 68
    flops: float = 13.45e12  # single precision
    bytes_s: float = 616e9


@dataclass(frozen=True)
class Layer:
    """A convolution; with `side` 1, a matrix-vector product. `depthwise`: channel by channel."""

    kernel: int
    inputs: int
    outputs: int
    side: int  # of the square output, in pixels
    depthwise: bool = False

    def duration_s(self, batch: int, sms: int, card: Card) -> float:
        """The time of a batch, alone on the card."""
        return max(self.compute_s(batch, sms, card), self.memory_s(batch, card))

    def compute_s(self, batch: int, sms: int, card: Card) -> float:
        """The time for its multiply-adds, in waves of blocks."""
        depth = self.kernel**2 * (1 if self.depthwise else self.inputs)
        block_s = 2 * TILE * TILE * depth / (card.flops / card.sms)
        pixels = batch * self.side**2
        blocks = ceil(pixels / TILE) * ceil(self.outputs / TILE)
        return ceil(blocks / sms) * block_s

    def memory_s(self, batch: int, card: Card) -> float:
        """The time to transfer its bytes."""
        weights = self.kernel**2 * self.outputs * (1 if self.depthwise else self.inputs)
        activations = batch * self.side**2 * (self.inputs + self.outputs)
        return FLOAT_BYTES * (weights + activations) / card.bytes_s


@dataclass(frozen=True)
class Network:
    """A model that answers batches, and its objective for the p99 (gpu-let, table 4)."""

    name: str
    slo_ms: float
    layers: tuple[Layer, ...]

    def solo_s(self, batch: int, sms: int, card: Card) -> float:
        """The time a batch takes alone on so many SMs."""
        return sum(layer.duration_s(batch, sms, card) for layer in self.layers)

    def memory_part(self, batch: int, sms: int, card: Card) -> float:
        """The share of that time spent in bandwidth-bound layers."""
        bound = (
            layer.memory_s(batch, card)
            for layer in self.layers
            if layer.memory_s(batch, card) >= layer.compute_s(batch, sms, card)
        )
        return sum(bound) / self.solo_s(batch, sms, card)

    def bandwidth_part(self, batch: int, sms: int, card: Card) -> float:
        """The share of the bandwidth it uses on average while it runs."""
        moved_s = sum(layer.memory_s(batch, card) for layer in self.layers)
        return moved_s / self.solo_s(batch, sms, card)


def _lenet() -> Iterator[Layer]:
    yield Layer(5, 1, 6, 28)
    yield Layer(5, 6, 16, 10)
    yield from (Layer(1, 400, 120, 1), Layer(1, 120, 84, 1), Layer(1, 84, 10, 1))


def _vgg16() -> Iterator[Layer]:
    inputs = 3
    for side, outputs, count in (
        (224, 64, 2),
        (112, 128, 2),
        (56, 256, 3),
        (28, 512, 3),
        (14, 512, 3),
    ):
        for _ in range(count):
            yield Layer(3, inputs, outputs, side)
            inputs = outputs
    yield from (Layer(1, 25088, 4096, 1), Layer(1, 4096, 4096, 1), Layer(1, 4096, 1000, 1))


def _resnet50() -> Iterator[Layer]:
    yield Layer(7, 3, 64, 112)
    inputs = 64
    for side, width, count in ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3)):
        for block in range(count):
            yield Layer(1, inputs, width, side)
            yield Layer(3, width, width, side)
            yield Layer(1, width, 4 * width, side)
            if not block:
                yield Layer(1, inputs, 4 * width, side)  # the shortcut
            inputs = 4 * width
    yield Layer(1, 2048, 1000, 1)


_INCEPTIONS = (  # side, inputs, 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection
    (28, 192, 64, 96, 128, 16, 32, 32),
    (28, 256, 128, 128, 192, 32, 96, 64),
    (14, 480, 192, 96, 208, 16, 48, 64),
    (14, 512, 160, 112, 224, 24, 64, 64),
    (14, 512, 128, 128, 256, 24, 64, 64),
    (14, 512, 112, 144, 288, 32, 64, 64),
    (14, 528, 256, 160, 320, 32, 128, 128),
    (7, 832, 256, 160, 320, 32, 128, 128),
    (7, 832, 384, 192, 384, 48, 128, 128),
)


def _googlenet() -> Iterator[Layer]:
    yield from (Layer(7, 3, 64, 112), Layer(1, 64, 64, 56), Layer(3, 64, 192, 56))
    for side, inputs, ones, reduce3, threes, reduce5, fives, pooled in _INCEPTIONS:
        yield Layer(1, inputs, ones, side)
        yield from (Layer(1, inputs, reduce3, side), Layer(3, reduce3, threes, side))
        yield from (Layer(1, inputs, reduce5, side), Layer(5, reduce5, fives, side))
        yield Layer(1, inputs, pooled, side)
    yield Layer(1, 1024, 1000, 1)


def _ssd_mobilenet() -> Iterator[Layer]:
    yield Layer(3, 3, 32, 150)
    inputs = 32
    sides = (150, 75, 75, 38, 38, 19, 19, 19, 19, 19, 19, 10, 10)
    widths = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
    for side, outputs in zip(sides, widths, strict=True):
        yield Layer(3, inputs, inputs, side, depthwise=True)
        yield Layer(1, inputs, outputs, side)
        inputs = outputs
    for side, narrow, outputs in ((5, 256, 512), (3, 128, 256), (2, 128, 256), (1, 64, 128)):
        yield Layer(1, inputs, narrow, side)
        yield Layer(3, narrow, outputs, side)
        inputs = outputs


NETWORKS = (
    Network("lenet", 5, tuple(_lenet())),
    Network("googlenet", 44, tuple(_googlenet())),
    Network("resnet50", 95, tuple(_resnet50())),
    Network("ssd-mobilenet", 136, tuple(_ssd_mobilenet())),
    Network("vgg16", 130, tuple(_vgg16())),
)
