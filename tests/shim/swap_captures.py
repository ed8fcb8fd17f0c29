"""Graphs captured by a process whose memory is moved, and their effects on a model of it."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable

from cuda.bindings import driver as cu
from memory_limits import ok


class Captures:
    """One capture of launches at a time; it stays open over whatever the process does meanwhile."""

    def __init__(self, rng: random.Random, seen: Counter[str]) -> None:
        self.rng, self.seen = rng, seen
        self.stream = ok(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))
        self.is_open = False
        self.holds_back = False  # memory freed meanwhile is held back until the next free after it
        self.effects: dict[int, list[Callable[[], None]]] = {}  # what the launches do, by address

    def begin(self) -> None:
        """Begin a capture, in this thread or in one that ends before it, in relaxed mode."""
        if self.rng.random() < 0.5:
            self._begin()
        else:
            other = threading.Thread(target=self._begin)
            other.start()
            other.join()
        self.is_open = True

    def _begin(self) -> None:
        ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
        mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        ok(cu.cuStreamBeginCapture(self.stream, mode))

    def note_launch(self, address: int, effect: Callable[[], None]) -> None:
        """Note what a launch into the capture's stream will do to the model."""
        self.effects.setdefault(address, []).append(effect)

    def note_free(self, address: int) -> None:
        """Note a free: a graph that uses freed memory must not be launched."""
        self.effects.pop(address, None)
        if self.is_open:
            self.seen["freed beside a capture"] += 1
        self.holds_back = self.is_open

    def end(self) -> None:
        """End the capture; run the graph once if everything it uses is still there."""
        recorded = sum(map(len, self.effects.values()))
        graph = ok(cu.cuStreamEndCapture(self.stream))
        self.is_open = False
        if nodes_of(graph) == recorded:
            running = ok(cu.cuGraphInstantiate(graph, 0))
            ok(cu.cuGraphLaunch(running, self.stream))
            ok(cu.cuStreamSynchronize(self.stream))
            ok(cu.cuGraphExecDestroy(running))
            for effects in self.effects.values():
                for effect in effects:
                    effect()
            self.seen["graphs run"] += 1
        ok(cu.cuGraphDestroy(graph))
        self.effects.clear()


def nodes_of(graph: cu.CUgraph) -> int:
    """Return the number of nodes."""
    status, _, count = cu.cuGraphGetNodes(graph)
    assert status == cu.CUresult.CUDA_SUCCESS, status
    return count
