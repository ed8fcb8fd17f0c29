"""One program in one process: `python -m bench.gpu.programs.workload_worker ORDERS`.

It sends JSON lines on stdout and takes lines on stdin:

    up     -->  its framework is imported; a line lets it open the device
    ready  -->  it has computed; each further line starts a round
    round  -->  how many iterations it did in how many seconds
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass

import tandem
from bench.gpu.programs import SOURCES, Made, digest_of, load
from tandem.demo.lines import say

WARM_UP_S = 0.1  # before a round: a job that resumes may first have to wait for its turn
WARM_UP_STEPS = 2


@dataclass(frozen=True, kw_only=True)
class Orders:
    """The orders from the command line."""

    program: str  # of programs.SOURCES
    device: str  # cuda | cpu
    rounds: int
    round_s: float


def main() -> None:
    """Run a fixed number of iterations, then as many as there is time for."""
    orders = Orders(**json.loads(sys.argv[1]))
    make = load(orders.program)
    say("up")
    sys.stdin.readline()
    begin_s = time.monotonic()
    made = make(orders.device)
    made.step()
    opened_s = time.monotonic() - begin_s
    for _ in range(SOURCES[orders.program].iterations - 1):
        made.step()
    say("ready", opened_s=opened_s, digest=digest_of(made), managed=tandem.is_managed())
    for _ in range(orders.rounds):
        sys.stdin.readline()
        play(made, orders.round_s)
    made.close()


def play(made: Made, round_s: float) -> None:
    """Run one round and report it."""
    run(made, min(WARM_UP_S, round_s), least=WARM_UP_STEPS)
    begin_s = time.monotonic()
    iterations = run(made, round_s, least=1)
    say("round", iterations=iterations, seconds=time.monotonic() - begin_s)


def run(made: Made, seconds: float, *, least: int) -> int:
    """Run for that long, at least `least` iterations; return how many there were."""
    end_s = time.monotonic() + seconds
    done = 0
    while done < least or time.monotonic() < end_s:
        made.step()
        done += 1
    return done


if __name__ == "__main__":
    main()
