"""Random lives of processes whose memory is moved, every byte beside a model; prints what they saw.

    python tests/shim/swap_sequences.py FOLDER SEQUENCES SEED [spoil]

In the environment of the software GPU with its virtual clock, with the shim preloaded. A process
goes through some sequences of allocations, frees, writes, kernels and moves, and ends in the middle
of a move: killed, or left by its daemon, or by itself. Then the next one begins. After each
sequence every byte is what the model says, and after each process the device has all of its memory
back. With `spoil` one byte is changed while it is on the host: the comparison has to find it, and
the program ends with 3.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

from cuda.bindings import driver as cu
from memory_limits import ok
from swap_moves import BUMP, EVERYTHING, MIB, Daemon, without_shim

SPOILT = 3
STEPS = 12
MOST_HELD = 6
POOL = 12 * MIB  # which is not always enough
SOURCE = random.Random(0).randbytes(8 * MIB)
WORD = 4
# Says what others hold of the device, each time it is asked.
WITNESS = """
import ctypes, sys
from cuda.bindings import driver as cu
cu.cuInit(0)
cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1])
wait = ctypes.CDLL("libcuda.so.1")
while True:
    free, total = cu.cuMemGetInfo()[1:]
    print(int(total) - int(free), flush=True)
    wait.softgpu_wait_begin()  # time passes meanwhile
    if not sys.stdin.readline():
        break
    wait.softgpu_wait_end()
"""


class Life:
    """A process under its daemon, with a model of what is in its memory."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.rng = rng
        self.seen: Counter[str] = Counter()
        self.held: dict[int, bytearray] = {}
        self.daemon = Daemon(folder)
        pool = self.daemon.job.give_pool(POOL)
        self.pool = pool
        module = ok(cu.cuModuleLoadData(BUMP))
        self.kernel = ok(cu.cuModuleGetFunction(module, b"bump"))

    def sequence(self) -> None:
        """Some steps, then the comparison."""
        for _ in range(STEPS):
            self.rng.choice((self.take, self.take, self.free, self.write, self.launch, self.move))()
        self.compare()
        self.seen["sequences"] += 1

    def take(self) -> None:
        size = self.rng.choice((1, 300, 70_000, MIB - 1, MIB + 5, 3 * MIB))
        if len(self.held) == MOST_HELD:
            return
        result, address = cu.cuMemAlloc(size)
        if result != cu.CUresult.CUDA_SUCCESS:
            assert result == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY, result
            self.seen["refused"] += 1
            return
        self.held[int(address)] = bytearray(size)
        self.fill(int(address), 0, size)

    def fill(self, address: int, begin: int, size: int) -> None:
        at = self.rng.randrange(len(SOURCE) - size + 1)
        content = SOURCE[at : at + size]
        ok(cu.cuMemcpyHtoD(address + begin, content, size))
        self.held[address][begin : begin + size] = content

    def any(self) -> int | None:
        return self.rng.choice(sorted(self.held)) if self.held else None

    def free(self) -> None:
        if (address := self.any()) is not None:
            ok(cu.cuMemFree(address))
            del self.held[address]

    def write(self) -> None:
        if (address := self.any()) is not None:
            size = len(self.held[address])
            begin = self.rng.randrange(size)
            self.fill(address, begin, self.rng.randint(1, size - begin))

    def launch(self) -> None:
        address = self.any()
        count = 0 if address is None else min(len(self.held[address]) // WORD, 2048)
        if not count:
            return
        arguments = ((address, count), (ctypes.c_void_p, ctypes.c_uint32))
        ok(
            cu.cuLaunchKernel(
                self.kernel, (count + 127) // 128, 1, 1, 128, 1, 1, 0, 0, arguments, 0
            )
        )
        self.seen["launches"] += 1
        model = self.held[address]
        words = memoryview(model)[: count * WORD].cast("I")
        for i in range(count):
            words[i] = (words[i] + 1) & 0xFFFFFFFF
        words.release()

    def move(self) -> None:
        """Out, wholly or in part, and back; somebody may want it meanwhile."""
        target = self.rng.choice((0, 0, 2 * MIB, 5 * MIB))
        outcome, away = self.daemon.move(target)
        self.seen[outcome] += 1
        waiting = None
        if away and self.held and self.rng.random() < 0.3:
            waiting = threading.Thread(target=self.touch)
            waiting.start()
            self.daemon.until("waiting_threads", 1)
            self.seen["waited"] += 1
        if away and self.rng.random() < 0.2:  # changes its mind on the way
            self.daemon.job.order(EVERYTHING)
            self.daemon.move(0)
        back = self.daemon.move(EVERYTHING)
        assert back == ("reached", 0), back
        if waiting:
            self.daemon.outlive(waiting)

    def touch(self) -> None:
        ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
        address = min(self.held)
        ok(cu.cuMemcpyHtoD(address, bytes(self.held[address][:1]), 1))

    def compare(self) -> None:
        for address, model in self.held.items():
            content = bytearray(len(model))
            ok(cu.cuMemcpyDtoH(content, address, len(model)))
            assert content == model, f"{len(model)} bytes at {address:#x} are not what was written"
            self.seen["bytes"] += len(model)

    def end(self) -> str:
        """In the middle of a move, one way or the other."""
        how = self.rng.choice(("killed", "left", "ends"))
        self.daemon.job.order(0)
        for _ in range(self.rng.randint(0, 12)):  # virtual milliseconds
            self.daemon.pass_a_millisecond()
        if how == "left":
            self.daemon.job.connection.close()
            self.daemon.fake.close()
            self.compare()
        return how


def spoil(life: Life) -> None:
    """Change one byte while it is on the host."""
    address = ok(cu.cuMemAlloc(2 * MIB))
    life.held[int(address)] = bytearray(2 * MIB)
    life.fill(int(address), 0, 2 * MIB)
    assert life.daemon.move(0)[0] == "reached"
    os.pwrite(life.pool, bytes([os.pread(life.pool, 1, 12_345)[0] ^ 1]), 12_345)
    life.daemon.move(EVERYTHING)
    try:
        life.compare()
    except AssertionError:
        os._exit(SPOILT)


def live(folder: Path, seed: int, count: int, told: int, *, spoilt: bool) -> None:
    """One process, to its end."""
    rng = random.Random(seed)
    ok(cu.cuInit(0))
    life = Life(folder, rng)
    if spoilt:
        spoil(life)
    for _ in range(count):
        life.sequence()
    how = life.end()
    life.seen[how] += 1
    os.write(told, json.dumps(life.seen).encode())
    os.close(told)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    folder, wanted, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    spoilt = sys.argv[4:] == ["spoil"]
    rng = random.Random(seed)
    witness = subprocess.Popen(
        [sys.executable, "-c", WITNESS],
        env=without_shim(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    alone = int(witness.stdout.readline())
    seen: Counter[str] = Counter()
    while seen["sequences"] < wanted:
        count = min(rng.randint(10, 40), wanted - seen["sequences"])
        life_seed = rng.randrange(2**32)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            live(folder, life_seed, count, writer, spoilt=spoilt)
            sys.stdout.flush()
            return 0
        os.close(writer)
        with os.fdopen(reader) as pipe:
            text = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if spoilt and code == SPOILT:
            return SPOILT
        if not text or code not in (0, -signal.SIGKILL):
            print(f"the process of seed {life_seed} ended with {code}", file=sys.stderr)
            return 1
        seen.update(json.loads(text))
        held = alone + 1
        while held != alone:  # the device hears of an end when it looks at its connections
            witness.stdin.write("\n")
            witness.stdin.flush()
            held = int(witness.stdout.readline())
    witness.stdin.close()
    witness.wait()
    print(json.dumps(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
