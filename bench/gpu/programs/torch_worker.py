"""A torch program that plays a role of the demo; its argument is the orders in JSON.

It speaks the JSON lines of tandem.demo.worker. A server reports a digest of its answers. With
`iterations`, a trainer does exactly that many and reports a digest of its losses and parameters.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # repeatable; read by the import

import torch

from bench.gpu.programs.models import SCALES, make_server_model, make_trainer_step
from tandem.demo.arrivals import poisson_ns
from tandem.demo.lines import say

SEED = 20
WARM_UP = 5


@dataclass(frozen=True, kw_only=True)
class Orders:
    """The orders from the command line."""

    role: str
    device: str  # of models.SCALES
    seconds: float
    gap_ns: int
    iterations: int
    stream_priority: int


def main() -> None:
    """Play the role."""
    orders = Orders(**json.loads(sys.argv[1]))
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(mode=True)
    torch.backends.cudnn.benchmark = False
    if orders.device == "cpu":
        torch.set_num_threads(1)
    say("up")
    sys.stdin.readline()
    play = _serve if orders.role == "server" else _train
    if orders.stream_priority:
        with torch.cuda.stream(torch.cuda.Stream(priority=orders.stream_priority)):
            play(orders)
    else:
        play(orders)


def _serve(orders: Orders) -> None:
    infer, inputs = make_server_model(SCALES[orders.device])
    expected = [infer(x) for x in inputs]
    for _ in range(WARM_UP):
        infer(inputs[0])
    start_ns = _begin(orders)
    items = []
    arrivals = poisson_ns(seed=SEED, mean_gap_ns=orders.gap_ns, until_ns=int(orders.seconds * 1e9))
    for number, arrival_ns in enumerate(arrivals):
        while (left_ns := start_ns + arrival_ns - time.monotonic_ns()) > 0:
            time.sleep(left_ns / 1e9)
        begin_ns = time.monotonic_ns() - start_ns
        answer = infer(inputs[number % len(inputs)])
        end_ns = time.monotonic_ns() - start_ns
        correct = bool(torch.equal(answer, expected[number % len(inputs)]))
        items.append(
            {
                "arrival_ns": arrival_ns,
                "begin_ns": begin_ns,
                "end_ns": end_ns,
                "correct": correct,
            }
        )
    say("result", start_ns=start_ns, items=items, digest=_digest([], expected))


def _train(orders: Orders) -> None:
    step, parameters = make_trainer_step(orders.role, SCALES[orders.device])
    if not orders.iterations:
        for _ in range(WARM_UP):
            step()
    start_ns = _begin(orders)
    items: list[dict[str, Any]] = []
    losses: list[float] = []
    begin_ns = time.monotonic_ns() - start_ns
    while _more(orders, len(items), begin_ns):
        losses.append(step())
        end_ns = time.monotonic_ns() - start_ns
        correct = losses[-1] == losses[-1]  # not a NaN
        items.append({"begin_ns": begin_ns, "end_ns": end_ns, "correct": correct})
        begin_ns = end_ns
    digest = _digest(losses, parameters()) if orders.iterations else ""
    say("result", start_ns=start_ns, items=items, digest=digest)


def _more(orders: Orders, done: int, now_ns: int) -> bool:
    if orders.iterations:
        return done < orders.iterations
    return now_ns < orders.seconds * 1e9


def _digest(losses: list[float], tensors: list[torch.Tensor]) -> str:
    state = hashlib.sha256(json.dumps(losses).encode())
    for tensor in tensors:
        state.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return state.hexdigest()


def _begin(orders: Orders) -> int:
    if orders.device == "cuda":
        torch.cuda.synchronize()
    say("ready")
    sys.stdin.readline()
    return time.monotonic_ns()


if __name__ == "__main__":
    main()
