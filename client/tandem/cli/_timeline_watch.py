"""Warn when a program ends that its timeline ended earlier."""

import os
import select
from pathlib import Path

from tandem.softgpu._timeline import ends_early


def watch(timeline: Path) -> None:
    """Start a process that waits for the end of this one, which may exec another program.

    It is detached, so that the program sees no unknown child, and keeps only stderr open.
    """
    program = os.pidfd_open(os.getpid())
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os.close(program)
        return
    try:
        if os.fork() == 0:
            _wait_and_say(program, timeline)
    finally:
        os._exit(0)


def _wait_and_say(program: int, timeline: Path) -> None:
    os.setsid()  # Ctrl-C must reach only the program
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.closerange(3, program)
    os.closerange(program + 1, os.sysconf("SC_OPEN_MAX"))
    select.select([program], [], [])
    if ends_early(timeline):
        text = (
            f"warning: the timeline '{timeline}' ends early: its disk is full, or it may not grow"
        )
        os.write(2, f"{text}\n".encode())
