"""The orders to a worker process and the shape of the work; all such constants are here."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

SEED = 20
KERNEL_NS = 1_000_000  # minimum duration of the layers' kernels, by calibration
SERVER_LAYERS = 7  # kernels of that length in a request
SERVER_LOAD = 0.28  # fraction of the GPU time that the requests use
TRAINER_LAYERS = 56  # forward kernels of one micro-batch, and as many backward
VISION_ACCUMULATE = 2  # micro-batches per iteration
REQUESTS_MIN = 300  # with fewer, a p99 says little

ROLES = ("server", "vision", "language")
TRAINERS = ("vision", "language")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The orders to one worker, passed as JSON on its command line."""

    role: str  # one of ROLES, or "calibrate"
    image: str  # path of the compiled kernels
    blocks: int = 0  # of a layer's kernel
    seconds: float = 0.0  # how long to work
    gap_ns: int = 0  # mean time between two requests
    pause_ns: int = 0  # a server's own time between a result and the next request
    stream_priority: int = 0  # as in the driver: lower numbers go first
    start_grid_ns: int = 0  # virtual clock: begin at a multiple of this; 0 = on a line from stdin

    def to_json(self) -> str:
        """The settings as one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Settings:
        """The inverse of `to_json`."""
        return Settings(**json.loads(text))
