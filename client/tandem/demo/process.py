"""Child processes of the demo: workers that speak JSON lines, and the daemon."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Message = dict[str, Any]
DAEMON_READY_S = 30.0  # the first start on a machine reads all of it from disk


class WorkerError(RuntimeError):
    """A worker or the daemon did not do its part. The text ends with what it printed last."""


class Worker:
    """One worker process. `pid` is the program's own even under `tandem run`, which execs."""

    def __init__(
        self, role: str, command: Sequence[str], *, env: Mapping[str, str], log: Path
    ) -> None:
        self.role = role
        self._log = log
        self._messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        with log.open("wb") as errors:
            # A separate session, so that Ctrl-C reaches only the conductor, which then ends the
            # workers.
            self._process = subprocess.Popen(
                list(command),
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self.pid = self._process.pid
        threading.Thread(target=self._read, name=f"read {role}", daemon=True).start()

    def go(self) -> None:
        """Let a waiting worker go on, by a line on its stdin."""
        self.tell("go")

    def tell(self, line: str) -> None:
        """Send a line to the worker, for workers that take orders."""
        if self._process.stdin is None:
            return
        with contextlib.suppress(BrokenPipeError):  # it has ended; `wait_for` reports that
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    def wait_for(self, event: str, *, deadline_s: float, done: int = 0) -> Message:
        """Return the next message of that kind with at least `done` items.

        Raises:
            WorkerError: the worker ended, or stayed silent until the deadline.
        """
        end = time.monotonic() + deadline_s
        while True:
            try:
                message = self._messages.get(timeout=max(end - time.monotonic(), 0.001))
            except queue.Empty:
                raise self._error(f"did not report '{event}' within {deadline_s:g} s") from None
            if message is None:
                raise self._error(f"ended with code {self.wait(deadline_s=5)}")
            if message["event"] == event and message.get("done", 0) >= done:
                return message

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def wait(self, *, deadline_s: float) -> int:
        """Wait for its end and return the exit code, negative for a signal."""
        return self._process.wait(timeout=deadline_s)

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, by itself or by a signal."""
        return self._process.poll() is not None

    def close(self, *, farewell_s: float = 0) -> None:
        """Kill it if it still runs; with `farewell_s`, first close its stdin and wait that long."""
        if farewell_s and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            _wait_unreaped(self._process, farewell_s)
        _end_group(self._process)

    def log_tail(self) -> str:
        """The last lines that it printed on stderr."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-12:])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):  # the program may print other lines too
                message = json.loads(line)
                if isinstance(message, dict) and "event" in message:
                    self._messages.put(message)
        self._messages.put(None)

    def _error(self, what: str) -> WorkerError:
        return WorkerError(f"the {self.role} process {what}\n{self.log_tail()}".rstrip())


class Daemon:
    """A tandemd child process with its own runtime directory."""

    def __init__(
        self, *, env: Mapping[str, str], runtime_dir: Path, log: Path, arguments: Sequence[str] = ()
    ) -> None:
        """Start it, and return once it serves.

        Raises:
            WorkerError: it ended, or did not say READY=1 within DAEMON_READY_S.
        """
        self._log = log
        # The command to start it by hand, with the same environment.
        self.command = [sys.executable, "-m", "tandemd", *arguments]
        notify = runtime_dir / "notify"
        notify.unlink(missing_ok=True)
        self._ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ready.bind(str(notify))
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                self.command,
                env={**env, "NOTIFY_SOCKET": str(notify)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.pid = self._process.pid
        try:
            self._await_ready()
        except BaseException:
            self.close()
            raise

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def wait(self, *, deadline_s: float) -> int:
        """Wait for its end and return the exit code, negative for a signal."""
        return self._process.wait(timeout=deadline_s)

    def close(self) -> None:
        """Ask it to release all jobs and end; kill it after five seconds."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)
        _end_group(self._process)
        self._ready.close()

    def _await_ready(self) -> None:
        self._ready.settimeout(0.1)
        end = time.monotonic() + DAEMON_READY_S
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                if b"READY=1" in self._ready.recv(4096):
                    return
            if self._process.poll() is not None:
                break
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-12:])
        msg = f"tandemd did not become ready\n{tail}".rstrip()
        raise WorkerError(msg)


def _wait_unreaped(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for its end without reaping it: its pid stays reserved, as does its process group."""
    end = time.monotonic() + seconds
    while process.returncode is None and time.monotonic() < end:
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.01)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its group, then reap it."""
    if process.returncode is None:  # not reaped, so the pid is still its own
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
