"""Daemons for tests, forked from a process that has already imported tandemd.

Starting Python and importing costs a daemon most of a second of CPU time, more than most tests need
for everything else. A forked daemon runs the same `main` with its own arguments, environment and
log. The tests that care how tandemd starts as a program start it that way, and so does the demo.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import as_user

# The loader reads it only when a program starts, so each value needs a server of its own.
_LIBRARIES = "LD_LIBRARY_PATH"
FILES = ("log", "out")  # keys of an order


class Daemon:
    """A forked daemon, with as much of the interface of `subprocess.Popen` as the tests use."""

    def __init__(self, server, pid):
        self._server = server
        try:
            self._fd = os.pidfd_open(pid)
        except OSError:  # the kernel has no pidfds; nobody else would end the daemon
            os.kill(pid, signal.SIGKILL)
            raise
        self.pid = pid
        self.returncode = None

    def poll(self):
        return self._ended_within(0)

    def wait(self, timeout=None):
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("tandemd", timeout)
        return code

    def send_signal(self, number):
        if self.poll() is None:
            signal.pidfd_send_signal(self._fd, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def _ended_within(self, seconds):
        if self.returncode is None and select.select([self._fd], [], [], seconds)[0]:
            self.returncode = self._server.ask({"ended": self.pid})
            os.close(self._fd)
        return self.returncode


class Server:
    """The process that forks daemons; there is one for each value of LD_LIBRARY_PATH."""

    def __init__(self, libraries):
        env = {k: v for k, v in os.environ.items() if k != _LIBRARIES}
        env |= {_LIBRARIES: libraries} if libraries else {}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._words = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (see `close`)
        self._process = subprocess.Popen(
            [sys.executable, __file__], env=env, text=True, stderr=self._words, **pipes
        )
        self._lock = threading.Lock()
        atexit.register(self.close)

    def ask(self, order):
        """Send an order and return the answer.

        Raises:
            RuntimeError: the server has ended; the text has its last words.
        """
        with self._lock:
            with contextlib.suppress(BrokenPipeError):
                print(json.dumps(order), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        if not answer.endswith("\n"):
            raise RuntimeError(self._last_words())
        return json.loads(answer)

    def close(self):
        """End the server by closing its input."""
        self._end()
        self._words.close()

    def _end(self):
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _last_words(self):
        self._end()
        self._words.seek(0)
        said = self._words.read()[-2000:]
        return f"the server that forks daemons ended with {self._process.returncode}\n{said}"


_servers = {}


def run(arguments, *, env, timeout):
    """Run `tandemd ARGUMENTS`, which must end by itself, like subprocess.run."""
    with tempfile.TemporaryDirectory() as folder:
        out, log = Path(folder, "out"), Path(folder, "log")
        daemon = start(arguments, env=env, log=log, out=out)
        try:
            code = daemon.wait(timeout)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
            raise
        return subprocess.CompletedProcess(arguments, code, out.read_text(), log.read_text())


def start(arguments, *, env, log, out=os.devnull, uid=None):
    """Start `tandemd ARGUMENTS` with the given environment; append its output to the file `log`.

    `uid`: the user to run the daemon as, if root runs the tests.
    """
    libraries = env.get(_LIBRARIES, "")
    if libraries not in _servers:
        _servers[libraries] = Server(libraries)
    server = _servers[libraries]
    words = [str(word) for word in arguments]
    order = {"arguments": words, "env": dict(env), "log": str(log), "out": str(out), "uid": uid}
    return Daemon(server, server.ask(order))


def serve():
    """Obey one order a line: fork a daemon or wait for one; in a daemon, return its arguments."""
    for line in sys.stdin:
        order = json.loads(line)
        if "ended" in order:
            _, status = os.waitpid(order["ended"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                become(order)
                return order["arguments"]
        print(answer, flush=True)
    os._exit(0)


def become(order):
    """Change what exec would have changed."""
    log, out = (os.open(order[at], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644) for at in FILES)
    nothing = os.open(os.devnull, os.O_RDWR)
    for source, target in ((nothing, 0), (out, 1), (log, 2)):
        os.dup2(source, target)
        os.close(source)
    os.environ.clear()
    os.environ.update(order["env"])
    if (uid := order["uid"]) is not None:
        as_user.become(uid)


def leave():
    """End the process here, without tearing down everything that was imported.

    A forked daemon would have to copy those pages first, which takes longer than its whole start.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    status = 1  # of an exception that nobody catches
    atexit.register(leave)  # first to register, so last to be called
    # A daemon imports this only once it runs.
    import pynvml  # noqa: F401

    from tandemd.__main__ import main

    gc.freeze()  # else the collector touches all that was imported, and each daemon copies it
    try:
        main(serve())
        status = 0
    except SystemExit as end:
        status = end.code
        raise
