"""A thread that the driver blocks because its queue is full, on the software GPU."""

from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen

import pytest
from shim_daemon import Attached, FakeDaemon

ROUNDS_NS = 20_000_000  # the helper runs about a hundred times in that span

# Makes the calls without Python between them. Otherwise the helper could put a marker into the
# queue while the thread waits for the interpreter, and could itself be the one that is blocked.
FILL = """
extern "C" void fill(int (*memset)(unsigned long long, unsigned, unsigned long, void*),
                     unsigned long long word, void* stream, unsigned count,
                     volatile unsigned* done) {
  for (unsigned i = 0; i < count; ++i) {
    memset(word, i, 1, stream);
    *done = i + 1;
  }
}
"""
# One thread fills the context's queue behind a value that main writes only after it has asked for
# something else. Main keeps asking until the other thread has not moved for a long time.
PROGRAM = """
import ctypes, os, sys, threading
from cuda.bindings import driver as cu
from gpu import Gpu, ok
MEMSETS, LONG = 100, 2000
gpu = Gpu()
word, page = gpu.word(0), ok(cu.cuMemHostAlloc(4, 0))
first, second = (ok(cu.cuStreamCreate(1)) for _ in range(2))
ok(cu.cuMemsetD32Async(gpu.word(0), 1, 1, second))
ok(cu.cuStreamSynchronize(second))
flag, done = ctypes.c_uint32.from_address(page), ctypes.c_uint32(0)
flag.value = 0
filling, driver = ctypes.CDLL(os.environ["TEST_FILL"]), ctypes.CDLL("libcuda.so.1")
def fill():
    ok(cu.cuCtxSetCurrent(gpu.context))
    ok(cu.cuStreamWaitValue32(first, page, 1, 0))
    filling.fill(  # many in a segment
        driver.cuMemsetD32Async,
        ctypes.c_uint64(int(word)),
        ctypes.c_void_p(int(first)),
        MEMSETS,
        ctypes.byref(done),
    )
print("ready", flush=True)
sys.stdin.readline()
thread = threading.Thread(target=fill)
thread.start()
seen = unmoved = 0
while unmoved < LONG:
    ok(cu.cuStreamQuery(second))
    unmoved = unmoved + 1 if 0 < done.value == seen else 0
    seen = done.value
print("full" if seen < MEMSETS else "it fits", flush=True)
sys.stdin.readline()
ok(cu.cuStreamQuery(second))
flag.value = 1
thread.join()
ok(cu.cuCtxSynchronize())
print(gpu.read(word), flush=True)
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    listening = FakeDaemon(tmp_path)
    yield listening
    listening.close()


def wait_for_rounds(taken: Attached) -> None:
    """Wait until the helper has run often from now on, which it cannot if the driver blocks it."""
    began_ns = taken.snapshot().helper_tick_ns
    while taken.snapshot().helper_tick_ns < began_ns + ROUNDS_NS:
        pass


@pytest.mark.parametrize("markers", ["write", "event"])
def test_neither_who_asks_nor_the_helper_is_kept_where_another_thread_is(
    markers: str,
    software_job: Callable[..., Popen[str]],
    program: Callable[..., Path],
    daemon: FakeDaemon,
) -> None:
    fill = program(FILL, "-shared", "-fPIC", name="fill.so")
    settings = {"TANDEM_MARKERS": markers, "TANDEM_SOFTGPU_QUEUE": "32", "TEST_FILL": str(fill)}
    with software_job(PROGRAM, **settings) as job:
        taken = daemon.attach()
        assert job.stdout.readline() == "ready\n"
        job.stdin.write("\n")
        assert job.stdout.readline() == "full\n"

        wait_for_rounds(taken)

        rest, _ = job.communicate("\n", timeout=20)
        assert rest == "[99]\n"
        assert job.returncode == 0
