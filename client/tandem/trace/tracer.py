"""Runs a command with its driver calls traced, and passes on what it and its children record."""

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
BUSY_ROUND_MS = 1  # after a round with MANY_BYTES or more
MANY_BYTES = 64 * 1024  # a ring holds eight times that
LOOK_FOR_DEAD_ROUNDS = 20  # asking the kernel about each thread costs more than a look at its ring
WAIT_MS = 2000  # how long a traced thread waits for the tracer before it goes on unrecorded

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
    """A running command, and the shared memory in which its calls arrive."""

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], *, device_times: bool
    ) -> None:
        """Start `command`.

        Raises:
            LaunchError: the command does not exist (127) or cannot be executed (126), or there is
                no memory for the trace (125).
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
        self.failure: OSError | None = None  # raised by `consume`; later records were discarded

    @property
    def lost(self) -> int:
        """The number of calls that were not recorded."""
        return self._tracer.lost

    def follow(self, consume: Consume) -> int:
        """Pass records to `consume` until the command and its traced children have ended.

        If `consume` fails for lack of space or of a reader, the command still runs to its end.

        Returns:
            The exit code of the command, or 128 + N if signal N ended it. A second interrupt stops
            the wait for children that outlive the command.
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
        # The command has ended, but its children may still run.
        self._drain(consume, look_for_dead=True)
        while self._tracer.threads and self._interrupts < 2:
            select.select([], [], [], ROUND_MS * LOOK_FOR_DEAD_ROUNDS / 1000)
            self._drain(consume, look_for_dead=True)

    def _drain(self, consume: Consume, *, look_for_dead: bool) -> int:
        # Returns the number of bytes that there were.
        records = self._tracer.drain(look_for_dead=look_for_dead)
        if records and not self.failure:
            try:
                consume(records)
            except OSError as exc:
                self.failure = exc
        return len(records)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Count interrupts, which the terminal sends to the command too, and forward SIGTERM."""

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
