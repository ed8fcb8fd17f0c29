"""Traces of calls, from real processes over the recording driver."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from shim_support import GENERATED, Preload

from tandem._native import TRACE_CALLS, Tracer
from tandem.trace.records import Call, Decoder, Lost
from tandem.trace.table import parse_table

KEY = 0xABCDEF
PATIENT_MS = 20_000
TABLE = parse_table(TRACE_CALLS)

PRELUDE = r"""
#include <cuda.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <thread>
typedef int (*Any)(long, long, long, long, long, long, long, long, long, long, long, long);
static void* driver() { static void* found = dlopen("libcuda.so.1", RTLD_NOW); return found; }
static int zeros(const char* name) {
  return ((Any)dlsym(driver(), name))(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}
static int alloc(size_t bytes) {
  CUdeviceptr address;
  return ((int (*)(CUdeviceptr*, size_t))dlsym(driver(), "cuMemAlloc_v2"))(&address, bytes);
}
"""


class Traced:
    """A tracer, and programs that write to it."""

    def __init__(self, preload: Preload, program: Callable[..., Path]) -> None:
        self._preload = preload
        self._program = program
        self._decoder = Decoder(TABLE)
        self.lost = 0

    def start(
        self, body: str, *arguments: str, wait_ms: int = PATIENT_MS, flags: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]:
        self.tracer = Tracer(device_times=False, wait_ms=wait_ms, key=KEY)
        include = ("-isystem", str(_cuda_include()), f"-I{GENERATED}", *flags)
        path = self._program(PRELUDE + body, *include)
        place = f"/proc/self/fd/{self.tracer.fd}:{KEY:x}"
        env = self._preload.environment(TANDEM_TRACE_CALLS=place)
        return subprocess.Popen(
            [path, *arguments],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=(self.tracer.fd,),
        )

    def calls(self) -> list[Call]:
        """Return the calls since the last time, in order."""
        items = list(self._decoder.feed(self.tracer.drain(look_for_dead=True)))
        self.lost += sum(item.count for item in items if isinstance(item, Lost))
        calls = [item for item in items if isinstance(item, Call)]
        return sorted(calls, key=lambda call: call.number)

    def run(self, body: str, *arguments: str) -> list[Call]:
        """Return all calls of a program that prints nothing."""
        process = self.start(body, *arguments)
        output, _ = process.communicate()
        assert output == ""
        return self.calls()


def _cuda_include() -> Path:
    import ninja_build

    return ninja_build.cuda_include()


@pytest.fixture
def traced(preload: Preload, program: Callable[..., Path]) -> Iterator[Traced]:
    return Traced(preload, program)


def test_every_intercepted_call_is_traced_once(traced: Traced) -> None:
    calls = traced.run(r"""
        int main() {
        #define CALL(symbol) zeros(#symbol);
        #include "shim_calls.inc"
        }""")

    of_driver = [call.name for call in TABLE.calls if call.group != "mark"]
    assert [call.type.name for call in calls] == of_driver
    assert [call.number for call in calls] == list(range(1, len(calls) + 1))


def test_arguments_and_results_are_those_of_the_call(traced: Traced) -> None:
    good, bad = traced.run('int main() { alloc(4096); zeros("cuMemAlloc_v2"); }')

    pointer, value, size = good.words
    assert (good.result, size) == (0, 4096)
    assert pointer > 0
    assert value >= 0x7000_0000_0000
    assert (bad.result, bad.words) == (1, (0, 0, 0))


def test_marks_are_in_the_trace_in_their_place(traced: Traced) -> None:
    calls = traced.run(r"""
        int main() {
          using Mark = int (*)(int, unsigned long, unsigned long);
          const auto mark = (Mark)dlsym(RTLD_DEFAULT, "tandem_mark_v1");
          alloc(1);
          mark(2, 77, 0);
          mark(99, 0, 0);
          alloc(2);
          mark(1, 5, 6);
        }""")

    assert [(call.type.name, call.number) for call in calls] == [
        ("cuMemAlloc_v2", 1),
        ("tandem_mark_v1", 2),
        ("cuMemAlloc_v2", 3),
        ("tandem_mark_v1", 4),
    ]
    assert [call.words for call in calls[1::2]] == [(2, 77, 0), (1, 5, 6)]


def test_a_call_in_a_stream_is_of_the_stream_s_context_whichever_is_current(traced: Traced) -> None:
    in_stream, in_default, destroyed = traced.run(r"""
        int main() {
          const auto record = (int (*)(long, long))dlsym(driver(), "cuEventRecord");
          record(42, 5);
          record(42, 0);
          ((int (*)(long))dlsym(driver(), "cuStreamDestroy_v2"))(5);
        }""")

    assert [call.context for call in (in_stream, in_default, destroyed)] == [0x1000, 0, 0]


def test_forked_and_executed_children_are_traced_as_themselves(traced: Traced) -> None:
    calls = traced.run(r"""
        int main(int argc, char** argv) {
          alloc(argc);
          if (argc > 1) return 0;
          if (fork() == 0) {
            alloc(10);
            execl(argv[0], argv[0], "again", nullptr);
          }
          wait(nullptr);
          alloc(11);
        }""")

    sizes = [call.words[2] for call in calls]
    parent, child = calls[0].pid, calls[1].pid
    assert sizes == [1, 10, 2, 11]
    assert [call.pid for call in calls] == [parent, child, child, parent]
    assert parent != child


def test_what_a_killed_program_has_called_is_kept(traced: Traced) -> None:
    process = traced.start("int main() { alloc(1); alloc(2); kill(getpid(), SIGKILL); }")
    process.communicate()

    assert process.returncode == -9
    assert [call.words[2] for call in traced.calls()] == [1, 2]


def test_more_threads_than_rings_lose_nothing(traced: Traced) -> None:
    process = traced.start(r"""
        int main() {
          for (int i = 0; i < 1100; ++i) std::thread([i] { alloc(i + 1); }).join();
        }""")
    calls = []
    while process.poll() is None:
        calls += traced.calls()
    calls += traced.calls()
    process.communicate()
    calls.sort(key=lambda call: call.number)  # a round may overtake a ring that it has passed

    assert [call.words[2] for call in calls] == list(range(1, 1101))
    assert len({call.tid for call in calls}) > 1024
    assert (traced.lost, traced.tracer.lost, traced.tracer.threads) == (0, 0, 0)


def test_calls_that_nobody_reads_are_counted_and_the_program_goes_on(traced: Traced) -> None:
    process = traced.start("int main() { for (int i = 0; i < 20000; ++i) alloc(1); }", wait_ms=30)
    process.communicate()

    calls = traced.calls()

    assert process.returncode == 0
    assert 0 < traced.lost == 20_000 - len(calls) == traced.tracer.lost


def test_a_place_that_is_no_trace_is_said_once_and_ignored(
    preload: Preload, program: Callable[..., Path]
) -> None:
    path = program(PRELUDE + "int main() { return alloc(1); }", "-isystem", str(_cuda_include()))
    env = preload.environment(TANDEM_TRACE_CALLS="/dev/null:1")
    done = subprocess.run([path], env=env, capture_output=True, text=True, check=True)

    assert done.stderr == (
        "tandem: TANDEM_TRACE_CALLS '/dev/null:1' is not a writable trace; not tracing\n"
    )
