"""A torch program that plays a role of the demo: `python -m bench.gpu.torch_worker ORDERS`.

Models are written here, with random weights; it speaks the JSON lines of tandem.demo.worker. With
`iterations` a trainer does exactly that many and reports a digest of its losses and parameters.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.gpu.part import deterministic

deterministic()

import torch  # noqa: E402 - after the environment is set

from bench.gpu.models import make_server_model, make_trainer_step  # noqa: E402
from tandem.demo.arrivals import poisson_ns  # noqa: E402

SEED = 20
WARM_UP = 5


@dataclass(frozen=True, kw_only=True)
class Orders:
    """The command line."""

    role: str
    seconds: float
    gap_ns: int
    iterations: int


def main() -> None:
    """Play the role."""
    orders = Orders(**json.loads(sys.argv[1]))
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    if orders.role == "server":
        _serve(orders)
    else:
        _train(orders)


def _serve(orders: Orders) -> None:
    infer, inputs = make_server_model()
    expected = [infer(x) for x in inputs]
    for _ in range(WARM_UP):
        infer(inputs[0])
    start_ns = _begin()
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
    _say("result", start_ns=start_ns, items=items)


def _train(orders: Orders) -> None:
    step, parameters = make_trainer_step(orders.role)
    if not orders.iterations:
        for _ in range(WARM_UP):
            step()
    start_ns = _begin()
    items: list[dict[str, Any]] = []
    losses: list[float] = []
    begin_ns = time.monotonic_ns() - start_ns
    while _more(orders, len(items), begin_ns):
        losses.append(step())
        end_ns = time.monotonic_ns() - start_ns
        correct = losses[-1] == losses[-1]  # not a NaN
        items.append({"begin_ns": begin_ns, "end_ns": end_ns, "correct": correct})
        begin_ns = end_ns
    digest = _digest(losses, parameters) if orders.iterations else ""
    _say("result", start_ns=start_ns, items=items, digest=digest)


def _more(orders: Orders, done: int, now_ns: int) -> bool:
    if orders.iterations:
        return done < orders.iterations
    return now_ns < orders.seconds * 1e9


def _digest(losses: list[float], parameters: Callable[[], list[torch.Tensor]]) -> str:
    state = hashlib.sha256(json.dumps(losses).encode())
    for tensor in parameters():
        state.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return state.hexdigest()


def _begin() -> int:
    torch.cuda.synchronize()
    _say("ready")
    sys.stdin.readline()
    return time.monotonic_ns()


def _say(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
