"""Runs a command with its driver calls traced, and hands on what it and its children write."""

import os
import secrets
import select
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from tandem import _environment, _launch, _paths
from tandem._native import Tracer

VARIABLE = "TANDEM_TRACE_CALLS"
ROUND_MS = 5
BUSY_ROUND_MS = 1  # after a round that brought
MANY_BYTES = 64 * 1024  # or more: a ring holds eight times that
LOOK_FOR_DEAD_ROUNDS = 20  # asking the kernel about every thread costs more than a look at its ring
WAIT_MS = 2000  # how long a traced thread waits for us before it goes on unrecorded

Consume = Callable[[bytes], None]


def traced_environment(tracer: Tracer, key: int, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a traced command.

    Raises:
        StateError: there is no usable shim.
    """
    preload = _environment.preload(_paths.SHIM, environ.get("LD_PRELOAD", ""))
    place = f"/proc/{os.getpid()}/fd/{tracer.fd}:{key:x}"
    return {**environ, "LD_PRELOAD": preload, VARIABLE: place}


def _tracer(key: int, *, device_times: bool) -> Tracer:
    try:
        return Tracer(device_times=device_times, wait_ms=WAIT_MS, key=key)
    except OSError as exc:
        raise _launch.LaunchError(
            f"no memory for the trace: {exc.strerror}", exit_code=_launch.EXIT_FAILED
        ) from exc


class TracedCommand:
    """A running command, and the memory its calls arrive in."""

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], *, device_times: bool
    ) -> None:
        """Start `command`.

        Raises:
            LaunchError: it does not exist (127), cannot be executed (126), or there is no memory
                for the trace (125).
            StateError: there is no usable shim.
        """
        key = secrets.randbits(63)
        self._tracer = _tracer(key, device_times=device_times)
        program = _launch.find_program(command[0], path=environ.get("PATH", os.defpath))
        env = traced_environment(self._tracer, key, environ)
        try:
            self._process = subprocess.Popen(list(command), executable=program, env=env)
        except OSError as exc:
            raise _launch.LaunchError(
                f"cannot execute {program!r}: {exc.strerror}",
                exit_code=_launch.EXIT_NOT_EXECUTABLE,
            ) from exc
        self._interrupts = 0
        self.failure: OSError | None = None  # of `consume`; what came after it went nowhere

    @property
    def lost(self) -> int:
        """Calls that were not recorded."""
        return self._tracer.lost

    def follow(self, consume: Consume) -> int:
        """Hand on records until the command and the traced ones of its children have ended.

        When `consume` fails for want of space or of a reader, the command still runs to its end.

        Returns:
            The exit code of the command, 128 + N if signal N ended it. A second interrupt ends the
            waiting for children that outlive it.
        """
        pidfd = os.pidfd_open(self._process.pid)
        try:
            with self._signals():
                self._rounds(pidfd, consume)
                status = self._process.wait()
                self._stragglers(consume)
        finally:
            os.close(pidfd)
        return status if status >= 0 else 128 - status

    def _rounds(self, pidfd: int, consume: Consume) -> None:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        rounds = 0
        many = False
        while not poll.poll(BUSY_ROUND_MS if many else ROUND_MS):
            rounds += 1
            look_for_dead = rounds % LOOK_FOR_DEAD_ROUNDS == 0
            many = self._drain(consume, look_for_dead=look_for_dead) > MANY_BYTES

    def _stragglers(self, consume: Consume) -> None:
        # The command is gone; children of it may not be.
        self._drain(consume, look_for_dead=True)
        while self._tracer.threads and self._interrupts < 2:
            select.select([], [], [], ROUND_MS * LOOK_FOR_DEAD_ROUNDS / 1000)
            self._drain(consume, look_for_dead=True)

    def _drain(self, consume: Consume, *, look_for_dead: bool) -> int:
        # How many bytes there were.
        records = self._tracer.drain(look_for_dead=look_for_dead)
        if records and not self.failure:
            try:
                consume(records)
            except OSError as exc:
                self.failure = exc
        return len(records)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Interrupts reach the command from the terminal; what else ends us is passed on to it."""

        def pass_on(number: int, _frame: FrameType | None) -> None:
            self._process.send_signal(number)

        def count(_number: int, _frame: FrameType | None) -> None:
            self._interrupts += 1

        wanted = {signal.SIGINT: count, signal.SIGQUIT: count, signal.SIGTERM: pass_on}
        before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
