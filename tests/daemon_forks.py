"""Daemons for tests, forked from a process that has imported tandemd already.

Starting Python and importing takes a daemon most of a second of a CPU, which is more than most
tests need for everything else. A forked one runs the same `main` with arguments, environment and
log of its own. How tandemd starts as a program is tested where that matters, and by the demo.
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

# Read by the loader when a program starts, and by nobody later: each value needs a server.
_LIBRARIES = "LD_LIBRARY_PATH"
FILES = ("log", "out")  # of an order


class Daemon:
    """A process; of `subprocess.Popen` it has what tests use."""

    def __init__(self, server, pid):
        self._server = server
        try:
            self._fd = os.pidfd_open(pid)
        except OSError:  # a kernel without pidfds: nobody else would end it
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
    """The process that forks, started for one path of libraries."""

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
        """Its answer.

        Raises:
            RuntimeError: it has ended; its last words are in the text.
        """
        with self._lock:
            with contextlib.suppress(BrokenPipeError):
                print(json.dumps(order), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        if not answer.endswith("\n"):
            raise RuntimeError(self._last_words())
        return json.loads(answer)

    def close(self):
        """It ends with its input."""
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
    """As subprocess.run of `tandemd ARGUMENTS`, which is to end by itself."""
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
    """`tandemd ARGUMENTS` with that environment, what it says appended to the file `log`.

    `uid`: of the daemon, where root runs the tests.
    """
    libraries = env.get(_LIBRARIES, "")
    if libraries not in _servers:
        _servers[libraries] = Server(libraries)
    server = _servers[libraries]
    words = [str(word) for word in arguments]
    order = {"arguments": words, "env": dict(env), "log": str(log), "out": str(out), "uid": uid}
    return Daemon(server, server.ask(order))


def serve():
    """Fork a daemon or wait for one, an order a line; in the daemon, its arguments."""
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
    """What exec would have changed."""
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
    """End here, and not by taking apart all that was imported.

    A forked daemon would have to copy that first, which takes longer than all of its start.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    status = 1  # of an error that nobody has caught
    atexit.register(leave)  # before all others: it is called when they have been
    # What a daemon imports only once it runs, too.
    import pynvml  # noqa: F401

    from tandemd.__main__ import main

    gc.freeze()  # else each daemon copies all that was imported when it looks through it
    try:
        main(serve())
        status = 0
    except SystemExit as end:
        status = end.code
        raise
