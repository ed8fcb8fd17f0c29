"""Objects on the software GPU are destroyed while a thread waits at the gate to use them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen

import pytest
from shim_daemon import FakeDaemon

# A submission is held, and meanwhile main ends what it uses.
PROGRAM = """
import sys, threading
from cuda.bindings import driver as cu
from same_answers import ENDS, note, things
from gpu import Gpu, ok
gpu = Gpu()
word, stream, event = things(gpu)
ENDS["context"] = lambda *_: note("destroy", cu.cuCtxDestroy(gpu.context))
if sys.argv[1] == "context":
    gpu.context = ok(cu.cuCtxCreate(None, 0, gpu.device))
    stream, word = ok(cu.cuStreamCreate(1)), ok(cu.cuMemAlloc(4))
def held():
    ok(cu.cuCtxSetCurrent(gpu.context))
    note("held", cu.cuMemsetD32Async(word, 1, 1, stream))
print("ready", flush=True)
sys.stdin.readline()
thread = threading.Thread(target=held)
thread.start()
sys.stdin.readline()
ENDS[sys.argv[1]](gpu, word, stream)
sys.stdin.readline()
thread.join()
ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(gpu.device))))
note("allocate", cu.cuMemAlloc(4))
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    listening = FakeDaemon(tmp_path)
    yield listening
    listening.close()


@pytest.mark.parametrize(
    ("what", "end", "answer"),
    [
        ("stream", "destroy", "ERROR_INVALID_HANDLE"),
        ("context", "destroy", "ERROR_CONTEXT_IS_DESTROYED"),
        ("primary", "reset", "ERROR_CONTEXT_IS_DESTROYED"),
        ("memory", "free", "ERROR_INVALID_VALUE"),
    ],
)
def test_what_ends_while_a_thread_is_held_is_gone_when_that_goes_on(
    what: str,
    end: str,
    answer: str,
    software_job: Callable[..., Popen[str]],
    daemon: FakeDaemon,
) -> None:
    with software_job(PROGRAM, what) as job:
        taken = daemon.attach()
        assert job.stdout.readline() == "ready\n"
        taken.process.set_gate(hold=True)
        job.stdin.write("\n")
        taken.until("waiting_threads", 1)

        job.stdin.write("\n")
        assert job.stdout.readline() == f"{end} SUCCESS\n"
        taken.process.set_gate(hold=False)
        rest, _ = job.communicate("\n", timeout=20)

        assert rest.splitlines() == [f"held {answer}", "allocate SUCCESS"]
        assert job.returncode == 0
