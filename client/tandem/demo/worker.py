"""One process of the demo: `python -m tandem.demo.worker SETTINGS`.

It prints JSON lines on stdout and reads lines on stdin:

    up       -->  the program is loaded; a line lets it open the device
    ready    -->  a line lets it begin
    progress -->  after each request or iteration
    result   -->  at the end

On the real clock it is ready after a warm-up, and the line starts it. On the virtual clock it is
ready as soon as it is on the device. Time stands still while a process on the device waits for
stdin, so all processes read the same time, and begin at the next but one multiple of
`start_grid_ns`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tandem.demo.calibrate import layer_blocks, request_ns
from tandem.demo.gpu import Gpu
from tandem.demo.lines import say
from tandem.demo.server import Request, Server
from tandem.demo.settings import Settings
from tandem.demo.trainer import Iteration, make_trainer


def main() -> None:
    """Do what the settings on the command line say."""
    settings = Settings.from_json(sys.argv[1])
    say("up")
    sys.stdin.readline()
    gpu = Gpu(Path(settings.image).read_bytes(), stream_priority=settings.stream_priority)
    joined_ns = join(gpu, settings.start_grid_ns)
    if settings.role == "calibrate":
        _calibrate(gpu)
    elif settings.role == "server":
        _serve(gpu, settings, joined_ns)
    else:
        _train(gpu, settings, joined_ns)


def _calibrate(gpu: Gpu) -> None:
    blocks = layer_blocks(gpu)
    say("result", name=gpu.name, blocks=blocks, request_ns=request_ns(gpu, blocks))


def _serve(gpu: Gpu, settings: Settings, joined_ns: int) -> None:
    server = Server(gpu, settings.blocks)
    server.infer(0)  # loads every function outside the measured time
    start_ns = agreed_start_ns(gpu, settings.start_grid_ns, joined_ns)
    _finish(server.serve(settings, start_ns), start_ns)


def _train(gpu: Gpu, settings: Settings, joined_ns: int) -> None:
    trainer = make_trainer(gpu, settings.role, settings.blocks)
    trainer.iterate(1)
    start_ns = agreed_start_ns(gpu, settings.start_grid_ns, joined_ns)
    _finish(trainer.train(settings, start_ns), start_ns)


def join(gpu: Gpu, grid_ns: int) -> int:
    """On the virtual clock, wait for the other processes; return the time that all of them see."""
    if not grid_ns:
        return gpu.clock.now_ns()
    say("ready")
    sys.stdin.readline()
    joined_ns = gpu.clock.now_ns()
    gpu.clock.wait_until_ns(joined_ns + 1)  # from here on the device wakes one process at a time
    return joined_ns


def agreed_start_ns(gpu: Gpu, grid_ns: int, joined_ns: int) -> int:
    """The time to begin; on the real clock, as soon as a line arrives on stdin."""
    if grid_ns:
        return (joined_ns // grid_ns + 2) * grid_ns  # at least one whole step for the warm-up
    say("ready")
    sys.stdin.readline()
    return gpu.clock.now_ns()


def _finish(work: Iterator[Request | Iteration], start_ns: int) -> None:
    done = []
    for count, item in enumerate(work, start=1):
        done.append(asdict(item))
        say("progress", done=count)
    say("result", start_ns=start_ns, items=done)


if __name__ == "__main__":
    main()
