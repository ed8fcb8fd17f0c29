"""The host time of a launch, and what Tandem adds to it, as measured by a program's own thread.

Runs bare, managed, observed only, and with the shim loaded but switched off, to tell what adds how
much.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench.gpu.figures.launch_costs import launch_costs
from bench.gpu.figures.workload_rows import BARE, MODES, order_of
from bench.gpu.harness import children, native
from bench.gpu.harness.part import GPU, Bench
from bench.gpu.harness.ways import command_of, environment_of
from tandem._paths import SHIM
from tandem.demo.process import Message, WorkerError

SIZES = (32, 256)  # batches, and launches per batch
DRY_SIZES = (2, 64)
ROUNDS, DRY_ROUNDS = 16, 4  # a multiple of the number of orders
SWITCHED_OFF = "switched_off"
ARMS = (*MODES, SWITCHED_OFF)


def launch_latency(bench: Bench) -> Message:
    """Measure launches in ns; the processes take turns in rounds, each round in another order."""
    folder = bench.folder / "launches"
    folder.mkdir()
    sizes = SIZES if bench.where == GPU else DRY_SIZES
    command = native.command(bench, "launch_latency", "work", *sizes)
    rounds: dict[str, list[Message]] = {arm: [] for arm in ARMS}
    with ExitStack() as stack:
        workers = {}
        for arm in ARMS:
            mode = BARE if arm == SWITCHED_OFF else arm
            env = stack.enter_context(environment_of(mode, bench.place.env(folder / "gpu"), folder))
            if arm == SWITCHED_OFF:
                env |= {"LD_PRELOAD": str(SHIM), "TANDEM_DISABLE": "1"}
            started = children.talking(
                bench, command_of(mode, command, name="launches"), env, role=arm
            )
            workers[arm] = stack.enter_context(started)
        for arm, worker in workers.items():
            children.heard(worker, "up")
            must_be(arm, managed=children.told(worker, "ready")["managed"])
        for number in range(ROUNDS if bench.where == GPU else DRY_ROUNDS):
            for arm in order_of(number, ARMS):
                rounds[arm].append(children.told(workers[arm], "round"))
    return launch_costs(rounds)


def must_be(mode: str, *, managed: bool) -> None:
    """Check that a process is managed if it should be; otherwise Tandem would seem to add nothing.

    Raises:
        WorkerError: it has no daemon, or it has one but should be bare.
    """
    if managed != (mode not in (BARE, SWITCHED_OFF)):
        raise WorkerError(f"the process '{mode}' is {'' if managed else 'not '}managed")
