"""The two trainers: iterations of a few hundred launches that fill the GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from tandem.demo.gpu import Gpu, Handle
from tandem.demo.settings import TRAINER_LAYERS, VISION_ACCUMULATE, Settings
from tandem.demo.words import Input, Total, Words


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """One finished iteration; times on the device's clock, from the start of the run."""

    begin_ns: int
    end_ns: int
    correct: bool


class Model(Protocol):
    """What a training loop needs of a model."""

    weights: Words
    stream: Handle

    def enqueue(self, number: int) -> None:
        """Submit iteration `number`, without waiting for it."""


class Vision:
    """Micro-batches in sequence on one stream; the next batch is loaded on a second stream."""

    def __init__(self, gpu: Gpu, blocks: int) -> None:
        self._gpu = gpu
        self.stream = gpu.stream()
        self._loader = gpu.stream()
        self._loaded = gpu.event()
        self._input = Input(gpu)
        self._activations = Words(gpu, blocks)
        self.weights = Words(gpu, blocks)

    def enqueue(self, number: int) -> None:
        """Submit forward, backward and update."""
        self._input.upload(number, self._loader)
        self._gpu.record(self._loaded, self._loader)
        self._gpu.wait(self.stream, self._loaded)
        for micro in range(VISION_ACCUMULATE):
            self._activations.spread(self._input, self.stream)
            for layer in range(TRAINER_LAYERS):
                self._activations.affine(2 * layer + 3, micro + layer, self.stream)
            for layer in range(TRAINER_LAYERS):
                self._activations.affine(2 * layer + 5, number + layer, self.stream)
            self.weights.mix(self._activations, 2 * micro + 3, self.stream)


class Language:
    """Two halves of a batch in parallel on two streams, joined by events for the update."""

    def __init__(self, gpu: Gpu, blocks: int) -> None:
        self._gpu = gpu
        self.stream = gpu.stream()
        self._side = gpu.stream()
        self._fork, self._join = gpu.event(), gpu.event()
        self._input = Input(gpu)
        self._halves = (Words(gpu, blocks), Words(gpu, blocks))
        self.weights = Words(gpu, blocks)

    def enqueue(self, number: int) -> None:
        """Submit both halves, then the update that needs them."""
        self._input.upload(number, self.stream)
        self._gpu.record(self._fork, self.stream)
        self._gpu.wait(self._side, self._fork)
        streams = (self.stream, self._side)
        for half, stream in zip(self._halves, streams, strict=True):
            half.spread(self._input, stream)
        for layer in range(2 * TRAINER_LAYERS):
            for index, (half, stream) in enumerate(zip(self._halves, streams, strict=True)):
                half.affine(2 * layer + 2 * index + 3, number + layer, stream)
        self._gpu.record(self._join, self._side)
        self._gpu.wait(self.stream, self._join)
        for half in self._halves:
            self.weights.mix(half, 5, self.stream)


class Trainer:
    """Runs a model's iterations and checks the weights after each."""

    def __init__(self, gpu: Gpu, model: Model, blocks: int) -> None:
        self._gpu = gpu
        self._model = model
        self._total = Total(gpu, blocks)

    def iterate(self, number: int) -> bool:
        """Run one iteration; return whether the weights are what the CPU computes."""
        model = self._model
        model.enqueue(number)
        self._total.start(model.weights, model.stream)
        self._gpu.synchronize(model.stream)
        return self._total.value() == model.weights.expected

    def train(self, settings: Settings, start_ns: int) -> Iterator[Iteration]:
        """Iterate until the time is over; the last iteration is completed."""
        clock = self._gpu.clock
        clock.wait_until_ns(start_ns)
        begin_ns = clock.now_ns() - start_ns
        number = 1
        while begin_ns < settings.seconds * 1e9:
            number += 1
            correct = self.iterate(number)
            end_ns = clock.now_ns() - start_ns
            yield Iteration(begin_ns=begin_ns, end_ns=end_ns, correct=correct)
            begin_ns = end_ns


def make_trainer(gpu: Gpu, role: str, blocks: int) -> Trainer:
    """Make the trainer of a role in settings.TRAINERS."""
    models: dict[str, Callable[[Gpu, int], Model]] = {"vision": Vision, "language": Language}
    model = models[role](gpu, blocks)
    return Trainer(gpu, model, blocks)
