"""What a worker process is told, and the shape of the work. The only place with such constants."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

SEED = 20
KERNEL_NS = 1_000_000  # calibration makes the layers' kernels at least this long
SERVER_LAYERS = 7  # kernels of that length in a request
SERVER_LOAD = 0.28  # part of the GPU that the requests use
TRAINER_LAYERS = 56  # forward kernels of one micro-batch; as many backward
VISION_ACCUMULATE = 2  # micro-batches of one iteration
REQUESTS_MIN = 300  # below this a p99 says little

ROLES = ("server", "vision", "language")
TRAINERS = ("vision", "language")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One worker's orders, passed as JSON on its command line."""

    role: str  # of ROLES, or "calibrate"
    image: str  # path of the compiled kernels
    blocks: int = 0  # of a layer's kernel
    seconds: float = 0.0  # how long to work
    gap_ns: int = 0  # mean time between two requests
    pause_ns: int = 0  # a server's own time between a result and the next request
    stream_priority: int = 0  # as the driver has it: lower goes first
    start_grid_ns: int = 0  # virtual clock: begin at a multiple of this; 0 = on a line from stdin

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Settings:
        """The inverse of `to_json`."""
        return Settings(**json.loads(text))
