"""Random lives of processes whose memory is moved, checked byte by byte; prints what they saw.

    python tests/shim/swap_sequences.py FOLDER SEQUENCES SEED [spoil]

Runs in the environment of the software GPU, on its virtual clock, with the shim preloaded. A
process goes through some sequences of allocations, frees, writes, kernels and moves, and ends in
the middle of a move: it is killed, abandoned by its daemon, or ends by itself. Then the next
process begins. While memory is away, files replace the host's memory (swap_homes.py), or come too
late, or the program closes them, and host memory is given back. Two other processes
(swap_openers.py) open some of the memory, use it whether the rest is away or not, and end before or
after its owner. Graphs are captured over many steps (swap_captures.py): nothing moves meanwhile,
and freed memory goes later. After each sequence every byte is what the model says, and after each
process the device has all of its memory back. With `spoil`, one byte is changed while it is on the
host: the comparison must find it, and the program ends with 3.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import traceback
from collections import Counter
from pathlib import Path

from cuda.bindings import driver as cu
from memory_limits import ok
from swap_life import Life
from swap_moves import EVERYTHING, MIB, without_shim
from swap_openers import Opener

SPOILT = 3
OPENERS = 2  # of each process
ENDS = ("killed", "left", "ends")  # how a process ends
# Prints what other processes hold of the device, each time it is asked.
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


def spoil(life: Life) -> None:
    """Change one byte while it is on the host, in whichever pool it is."""
    address = ok(cu.cuMemAlloc(2 * MIB))
    life.held[int(address)] = bytearray(2 * MIB)
    life.fill(int(address), 0, 2 * MIB)
    assert life.daemon.move(0)[0] == "reached"
    for pool in life.homes.pools.values():
        os.pwrite(pool, bytes([os.pread(pool, 1, 12_345)[0] ^ 1]), 12_345)
    life.daemon.move(EVERYTHING)
    try:
        life.compare()
    except AssertionError:
        os._exit(SPOILT)


def live(
    folder: Path, seed: int, count: int, told: int, openers: list[Opener], *, spoilt: bool
) -> None:
    """Run one process to its end."""
    rng = random.Random(seed)
    ok(cu.cuInit(0))
    life = Life(folder, rng, openers)
    if spoilt:
        spoil(life)
    for _ in range(count):
        life.sequence()
    how = random.Random(seed).choice(ENDS)  # whatever else has been drawn so far
    life.end(how)
    life.seen[how] += 1
    os.write(told, json.dumps(life.seen).encode())
    os.close(told)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)


def run(folder: Path, seed: int, count: int, *, spoilt: bool) -> tuple[int, Counter[str]]:
    """Run a process and those that open its memory; return its exit code, and what it saw.

    The code is negative for a signal, and 1 if one of the openers ended badly.
    """
    openers: list[Opener] = []
    for number in range(OPENERS):
        openers += [Opener(folder / f"o{number}", openers)]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            live(folder, seed, count, writer, openers, spoilt=spoilt)
        except Exception:
            traceback.print_exc()
            os._exit(1)  # one of its threads may wait for something that never comes
        sys.exit(0)
    os.close(writer)
    for opener in openers:
        opener.let_go()
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    code = exit_code(child)
    others = [exit_code(opener.pid) for opener in openers]
    if spoilt or not text or code not in (0, -signal.SIGKILL):
        return code or 1, Counter()
    return int(any(each not in (0, -signal.SIGKILL) for each in others)), Counter(json.loads(text))


def exit_code(pid: int) -> int:
    """Wait for the process and return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


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
        code, saw = run(folder, life_seed, count, spoilt=spoilt)
        if spoilt and code == SPOILT:
            return SPOILT
        if code != 0:
            print(f"the process of seed {life_seed} ended with {code}", file=sys.stderr)
            return 1
        seen.update(saw)
        held = alone + 1
        while held != alone:  # the device notices an end when it looks at its connections
            witness.stdin.write("\n")
            witness.stdin.flush()
            held = int(witness.stdout.readline())
    witness.stdin.close()
    witness.wait()
    print(json.dumps(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
