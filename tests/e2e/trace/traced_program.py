"""A program to trace, and the command line that traces it."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CONFORMANCE = Path(__file__).parents[2] / "conformance"
DEADLINE_S = 60
VADD = """
import ctypes
from gpu import Gpu, address, ok, u32
from cuda.bindings import driver as cu
gpu = Gpu()
count = 1024
host = u32(*range(count))
a, b = (ok(cu.cuMemAlloc(4 * count)) for _ in range(2))
stream = ok(cu.cuStreamCreate(1))
ok(cu.cuMemcpyHtoDAsync(a, address(host), 4 * count, stream))
types = (None, None, None, ctypes.c_int)
for _ in range(3):
    ok(gpu.launch("vadd", (a, a, b, count), types, stream=stream, grid=4, block=256))
ok(cu.cuStreamSynchronize(stream))
assert cu.cuMemAlloc(1 << 50)[0] == 2
for pointer in (a, b):
    ok(cu.cuMemFree(pointer))
"""


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def lines(self):
        return self.err.splitlines()


@dataclass(frozen=True, kw_only=True)
class Tandem:
    """The command line, with its own software GPU."""

    env: dict[str, str]
    timeline: Path

    def __call__(self, *words, check=True, file_limit_bytes=None):
        limit = ["prlimit", f"--fsize={file_limit_bytes}:unlimited"] if file_limit_bytes else []
        done = subprocess.run(
            [*limit, *self.command(*words)],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return Done(code=done.returncode, out=done.stdout, err=done.stderr)

    def start(self, *words):
        """Start a command in a process group of its own, as a shell does."""
        return subprocess.Popen(
            self.command(*words),
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    @staticmethod
    def command(*words):
        return [sys.executable, "-m", "tandem.cli.__main__", *map(str, words)]


TRAINER = """
import os
from pathlib import Path
from tandem.demo.gpu import Gpu
from tandem.demo.trainer import make_trainer
trainer = make_trainer(Gpu(Path(os.environ["DEMO_IMAGE"]).read_bytes()), "vision", 32)
for number in range(3):
    trainer.iterate(number)
"""
# Two threads with two streams each, and events between the streams.
THREADS = """
import threading
from gpu import Gpu, ok
from cuda.bindings import driver as cu
gpu = Gpu()
word = gpu.word(1)
streams = [ok(cu.cuStreamCreate(1)) for _ in range(3)]
events = [ok(cu.cuEventCreate(2)) for _ in range(6)]
recorded = [threading.Event() for _ in events]
def work(number):
    ok(cu.cuCtxSetCurrent(gpu.context))
    for turn in range(number, 6, 2):
        if turn:
            recorded[turn - 1].wait()
            ok(cu.cuStreamWaitEvent(streams[number], events[turn - 1], 0))
        gpu.affine(word, 2, turn, stream=streams[number], slow=True)
        ok(cu.cuEventRecord(events[turn], streams[number]))
        recorded[turn].set()
        gpu.affine(word, 1, 0, stream=streams[2])
    ok(cu.cuStreamSynchronize(streams[number]))
# No thread blocks in the driver before both have issued everything: the same order each time.
threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
for one in threads:
    one.start()
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
driver.softgpu_wait_begin()
for one in threads:
    one.join()
driver.softgpu_wait_end()
ok(cu.cuCtxSynchronize())
"""
