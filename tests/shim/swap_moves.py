"""Moves this process's memory out to the host and back; prints what was seen.

    python tests/shim/swap_moves.py SOCKET_FOLDER CASE

Runs in the environment of the software GPU with the shim preloaded. CASE is a function below; its
result is printed as one JSON object.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import subprocess
import sys
import threading
from functools import cache, partial
from itertools import product
from pathlib import Path

from cuda.bindings import driver as cu
from memory_limits import device_holds, ok, physical
from shim_daemon import VIRTUAL, FakeDaemon

MIB = 1 << 20
EVERYTHING = 2**64 - 1
GATE = 1  # WaitReason
SIZES = (3 * MIB // 2, 33 * MIB, 70 * MIB)  # one piece with room left in it, two pieces, three
ROUNDED = (2 * MIB, 34 * MIB, 70 * MIB)
OUTCOMES = ("none", "reached", "no host room", "not drained", "failed")
# Adds one to each word.
BUMP = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry bump(.param .u64 words, .param .u32 count) {
  .reg .b32 %r<6>; .reg .b64 %a<3>; .reg .pred %p;
  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
  mad.lo.s32 %r3, %r0, %r1, %r2;
  ld.param.u32 %r4, [count];
  setp.ge.u32 %p, %r3, %r4;
  @%p ret;
  ld.param.u64 %a0, [words];
  mad.wide.u32 %a1, %r3, 4, %a0;
  ld.global.u32 %r5, [%a1];
  add.u32 %r5, %r5, 1;
  st.global.u32 [%a1], %r5;
  ret;
}
\0"""
# Prints how much of the device is held.
ASK = """
from cuda.bindings import driver as cu
cu.cuInit(0)
cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1])
free, total = cu.cuMemGetInfo()[1:]
print(int(total) - int(free))
"""
# Holds a given amount of it until told to let go, and writes to a file whether it got that.
HOLD = """
import ctypes, pathlib, sys
from cuda.bindings import driver as cu
cu.cuInit(0)
cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1])
pathlib.Path(sys.argv[2]).write_text(cu.cuMemAlloc(int(sys.argv[1]))[0].name)
ctypes.CDLL("libcuda.so.1").softgpu_wait_begin()  # time passes meanwhile
sys.stdin.readline()
"""


@cache  # it is needed again to compare
def pattern(seed: int, size: int) -> bytes:
    """Return random bytes, so that every neighbourhood is different from all others."""
    return random.Random(seed).randbytes(size)


class Memory:
    """Device memory of several sizes, each filled with its own pattern."""

    def __init__(self, sizes=SIZES) -> None:
        self.sizes = sizes
        self.addresses = [ok(cu.cuMemAlloc(size)) for size in sizes]
        for seed, (address, size) in enumerate(zip(self.addresses, sizes, strict=True)):
            ok(cu.cuMemcpyHtoD(address, pattern(seed, size), size))

    def is_right(self) -> list[bool]:
        """Tell for each whether it still holds its pattern at its address."""
        found = []
        for seed, (address, size) in enumerate(zip(self.addresses, self.sizes, strict=True)):
            host = bytearray(size)
            ok(cu.cuMemcpyDtoH(host, address, size))
            found.append(host == pattern(seed, size))
        return found


class Daemon:
    """Attaches this process and moves its memory."""

    def __init__(self, folder: Path, *, swappable: bool = True) -> None:
        self.fake = FakeDaemon(folder)
        self.fake.swappable = swappable
        found = []
        answering = threading.Thread(target=lambda: found.append(self.fake.attach(clock=VIRTUAL)))
        answering.start()
        ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
        cu.cuMemGetInfo()
        answering.join(20)
        (self.job,) = found
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._driver.softgpu_now_ns.restype = ctypes.c_uint64
        # Each look stamps the heartbeat, by the job's clock.
        self.now_ns = self.job.now_ns = self._driver.softgpu_now_ns
        # The device may be old; without a stamp the daemon would seem to have hung for its whole
        # age.
        self.job.process.stamp(tick_ns=self.job.now_ns())

    def wait_for(self, is_over):
        """Look once a millisecond of device time, which stands still unless everybody waits."""
        while not is_over(seen := self.job.snapshot()):
            self.pass_a_millisecond()
        return seen

    def pass_a_millisecond(self) -> None:
        """Pass a millisecond of device time, which needs everybody else to wait, too."""
        self._driver.softgpu_wait_until_ns(ctypes.c_uint64(self.now_ns() + 1_000_000))

    def until(self, figure: str, value: object):
        """Wait until a figure of the snapshot has that value."""
        return self.wait_for(lambda seen: getattr(seen, figure) == value)

    def outlive(self, thing: threading.Thread | subprocess.Popen) -> None:
        """Wait until the thread or process has ended."""
        if isinstance(thing, threading.Thread):
            self.wait_for(lambda _: not thing.is_alive())
        else:
            self.wait_for(lambda _: thing.poll() is not None)

    def watch(self, number: int):
        """Return the bytes on the host, step by step until an order ends, and if each was news."""
        steps, told = [], []
        while True:
            news = self.job.poller.poll(now_ns=self.job.now_ns())
            (seen,) = self.job.poller.snapshots()
            if not steps or steps[-1] != seen.swapped_bytes:
                steps.append(seen.swapped_bytes)
                told.append(news)
            if seen.swap_done == number:
                return steps, told
            self.pass_a_millisecond()

    def move(self, target: int):
        """Give an order and wait for its end; return the outcome and the bytes then on the host."""
        seen = self.until("swap_done", self.job.order(target))
        return OUTCOMES[seen.swap_outcome], seen.swapped_bytes


def there_and_back(folder):
    """Everything moves out, and everything comes back."""
    daemon = Daemon(folder)
    before, before_for_others = device_holds(), held_by_all(daemon)
    memory = Memory()
    held = device_holds() - before
    daemon.job.give_pool(sum(ROUNDED))
    steps, told = daemon.watch(daemon.job.order(0))
    out = daemon.move(0)
    while_out = held_by_all(daemon) - before_for_others
    back = daemon.move(EVERYTHING)
    right = memory.is_right()
    for address in memory.addresses:
        ok(cu.cuMemFree(address))
    seen = daemon.job.snapshot()
    return {
        "held": held,
        "steps": steps,
        "told": told,
        "out": out,
        "while_out": while_out,
        "back": back,
        "right": right,
        "leaked": device_holds() - before,
        "counted": [seen.device_bytes, seen.swappable_bytes, seen.swapped_bytes],
        "copied": [seen.swap_out_bytes, seen.swap_in_bytes],
        "copied_ns": [seen.swap_out_ns, seen.swap_in_ns],
    }


def without_shim():
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def held_by_all(daemon):
    """Return the device ledger's total as another process sees it, one that waits for nothing."""
    asker = subprocess.Popen(
        [sys.executable, "-c", ASK], env=without_shim(), stdout=subprocess.PIPE, text=True
    )
    daemon.outlive(asker)
    return int(asker.communicate()[0])


def in_part(folder):
    """No more moves out than must, and what has come back may move out again."""
    daemon = Daemon(folder)
    memory = Memory()
    daemon.job.give_pool(sum(ROUNDED))
    moves = [daemon.move(target) for target in (40 * MIB, 80 * MIB, 10 * MIB, EVERYTHING)]
    return {"moves": moves, "right": memory.is_right()}


def said_twice(folder):
    """An order that the process is told of twice is carried out once."""
    daemon = Daemon(folder)
    memory = Memory((2 * MIB,) * 24)  # more than are in flight at a time
    daemon.job.give_pool(sum(memory.sizes))
    number = daemon.job.order(0)
    daemon.wait_for(lambda seen: seen.swapped_bytes > 0)
    daemon.job.say_order()
    seen = daemon.until("swap_done", number)
    out = OUTCOMES[seen.swap_outcome], seen.swapped_bytes
    return {"out": out, "back": daemon.move(EVERYTHING), "right": memory.is_right()}


def without_room_on_the_host(folder):
    """Nothing moves unless there is a home for everything that has to move."""
    daemon = Daemon(folder)
    memory = Memory()
    nowhere = daemon.move(0)
    daemon.job.give_pool(64 * MIB)
    too_little = daemon.move(0)
    fits = daemon.move(sum(ROUNDED) - 32 * MIB)
    return {
        "moves": [nowhere, too_little, fits, daemon.move(EVERYTHING)],
        "right": memory.is_right(),
    }


def descriptors_that_do_not_come(folder):
    """Pools whose descriptor is lost still count, and lost files are answered."""
    daemon = Daemon(folder)
    memory = Memory()
    daemon.job.give_pool(sum(ROUNDED), comes=False)
    pool = daemon.job.give_pool(sum(ROUNDED))
    out = daemon.move(0)
    file = os.memfd_create("file", os.MFD_CLOEXEC)
    os.pwrite(file, os.pread(pool, sum(ROUNDED), 0), 0)
    answers = []
    for number, fd in ((1, file), (2, None), (2, file)):
        seen = daemon.until("swap_done", daemon.job.offer_file(number, fd))
        answers.append((OUTCOMES[seen.swap_outcome], seen.filed_bytes))
    back = daemon.move(EVERYTHING)
    return {"out": out, "answers": answers, "back": back, "right": memory.is_right()}


def work_waits(folder):
    """Work, a query and an allocation wait until everything is back, then do what they should."""
    daemon = Daemon(folder)
    memory = Memory()
    daemon.job.give_pool(sum(ROUNDED))
    out = daemon.move(0)
    done = []

    def work():
        ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
        ok(cu.cuMemsetD32(memory.addresses[0], 7, 1))
        base, size = cu.cuMemGetAddressRange(int(memory.addresses[2]) + 40 * MIB)[1:]
        done.append([int(base) == int(memory.addresses[2]), int(size)])
        done.append(cu.cuMemAlloc(MIB)[0].name)

    worker = threading.Thread(target=work)
    worker.start()
    waiting = daemon.until("waiting_threads", 1)
    early = list(done)
    back = daemon.move(EVERYTHING)
    daemon.outlive(worker)
    host = bytearray(8)
    ok(cu.cuMemcpyDtoH(host, memory.addresses[0], 8))
    return {
        "out": out,
        "reason": waiting.wait_reason,
        "early": early,
        "back": back,
        "done": done,
        "set": int.from_bytes(host[:4], "little"),
        "beside_it": host[4:] == pattern(0, 8)[4:],
    }


def work_that_does_not_end(folder):
    """The GPU may wait for work of a thread that the closed door keeps out."""
    daemon = Daemon(folder)
    memory = Memory()
    daemon.job.give_pool(sum(ROUNDED))
    flag, beside = ok(cu.cuMemAlloc(64)), ok(cu.cuMemAlloc(64))
    ok(cu.cuMemsetD32(flag, 0, 1))
    stream = ok(cu.cuStreamCreate(1))
    ok(cu.cuStreamWaitValue32(stream, flag, 1, 0))
    daemon.job.order(0)
    written = []
    over = threading.Event()

    def in_context(body):
        ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
        body(ok(cu.cuStreamCreate(1)))

    def knock(own):  # until the door is shut, and then at it
        while not over.is_set():
            ok(cu.cuMemsetD32Async(beside, 0, 1, own))

    def write(own):
        ok(cu.cuMemsetD32Async(flag, 1, 1, own))
        written.append(True)

    knocker = threading.Thread(target=in_context, args=(knock,))
    writer = threading.Thread(target=in_context, args=(write,))
    knocker.start()
    daemon.until("waiting_threads", 1)
    writer.start()
    daemon.until("waiting_threads", 2)
    over.set()
    kept_out = not written
    ended = daemon.move(EVERYTHING)
    daemon.outlive(writer)
    daemon.outlive(knocker)
    ok(cu.cuStreamSynchronize(stream))
    return {"kept_out": kept_out, "ended": ended, "written": written, "right": memory.is_right()}


def in_the_way(daemon, size, answer):
    """Start another process that holds `size` bytes; it writes to the file whether it got them."""
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(size), str(answer)],
        env=without_shim(),
        stdin=subprocess.PIPE,
        text=True,
    )
    daemon.wait_for(lambda _: answer.exists() and answer.read_text())
    return other


def room_is_taken(folder):
    """Others have taken the free memory: the job waits for room, and loses nothing."""
    daemon = Daemon(folder)
    memory = Memory()
    daemon.job.give_pool(sum(ROUNDED))
    total = int(ok(cu.cuDeviceTotalMem(0)))
    out = daemon.move(0)
    answer = folder / "answer"
    other = in_the_way(daemon, total - 80 * MIB, answer)
    number = daemon.job.order(EVERYTHING)
    # First comes what there is room for. After that the job keeps looking for more room.
    daemon.wait_for(lambda seen: seen.swapped_bytes < sum(ROUNDED))
    later_ns = daemon.job.now_ns() + 100_000_000
    half = daemon.wait_for(lambda _: daemon.job.now_ns() > later_ns)
    early = half.swap_done == number or half.swapped_bytes == 0
    other.stdin.close()
    daemon.outlive(other)
    seen = daemon.until("swap_done", number)
    return {
        "out": out,
        "taken": answer.read_text(),
        "early": early,
        "left": seen.swapped_bytes,
        "right": memory.is_right(),
        "copied_ns": seen.swap_in_ns,
    }


FOLLOWING = (128 * MIB,)  # four pieces


def one_follows_the_other(folder):
    """One process comes in while another moves out, with no more room than the other makes."""
    daemon = Daemon(folder)
    memory = Memory(FOLLOWING)
    daemon.job.give_pool(sum(FOLLOWING))
    daemon.move(0)
    place = folder / "other"
    place.mkdir()
    other = subprocess.Popen(
        [sys.executable, __file__, str(place), "makes_room"],
        env={**os.environ, "TANDEM_RUNTIME_DIR": str(place)},
        stdout=subprocess.PIPE,
        text=True,
    )
    daemon.wait_for(lambda _: (place / "ready").exists())
    number = daemon.job.order(EVERYTHING)
    (place / "go").touch()
    daemon.until("swap_done", number)
    daemon.outlive(other)
    return {
        "right": memory.is_right(),
        "other": json.loads(other.communicate()[0]),
        "pids": [os.getpid(), other.pid],
    }


def makes_room(folder):
    """Take the rest of the device but for part of a piece; give some of it up when told."""
    daemon = Daemon(folder)
    free = int(cu.cuMemGetInfo()[1])
    held = (free - 20 * MIB) // (2 * MIB) * 2 * MIB
    ok(cu.cuMemAlloc(held))
    daemon.job.give_pool(sum(FOLLOWING) + 32 * MIB)
    (folder / "ready").touch()
    daemon.wait_for(lambda _: (folder / "go").exists())
    return daemon.move(held - sum(FOLLOWING))


SMALL = (1, 255, 256, 257, 5_000, 300_000, MIB - 1, 64) * 3
BUFFER_ID = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_BUFFER_ID
RANGE_SIZE = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_RANGE_SIZE


def small_ones(folder):
    """Small allocations move, answer like others, and give back to the device what they took."""
    daemon = Daemon(folder)
    before = device_holds()
    memory = Memory(SMALL)
    spans = sorted(zip((int(a) for a in memory.addresses), SMALL, strict=True))
    ranges = [cu.cuMemGetAddressRange(at + size - 1)[1:] for at, size in spans]
    holding = daemon.job.snapshot()
    held = device_holds() - before
    daemon.job.give_pool(held)
    out = daemon.move(0)
    back = daemon.move(EVERYTHING)
    right = memory.is_right()
    seen = {
        "spans": spans,
        "ranges": [(int(base), int(size)) for base, size in ranges],
        "sizes": [ok(cu.cuPointerGetAttribute(RANGE_SIZE, at)) for at, _ in spans],
        "ids": [ok(cu.cuPointerGetAttribute(BUFFER_ID, at)) for at, _ in spans],
        "held": held,
        "counted": [holding.device_bytes, holding.swappable_bytes],
        "out": out,
        "back": back,
        "right": right,
    }
    for address in memory.addresses:
        ok(cu.cuMemFree(address))
    again = cu.cuMemFree(memory.addresses[0])[0].name
    return seen | {
        "again": again,
        "left": [device_holds() - before, daemon.job.snapshot().device_bytes],
    }


def small_ones_at_the_limit(folder):
    """If the limit has no room for a slab, the driver gives small memory, up to the last byte."""
    daemon = Daemon(folder)
    daemon.job.process.set_memory_limit(limit_bytes=3 * MIB)
    in_a_slab = ok(cu.cuMemAlloc(MIB // 2))
    ok(cu.cuMemFree(in_a_slab))
    large = [cu.cuMemAlloc(2 * MIB)[0].name]  # the empty slab is released for it
    small = [cu.cuMemAlloc(MIB // 4)[0].name for _ in range(5)]
    seen = daemon.job.snapshot()
    return {"granted": large + small, "counted": [seen.device_bytes, seen.swappable_bytes]}


def context_ends(folder):
    """A context's small memory goes with it and is no longer counted."""
    daemon = Daemon(folder)
    before = device_holds()
    context = ok(cu.cuCtxCreate(None, 0, 0))
    for size in SMALL:
        ok(cu.cuMemAlloc(size))
    holding = daemon.job.snapshot().device_bytes
    ok(cu.cuCtxDestroy(context))
    ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
    ok(cu.cuMemFree(ok(cu.cuMemAlloc(1))))  # the new context works
    seen = daemon.job.snapshot()
    return {"before": holding, "after": [seen.device_bytes, device_holds() - before]}


def daemon_ends(folder):
    """The daemon ends while everything is out: the memory comes back by itself."""
    daemon = Daemon(folder)
    memory = Memory()
    daemon.job.give_pool(sum(ROUNDED))
    out = daemon.move(0)
    daemon.job.connection.close()
    daemon.fake.close()
    return {"out": out, "right": memory.is_right()}


def launch_kernel(kernel, arguments):
    return cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0)


def launch_kernel_ex(kernel, arguments):
    config = cu.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX = config.blockDimY = config.blockDimZ = 1
    return cu.cuLaunchKernelEx(config, kernel, arguments, 0)


def launch_ex_without_daemon(folder):
    """Launch with the other call, which has a path of its own."""
    return launch_without_daemon(folder, launch=launch_kernel_ex)


def launch_without_daemon(folder, launch=launch_kernel):
    """Launch a kernel after the daemon has gone while the kernel's memory is away."""
    daemon = Daemon(folder)
    memory = Memory()
    kernel = ok(cu.cuModuleGetFunction(ok(cu.cuModuleLoadData(BUMP)), b"bump"))
    daemon.job.give_pool(sum(ROUNDED))
    context = ok(cu.cuCtxGetCurrent())
    out = daemon.move(0)
    other = in_the_way(daemon, int(ok(cu.cuDeviceTotalMem(0))) - 80 * MIB, folder / "answer")
    daemon.job.connection.close()
    daemon.fake.close()
    daemon.fake = FakeDaemon(folder)
    while not daemon.fake.has_caller():  # it looks for a daemon, so it has none
        daemon.pass_a_millisecond()
    done = []

    def work():
        cu.cuCtxSetCurrent(context)
        arguments = ((int(memory.addresses[0]), 1), (ctypes.c_void_p, ctypes.c_uint32))
        done.append(launch(kernel, arguments)[0].name)
        done.append(cu.cuStreamSynchronize(0)[0].name)

    worker = threading.Thread(target=work)
    worker.start()
    for _ in range(100):
        daemon.pass_a_millisecond()
    early = list(done)
    other.stdin.close()
    while worker.is_alive() or other.poll() is None:
        daemon.pass_a_millisecond()
    first = bytearray(4)
    ok(cu.cuMemcpyDtoH(first, memory.addresses[0], 4))
    added = int.from_bytes(first, "little") - int.from_bytes(pattern(0, SIZES[0])[:4], "little")
    return {"out": out, "early": early, "done": done, "added": added}


def another_daemon_comes(folder):
    """A thread waits for its memory meanwhile; once that is back, it asks the new daemon."""
    daemon = Daemon(folder)
    memory = Memory()
    daemon.job.give_pool(sum(ROUNDED))
    context = ok(cu.cuCtxGetCurrent())
    out, done = daemon.move(0), []
    other = in_the_way(daemon, int(ok(cu.cuDeviceTotalMem(0))) - 80 * MIB, folder / "answer")

    def work():
        cu.cuCtxSetCurrent(context)
        done.append(cu.cuMemsetD8(memory.addresses[0], 7, 1)[0].name)

    worker = threading.Thread(target=work)
    worker.start()
    daemon.until("waiting_threads", 1)
    daemon.job.connection.close()
    daemon.fake.close()
    daemon.fake = FakeDaemon(folder)
    daemon.fake.swappable = True
    found = []
    attach = partial(daemon.fake.attach, hold=True, clock=VIRTUAL)
    answering = threading.Thread(target=lambda: found.append(attach()))
    answering.start()
    while not found:
        daemon.pass_a_millisecond()
    (daemon.job,) = found
    daemon.job.now_ns = daemon.now_ns
    other.stdin.close()
    daemon.outlive(other)
    daemon.wait_for(lambda seen: done or (seen.wait_reason, seen.swapped_bytes) == (GATE, 0))
    early = list(done)
    daemon.job.process.set_gate(hold=False)
    daemon.outlive(worker)
    return {"out": out, "early": early, "done": done}


def copy_fails(folder):
    """A failed copy breaks the context: the job sees the error, and no other process does."""
    daemon = Daemon(folder)
    memory = Memory()
    daemon.job.give_pool(sum(ROUNDED))
    moves = [daemon.move(target)[0] for target in (0, EVERYTHING)]
    answer = cu.cuMemsetD32(memory.addresses[0], 7, 1)[0].name
    return {"moves": moves, "answer": answer, "others": held_by_all(daemon) > 0}


def device_is_lost(folder):
    """The device is lost while everything is out: a thread that waits for memory gets an error."""
    daemon = Daemon(folder)
    memory = Memory()
    daemon.job.give_pool(sum(ROUNDED))
    out = daemon.move(0)
    command = [sys.executable, __file__, str(folder), "lose_device"]
    daemon.outlive(subprocess.Popen(command, env=without_shim(), stdout=subprocess.DEVNULL))
    answers = []

    def work():
        cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1])
        answers.append(cu.cuMemsetD32(memory.addresses[0], 7, 1)[0].name)

    worker = threading.Thread(target=work)
    worker.start()
    back = daemon.move(EVERYTHING)
    daemon.outlive(worker)
    return {"out": out, "back": back, "answers": answers}


def lose_device(folder):
    """Launch the kernel that makes the device fail."""
    ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
    kernel = ok(cu.cuModuleGetFunction(ok(cu.cuModuleLoadData(BUMP)), b"bump"))
    arguments = ((ok(cu.cuMemAlloc(4)), 1), (ctypes.c_void_p, ctypes.c_uint32))
    cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0)
    return cu.cuCtxSynchronize()[0].name


def begin_capture(mode="THREAD_LOCAL"):
    """Begin a capture in a new stream."""
    stream = ok(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))
    modes = cu.CUstreamCaptureMode
    ok(cu.cuStreamBeginCapture(stream, getattr(modes, f"CU_STREAM_CAPTURE_MODE_{mode}")))
    return stream


def captured_on_the_way_back(folder):
    """A graph is captured while memory comes back for which there is no room yet."""
    daemon = Daemon(folder)
    memory = Memory()
    daemon.job.give_pool(sum(ROUNDED))
    out, answer = daemon.move(0), folder / "answer"
    other = in_the_way(daemon, int(ok(cu.cuDeviceTotalMem(0))) - 80 * MIB, answer)
    number = daemon.job.order(EVERYTHING)
    daemon.wait_for(lambda seen: seen.swapped_bytes < sum(ROUNDED))
    stream = begin_capture()
    later_ns = daemon.job.now_ns() + 100_000_000
    daemon.wait_for(lambda _: daemon.job.now_ns() > later_ns)
    ok(cu.cuMemsetD8Async(memory.addresses[0], 0, 1, stream))  # captured, not executed
    other.stdin.close()
    daemon.outlive(other)
    daemon.until("swap_done", number)
    status = cu.cuStreamEndCapture(stream)[0].name
    seen = daemon.job.snapshot()
    back = OUTCOMES[seen.swap_outcome], seen.swapped_bytes
    return {"out": out, "back": back, "captured": status, "right": memory.is_right()}


def frees_beside_a_capture(folder):
    """Memory is freed by another thread, twice, while a graph is captured."""
    daemon = Daemon(folder)
    context = ok(cu.cuCtxGetCurrent())
    before = daemon.job.snapshot().device_bytes
    frees, ends = {}, {}
    for mode, size in product(("GLOBAL", "THREAD_LOCAL", "RELAXED"), (100, 4 * MIB)):
        address, says = ok(cu.cuMemAlloc(size)), []
        stream = begin_capture(mode)

        def free(address=address, says=says):
            cu.cuCtxSetCurrent(context)
            says += [cu.cuMemFree(address)[0].name for _ in range(2)]

        worker = threading.Thread(target=free)
        worker.start()
        daemon.outlive(worker)
        frees[f"{mode} {size}"] = says
        ends[mode] = cu.cuStreamEndCapture(stream)[0].name
        if says[0] != "CUDA_SUCCESS":
            ok(cu.cuMemFree(address))
    during = daemon.job.snapshot().device_bytes - before
    ok(cu.cuMemFree(ok(cu.cuMemAlloc(4 * MIB))))
    after = daemon.job.snapshot().device_bytes - before
    return {"frees": frees, "ends": ends, "held": [during, after]}


def freed_beside_a_capture_and_wanted(folder):
    """Memory freed beside a capture makes room for later allocations but stream-ordered ones."""
    Daemon(folder)
    size = int(ok(cu.cuDeviceTotalMem(0))) * 2 // 3
    array = cu.CUDA_ARRAY_DESCRIPTOR()
    array.Width, array.Height, array.NumChannels = MIB // 16, size // MIB, 4
    array.Format = cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT32
    kinds = {
        "linear": (lambda: cu.cuMemAlloc(size), cu.cuMemFree),
        "physical": (lambda: physical(size // (2 * MIB) * 2 * MIB), cu.cuMemRelease),
        "array": (lambda: cu.cuArrayCreate(array), cu.cuArrayDestroy),
        "pool": (lambda: cu.cuMemAllocAsync(size, 0), lambda one: cu.cuMemFreeAsync(one, 0)),
    }
    answers = {}
    for kind, (allocate, free) in kinds.items():
        first = ok(cu.cuMemAlloc(size))
        stream = begin_capture("RELAXED")
        said = [cu.cuMemFree(first)[0].name, cu.cuStreamEndCapture(stream)[0].name]
        status, *second = allocate()
        answers[kind] = [*said, status.name]
        if second and not status:
            ok(free(second[0]))
        ok(cu.cuCtxSynchronize())
    return {"answers": answers}


def given_to_a_network_card(folder):
    """Memory that another device's driver knows of stays where it is; the rest moves out."""
    daemon = Daemon(folder)
    told, untold = ok(cu.cuMemAlloc(4 * MIB)), ok(cu.cuMemAlloc(6 * MIB))
    daemon.job.give_pool(10 * MIB)
    kind = cu.CUmemRangeHandleType.CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
    cu.cuMemGetHandleForAddressRange(told, 4 * MIB, kind, 0)
    out = daemon.move(0)
    stays = [cu.cuMemGetAccess(here(), each)[0].name for each in (told, untold)]
    return {"out": out, "stays": stays, "back": daemon.move(EVERYTHING)}


def bound_for_several_gpus(folder):
    """Memory bound by its address stays, whatever the driver answers; the rest moves out."""
    daemon = Daemon(folder)
    bound, other = ok(cu.cuMemAlloc(4 * MIB)), ok(cu.cuMemAlloc(6 * MIB))
    daemon.job.give_pool(10 * MIB)
    said = cu.cuMulticastBindAddr(cu.CUmemGenericAllocationHandle(), 0, bound, 4 * MIB, 0)[0]
    out = daemon.move(0)
    stays = [cu.cuMemGetAccess(here(), each)[0].name for each in (bound, other)]
    return {"answer": said.name, "out": out, "stays": stays, "back": daemon.move(EVERYTHING)}


def here():
    """Return the device as a location of memory."""
    place = cu.CUmemLocation()
    place.type, place.id = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
    return place


def small_memory(folder):
    """Return where the parts of a slab begin."""
    Daemon(folder)
    return {"begin_at": [int(ok(cu.cuMemAlloc(100))) % 512 for _ in range(3)]}


def allocated_in_a_per_thread_capture(folder):
    """Memory allocated in a capture of the thread's default stream belongs to the graph."""
    daemon = Daemon(folder)
    before = daemon.job.snapshot().device_bytes
    entry = ctypes.CDLL("libcuda.so.1")
    own, address, graph = ctypes.c_void_p(0), ctypes.c_uint64(0), ctypes.c_void_p(0)
    said = [
        entry.cuStreamBeginCapture_v2_ptsz(own, 0),
        entry.cuMemAllocAsync_ptsz(ctypes.byref(address), ctypes.c_size_t(4 * MIB), own),
    ]
    held = daemon.job.snapshot().device_bytes - before
    said += [
        entry.cuMemFreeAsync_ptsz(address, own),
        entry.cuStreamEndCapture_ptsz(own, ctypes.byref(graph)),
    ]
    return {"answers": said, "held": held}


def frees_the_first_of_a_slab_twice(folder):
    """The others in the slab remain unchanged."""
    Daemon(folder)
    addresses = [ok(cu.cuMemAlloc(100)) for _ in range(3)]
    for word, address in enumerate(addresses):
        ok(cu.cuMemsetD32(address, word, 25))
    frees = [cu.cuMemFree(addresses[0])[0].name for _ in range(2)]
    others = bytearray(4), bytearray(4)
    for host, address in zip(others, addresses[1:], strict=True):
        ok(cu.cuMemcpyDtoH(host, address, 4))
    return {"frees": frees, "others": [host[0] for host in others]}


def not_swappable(folder):
    """A job whose memory must not be moved keeps the driver's allocator."""
    daemon = Daemon(folder, swappable=False)
    memory = Memory()
    handle = cu.CUmemGenericAllocationHandle
    status, *_ = cu.cuMemRetainAllocationHandle(memory.addresses[1])
    return {"moves": [daemon.move(0)], "virtual": status.name, "kind": handle.__name__}


def main():
    ok(cu.cuInit(0))
    folder, case = Path(sys.argv[1]), sys.argv[2]
    json.dump(globals()[case](folder), sys.stdout)


if __name__ == "__main__":
    main()
