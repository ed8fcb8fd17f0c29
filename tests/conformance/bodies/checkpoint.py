"""Checkpoints: one process locks another, takes its memory off the GPU, and gives it back."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from cuda.bindings import driver as cu
from gpu import Gpu, ok, outside, refused

State = cu.CUprocessState
TARGET = """
import sys
from gpu import Gpu, ok, outside
from cuda.bindings import driver as cu
gpu = Gpu()
word = gpu.word(41)
big = ok(cu.cuMemAlloc(96 << 20))
print("ready", flush=True)
with outside(): sys.stdin.readline()
gpu.affine(word, 1, 1)
print(gpu.read(word), flush=True)
with outside(): sys.stdin.readline()
"""


class _Target:
    def __init__(self) -> None:
        folder = str(Path(__file__).parents[1])
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(
            [sys.executable, "-c", TARGET],
            env={**os.environ, "PYTHONPATH": folder},
            stdin=pipe,
            stdout=pipe,
            text=True,
        )
        self.pid = self.child.pid
        assert self.line() == "ready\n"

    def line(self) -> str:
        with outside():
            return self.child.stdout.readline()

    def go_on(self) -> None:
        self.child.stdin.write("\n")
        self.child.stdin.flush()

    @property
    def state(self):
        return ok(cu.cuCheckpointProcessGetState(self.pid))


@contextlib.contextmanager
def _target():
    target = _Target()
    try:
        yield target
    finally:
        with outside():
            target.child.communicate("\n", timeout=30)


def contents_survive_a_checkpoint_and_the_memory_is_others_meanwhile():
    Gpu()
    with _target() as target:
        assert target.state == State.CU_PROCESS_STATE_RUNNING
        before = ok(cu.cuMemGetInfo())[0]
        ok(cu.cuCheckpointProcessLock(target.pid, None))
        assert target.state == State.CU_PROCESS_STATE_LOCKED
        ok(cu.cuCheckpointProcessCheckpoint(target.pid, None))
        assert target.state == State.CU_PROCESS_STATE_CHECKPOINTED
        assert ok(cu.cuMemGetInfo())[0] >= before + (96 << 20)
        target.go_on()  # its next calls will wait
        ok(cu.cuCheckpointProcessRestore(target.pid, None))
        assert target.state == State.CU_PROCESS_STATE_LOCKED
        ok(cu.cuCheckpointProcessUnlock(target.pid, None))
        assert target.state == State.CU_PROCESS_STATE_RUNNING
        assert target.line() == "[42]\n"


def each_step_has_its_state():
    Gpu()
    with _target() as target:
        for call in (
            cu.cuCheckpointProcessCheckpoint,
            cu.cuCheckpointProcessRestore,
            cu.cuCheckpointProcessUnlock,
        ):
            assert refused(call(target.pid, None)) == "ILLEGAL_STATE"
        ok(cu.cuCheckpointProcessLock(target.pid, None))
        assert refused(cu.cuCheckpointProcessLock(target.pid, None)) == "ILLEGAL_STATE"
        assert refused(cu.cuCheckpointProcessRestore(target.pid, None)) == "ILLEGAL_STATE"
        ok(cu.cuCheckpointProcessUnlock(target.pid, None))
        assert ok(cu.cuCheckpointProcessGetRestoreThreadId(target.pid)) > 0
        target.go_on()
        assert target.line() == "[42]\n"
