"""The inference server: each request is a copy in, a chain of kernels, a sum and a copy out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tandem.demo.arrivals import poisson_ns
from tandem.demo.gpu import Gpu
from tandem.demo.settings import SEED, SERVER_LAYERS, Settings
from tandem.demo.words import Input, Total, Words


@dataclass(frozen=True, kw_only=True)
class Request:
    """The times and result of one request, on the device's clock from the start of the run."""

    arrival_ns: int
    begin_ns: int  # the server began with it
    end_ns: int  # its result was on the host
    correct: bool


class Server:
    """One model on one stream, which handles one request at a time, in order of arrival."""

    def __init__(self, gpu: Gpu, blocks: int) -> None:
        self._gpu = gpu
        self._stream = gpu.stream()
        self._input = Input(gpu)
        self._activations = Words(gpu, blocks)
        self._total = Total(gpu, blocks)
        self._events = (gpu.event(timing=True), gpu.event(timing=True))

    def infer(self, number: int) -> None:
        """Run request `number`; return when the result is on the host."""
        stream = self._stream
        self._gpu.record(self._events[0], stream)
        self._input.upload(number, stream)
        self._activations.spread(self._input, stream)
        for layer in range(1, SERVER_LAYERS):
            self._activations.affine(2 * layer + 1, number + layer, stream)
        self._total.start(self._activations, stream)
        self._gpu.record(self._events[1], stream)
        self._gpu.synchronize(stream)

    def correct(self) -> bool:
        """Whether the last result is the one the CPU computes."""
        return self._total.value() == self._activations.expected

    def gpu_ms(self) -> float:
        """The time from the last request's first operation to its last, on the GPU's clock."""
        return self._gpu.elapsed_ms(*self._events)

    def serve(self, settings: Settings, start_ns: int) -> Iterator[Request]:
        """Take requests as they arrive; if the server is late, they queue (open loop)."""
        clock = self._gpu.clock
        arrivals = poisson_ns(
            seed=SEED, mean_gap_ns=settings.gap_ns, until_ns=int(settings.seconds * 1e9)
        )
        end_ns = 0
        for number, arrival_ns in enumerate(arrivals, start=1):
            clock.wait_until_ns(start_ns + max(arrival_ns, end_ns + settings.pause_ns))
            begin_ns = clock.now_ns() - start_ns
            self.infer(number)
            end_ns = clock.now_ns() - start_ns
            yield Request(
                arrival_ns=arrival_ns, begin_ns=begin_ns, end_ns=end_ns, correct=self.correct()
            )
