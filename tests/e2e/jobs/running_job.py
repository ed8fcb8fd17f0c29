"""For tests: a daemon on the software GPU, and programs under `tandem run`."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import as_user
import daemon_forks
from mps.record import end_daemons

from tandem import softgpu
from tandem._client import Client
from tandem.cli import explain as cli_explain
from tandem.softgpu._query import device_status

HERE = Path(__file__).parent
CONFORMANCE = HERE.parents[1] / "conformance"
DEADLINE_S = 60  # of real time, which a busy machine needs more of
WORK = ("kernel", "copy_htod", "copy_dtoh", "copy_dtod", "memset", "host")
WAITING = "threads waiting now: 1"  # a line of `tandem explain`
# Evaluates one line at a time. Virtual time passes while it waits for the next.
LOOP = """
import ctypes, gc, os, sys
from cuda.bindings import driver as cu
from gpu import Gpu, ok, outside, refused
from tandem import _marks as marks
import curving, pairing, serving, waiting, waving
clock = ctypes.CDLL("libcuda.so.1"); clock.softgpu_now_ns.restype = ctypes.c_uint64
clock.softgpu_clock_is_virtual()  # from here on it takes part
came_ns = clock.softgpu_now_ns()
gpu = Gpu(); word = gpu.word(7)
gc.freeze()  # else it looks through all that when it ends
def alloc(size):
    status, address = cu.cuMemAlloc(size)
    return address if status == 0 else status.name
def free(address):
    return cu.cuMemFree(address)[0].name
def memory():
    return ok(cu.cuMemGetInfo()) + (ok(cu.cuDeviceTotalMem(gpu.device)),)
def physical():
    prop = cu.CUmemAllocationProp()
    prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    return prop
def now_ns():
    return clock.softgpu_now_ns()
def compute():
    gpu.affine(word, 2, 1, slow=True); return gpu.read(word)
def for_ever(call):
    call(); say("going")
    while True: call()
def say(text):
    print(repr(text), flush=True)
def together(call):
    say("here"); sys.stdin.readline()  # virtual time stands
    return call()
def step(ns):
    say("here")
    while sys.stdin.readline().strip():  # virtual time stands
        clock.softgpu_wait_until_ns(ctypes.c_uint64(now_ns() + ns)); say("here")
say("ready")
while True:
    with outside(): line = sys.stdin.readline()
    if not line: break
    say(eval(line))
"""


LOOPING = (sys.executable, "-c", LOOP)


class Job:
    """A program that evaluates one expression at a time, started through `launcher`."""

    def __init__(self, name, *launcher, env, program=LOOPING):
        self.name = name
        self._process = subprocess.Popen(
            [*launcher, *program],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid  # tandem run execs

    def ready(self):
        """Wait until the job has a context; return the job."""
        assert self.result() == "ready"
        return self

    def start(self, expression):
        """Begin to evaluate the expression; `result` waits for it."""
        self._process.stdin.write(expression + "\n")
        self._process.stdin.flush()

    def says_nothing_more(self):
        """Tell whether the job ended by itself, as a program does that cannot continue."""
        return not self._process.stdout.readline() and self._process.wait(DEADLINE_S) != 0

    def result(self):
        line = self._process.stdout.readline()
        assert line, f"'{self.name}' ended with code {self._process.wait(DEADLINE_S)}"
        return eval(line)

    def do(self, expression):
        self.start(expression)
        return self.result()

    def go_on(self, call):
        """From now on, call what the expression evaluates to, for ever."""
        self.start(f"for_ever({call})")
        assert self.result() == "going"

    def kill(self):
        self.close()

    def end(self):
        """Close the job's input and return its exit code."""
        self._process.communicate(timeout=DEADLINE_S)
        return self._process.returncode

    def close(self):
        self._process.kill()  # does nothing if it has ended
        self._process.communicate()


def start_together(expressions):
    """Begin to evaluate one expression in each job, all at the same virtual time.

    Virtual time passes while a job waits for its line. However quickly the lines follow each other,
    the first job might finish before the last one gets its own. So each job here reports that it
    has its line, and holds the clock until all have theirs.
    """
    for job, expression in expressions.items():
        job.start(f"together(lambda: {expression})")
    for job in expressions:
        assert job.result() == "here"
    for job in expressions:
        job.start("go")


@contextmanager
def stepping(job, step_ns):
    """Stop virtual time, except for a step of `step_ns` at each call of the yielded function."""
    job.start(f"step({step_ns})")
    assert job.result() == "here"
    try:
        yield lambda: job.do("on") == "here"
    finally:
        job.start("")


class Place:
    """A folder with a software GPU, a daemon and jobs."""

    def __init__(self, folder, image, clock):
        self.folder = folder
        self.jobs = []
        self.daemon = None
        own = {k: v for k, v in os.environ.items() if not k.startswith(("TANDEM_", "LD_PRELOAD"))}
        own |= {"TANDEM_RUNTIME_DIR": str(folder), "TEST_IMAGE": str(image)}
        own["PYTHONPATH"] = os.pathsep.join(
            [str(CONFORMANCE), str(HERE), own.get("PYTHONPATH", "")]
        )
        gpu = folder / "gpu"
        gpu.mkdir()
        self.timeline = folder / "timeline.jsonl"
        self._rows, self._read_bytes = [], 0  # of the timeline
        self.env = softgpu.environment(
            own, folder=gpu, profile="tiny", clock=clock, timeline=self.timeline
        )

    def configured(self, **options):
        """Return a daemon's options for these settings of `[scheduler]`."""
        lines = [f"{key} = {value}" for key, value in options.items()]
        path = self.folder / "config.toml"
        path.write_text("\n".join(["[scheduler]", *lines, ""]))
        return "--config", str(path)

    def start_daemon(self, *options, uid=None):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(str(self.folder / "ready"))
            (self.folder / "ready").chmod(0o666)
            ready.settimeout(DEADLINE_S)
            self.daemon = daemon_forks.start(
                ["--clock", "softgpu", *options],
                env=self.env | {"NOTIFY_SOCKET": str(self.folder / "ready")},
                log=self.folder / "log",
                uid=uid,
            )
            assert ready.recv(4096).startswith(b"READY=1")
        (self.folder / "ready").unlink()

    def stop_daemon(self, by=signal.SIGTERM):
        self.daemon.send_signal(by)
        return self.daemon.wait(DEADLINE_S)

    def end_or_stop_daemon(self, by):
        """Send the daemon a signal and wait for its end, unless the signal only stops it."""
        self.daemon.send_signal(by)
        if by != signal.SIGSTOP:
            self.daemon.wait(DEADLINE_S)

    def job(self, name, *options, uid=None):
        """Start a job under `tandem run` and wait until it has a context."""
        return self.starting(name, *options, uid=uid).ready()

    def starting(self, name, *options, program=LOOPING, uid=None):
        """Like `job`, but return before the context exists; another `program` prints 'ready'."""
        run = [sys.executable, "-m", "tandem.cli", "run", "--require", "-J", name]
        tandem = as_user.words(uid, *run)
        if uid is not None:
            program = ("/usr/bin/env", *program)  # one that `tandem run` sees it may execute
        self.jobs.append(Job(name, *tandem, *options, "--", env=self.env, program=program))
        return self.jobs[-1]

    def joining(self, job):
        """Add one more process to a job, started with the environment of its first."""
        self.jobs.append(Job(job.name, env=job.do("dict(os.environ)")))
        return self.jobs[-1].ready()

    def tandem(self, *words):
        done = subprocess.run(
            [sys.executable, "-m", "tandem.cli", *words],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def lists(self, name):
        """Tell whether the daemon knows a job of that name."""
        return name in {job["display_name"] for job in json.loads(self.tandem("ps", "--json"))}

    def refused(self, *options):
        """Return the exit code and the message of a `tandem run` that starts nothing."""
        words = ["-m", "tandem.cli", "run", *options, "--", sys.executable, "-c", "1/0"]
        done = subprocess.run(
            [sys.executable, *words],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return done.returncode, done.stderr

    def client(self):
        return Client(directory=str(self.folder))

    def explain(self, name):
        """Return what `tandem explain` says, without starting it: that takes long when busy."""
        with self.client() as client:
            return "\n".join(cli_explain.lines(client.explain(name)))

    def ran(self, pid):
        """Return what the GPU has done for a process so far, without markers and events."""
        return [one for one in self._happened() if one["pid"] == pid and one["kind"] in WORK]

    def _happened(self):
        """Return the timeline so far; what the last call has read is not read again."""
        with self.timeline.open("rb") as file:
            file.seek(self._read_bytes)
            whole, newline, _ = file.read().rpartition(b"\n")  # the last line may be incomplete
        self._read_bytes += len(whole + newline)
        self._rows += map(json.loads, whole.splitlines())
        return self._rows

    def used_bytes(self):
        """Return how much memory the device's ledger counts, contexts included."""
        return json.loads(device_status(self.folder / "gpu"))["devices"][0]["used_bytes"]

    def close(self):
        for job in self.jobs:
            job.close()
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon.wait(DEADLINE_S)
        end_daemons(self.folder)  # a killed daemon leaves its MPS daemons behind


def until(fact, *, what, within_s=DEADLINE_S):
    """Wait for something that another process does, where the test does not check the order."""
    deadline = time.monotonic() + within_s
    while not fact():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.002)
