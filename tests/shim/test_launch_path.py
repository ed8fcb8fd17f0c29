"""The cost of a launch by construction: no locked instruction, no call out of the shim, no heap."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess

import pytest
from shim_daemon import FakeDaemon
from shim_support import ROOT

ROOTS = ("cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz")

# Where and when a launch leaves the usual path. Locked instructions and system calls are allowed
# there.
ASIDE = {
    ".cold": "before the driver is known, or while calls are traced",
    "Gate::wait(": "something stands against it",
    "begin_timing(": "a sample of a function's duration",
    "ask_thread_id(": "a thread's first record",
    "claim_ring(": "a thread's first record",
    "close_segment(": "about every 100 us of GPU time",
    "DurationTable::probe(": "a function not seen yet",
    "end_timing(": "a sample of a function's duration",
    "has_capture_of_this_thread(": "while something captures",
    "is_capturing(": "while something captures",
    "look_up_slot(": "another stream than the thread's last",
    "monotonic_ns(": "a machine whose counter cannot serve as a clock",
    "move_busy_ahead(": "a latency job's first work after it was idle",
    "partition::Stream::enter_slowly(": "in a set: a stream that is to go, or is not one thread's",
    "partition::Stream::look_away(": "never: what waits or asks, which a launch does not",
    "partition::StreamLock::consider_bias(": "in a set: a stream that is not one thread's so far",
    "put_shared(": "threads beyond the sixteenth",
    "register_pages(": "the first submission to a daemon",
    "sample_launch(": "while the daemon samples",
    "slot_beside(": "a launch that records an event itself, too",
    "swap::enter(": "a job whose memory may be moved to the host",
    "swap::leave(": "a job whose memory may be moved to the host",
    "swap::wait_at_door(": "a job whose memory may be moved to the host",
    "start_session(": "the process's first submission",
    "wake_helper_now(": "the helper sleeps: first work after the process was idle",
}

COUNTER = """
#include <cstddef>
#include <cstdlib>
extern "C" {
void* __libc_malloc(size_t); void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t); void* __libc_memalign(size_t, size_t);
volatile unsigned long heap_calls = 0;
static void count() { heap_calls = heap_calls + 1; }
void* malloc(size_t n) { return count(), __libc_malloc(n); }
void* calloc(size_t a, size_t b) { return count(), __libc_calloc(a, b); }
void* realloc(void* p, size_t n) { return count(), __libc_realloc(p, n); }
void* memalign(size_t a, size_t n) { return count(), __libc_memalign(a, n); }
void* aligned_alloc(size_t a, size_t n) { return count(), __libc_memalign(a, n); }
}
"""

LAUNCHER = """
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
extern "C" volatile unsigned long heap_calls;  // compilers know that malloc touches no globals
static void launch(int times, long stream) {
  for (int i = 0; i < times; ++i)
    cuLaunchKernel((CUfunction)9, 4, 1, 1, 32, 1, 1, 0, (CUstream)stream, nullptr, nullptr);
}
int main() {
  launch(1, 5);  // attaches
  const unsigned long before = heap_calls;
  for (long stream = 5; stream < 15; ++stream) launch(1000, stream);
  const unsigned long after = heap_calls;
  void* volatile one = malloc(1);
  free(one);
  std::printf("%lu %lu\\n", after - before, heap_calls - after);
  return 0;
}
"""


def _instructions(library: str) -> dict[str, list[str]]:
    """Disassemble the library, by function."""
    shown = subprocess.run(
        ["objdump", "-d", "-C", "--no-show-raw-insn", library],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    functions: dict[str, list[str]] = {}
    for line in shown.splitlines():
        if match := re.match(r"^[0-9a-f]+ <(.*)>:$", line):
            current = functions.setdefault(match[1], [])
        elif match := re.match(r"^\s+[0-9a-f]+:\t(.*)$", line):
            current.append(match[1])
    return functions


def _target(instruction: str) -> str | None:
    match = re.match(r"(?:call|j\w+)\s+[0-9a-f]+ <(.*?)(?:\+0x[0-9a-f]+)?>$", instruction)
    return match[1] if match else None


def _aside(name: str) -> str | None:
    return next((part for part in ASIDE if part in name), None)


def _is_locked(instruction: str) -> bool:
    # xchg with a memory operand locks without the prefix.
    return instruction.startswith("lock ") or (
        instruction.startswith("xchg") and "(" in instruction
    )


class Path:
    """All functions that a launch may pass through on the usual path."""

    def __init__(self, functions: dict[str, list[str]]) -> None:
        self.functions = functions
        self.inside: set[str] = set()
        self.asides: set[str] = set()
        todo = list(ROOTS)
        while todo:
            name = todo.pop()
            if name in self.inside:
                continue
            self.inside.add(name)
            for target in filter(None, map(_target, functions.get(name, []))):
                if aside := _aside(target):
                    self.asides.add(aside)
                else:
                    todo.append(target)


@pytest.fixture(scope="module")
def path(shim_library) -> Path:
    if platform.machine() != "x86_64":
        pytest.skip("knows the locked instructions of x86-64 only")
    if shutil.which("objdump") is None:
        pytest.skip("objdump is missing (Debian: binutils)")
    return Path(_instructions(str(ROOT / shim_library)))


def test_the_path_is_the_one_that_gates_and_records(path):
    names = " ".join(path.inside)

    assert set(ROOTS) <= path.inside
    assert "tandem::Gate::window_is_full(" in names
    assert "tandem::shim::path::measure(" in names
    assert "tandem::shim::partition::Stream::enter(" in names  # for a job in a set of SMs
    assert "tandem::shim::partition::Stream::leave(" in names


def test_no_locked_instruction_is_on_it(path):
    locked = {
        name: [i for i in path.functions.get(name, []) if _is_locked(i)] for name in path.inside
    }

    assert {name: found for name, found in locked.items() if found} == {}


def test_it_calls_nothing_outside_the_shim_but_the_driver(path):
    assert [name for name in path.inside if name.endswith("@plt")] == []


def test_every_way_aside_is_one_that_exists(path):
    assert path.asides == set(ASIDE)


def test_the_check_sees_locked_instructions_where_they_are(path):
    """Segments are closed under a try-lock; a check that missed it would miss every lock."""
    (name,) = [n for n in path.functions if n.startswith("tandem::shim::try_own(")]

    assert any(map(_is_locked, path.functions[name]))


def test_launches_allocate_nothing(preload, program, tmp_path):
    import ninja_build  # found through shim_support

    include = ["-D__CUDA_API_VERSION_INTERNAL", "-isystem", str(ninja_build.cuda_include())]
    counter = program(COUNTER, "-shared", "-fPIC", name="libcounter.so")
    launcher = program(
        LAUNCHER,
        *include,
        str(preload.driver),
        str(counter),
        "-Wl,--allow-shlib-undefined",
        name="launcher",
    )
    environment = preload.environment(LD_PRELOAD=f"{preload.shim} {counter}", FAKE_CONTEXT="1")
    daemon = FakeDaemon(preload.folder)
    job = subprocess.Popen(
        [str(launcher)], env=environment, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        attached = daemon.attach()
        out, _ = job.communicate(timeout=60)
        launches = attached.snapshot().launches
    finally:
        job.kill()
        daemon.close()

    assert job.returncode == 0
    assert launches > 9_900  # of 10,000: those of the last open segment are never reported
    assert out.split() == ["0", "1"]  # and the counter does count
