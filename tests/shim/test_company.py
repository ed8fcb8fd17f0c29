"""Other libraries in the job's process, and tools that inspect it."""

import ctypes
import ctypes.util
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from shim_daemon import FakeDaemon, Job
from shim_support import Preload

WRITES = "cu.fake_count(b'cuStreamWriteValue64_v2')"
INTERPOSER = r"""
#include <dlfcn.h>
static int asked;
extern "C" int interposer_asked() { return asked; }
extern "C" void* dlsym(void* handle, const char* name) {
  using Look = void* (*)(void*, const char*);
  static Look next = (Look)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  ++asked;
  return next(handle, name);
}
"""
LOOKER = r"""
#include <dlfcn.h>
extern "C" const char* who_has_launch() {
  Dl_info found{};
  dladdr(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel"), &found);
  return found.dli_fname;
}
"""
ASKS_LOOKER = """(lambda looker: (
    setattr(looker.who_has_launch, "restype", ctypes.c_char_p), looker.who_has_launch()
)[1])(ctypes.CDLL("{path}", mode=os.RTLD_NOW | {flag}))"""
# Behaves like an allocator that replaces the C library's. From inside an allocation, the first of
# which are the loader's own, it asks our dlsym for the next one, and until it knows that it serves
# allocations from a small buffer.
ALLOCATOR = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <atomic>

namespace {
alignas(16) char g_first[1 << 16];
std::atomic<size_t> g_first_used{0};
std::atomic<int> g_allocations{0};
__thread bool t_looks;

void* first(size_t bytes) {
  return g_first + g_first_used.fetch_add((bytes + 15) & ~size_t{15});
}
bool is_first(void* memory) { return memory >= g_first && memory < g_first + sizeof g_first; }

template <class Function>
Function next(Function* known, const char* name) {
  if (*known || t_looks) return *known;
  t_looks = true;
  *known = (Function)dlsym(RTLD_NEXT, name);
  t_looks = false;
  return *known;
}
void* (*g_malloc)(size_t);
void* (*g_calloc)(size_t, size_t);
void* (*g_realloc)(void*, size_t);
void (*g_free)(void*);
}

extern "C" {
int allocations() { return g_allocations; }
void* malloc(size_t bytes) {
  ++g_allocations;
  auto real = next(&g_malloc, "malloc");
  return real ? real(bytes) : first(bytes);
}
void* calloc(size_t count, size_t bytes) {
  ++g_allocations;
  auto real = next(&g_calloc, "calloc");
  return real ? real(count, bytes) : first(count * bytes);
}
void* realloc(void* memory, size_t bytes) {
  if (is_first(memory)) return memcpy(malloc(bytes), memory, bytes);
  ++g_allocations;
  auto real = next(&g_realloc, "realloc");
  return real ? real(memory, bytes) : first(bytes);
}
void free(void* memory) {
  if (!memory || is_first(memory)) return;
  if (auto real = next(&g_free, "free")) real(memory);
}
}
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    listening = FakeDaemon(tmp_path)
    yield listening
    listening.close()


def is_held_and_goes(job: Job, daemon: FakeDaemon) -> bool:
    """Tell whether a launch of the job is attached, held at the gate and released."""
    job.start("launch()")
    taken = daemon.attach(hold=True)
    taken.until("waiting_threads", 1)
    taken.process.set_gate(hold=False)
    return job.result() == 0 and job.end() == ""


@pytest.mark.parametrize(("flag", "is_seen"), [("0", True), ("os.RTLD_DEEPBIND", False)])
def test_a_library_that_binds_to_its_own_first_passes_us(
    flag: str, is_seen: bool, preload: Preload, program: Callable[..., Path]
) -> None:
    path = program(LOOKER, "-shared", "-fPIC", name="liblooker.so")
    with Job(preload.environment()) as job:
        found = job.do(ASKS_LOOKER.format(path=path, flag=flag).replace("\n", ""))

    assert isinstance(found, bytes)
    assert (Path(os.fsdecode(found)).name == preload.shim.name) is is_seen


@pytest.mark.parametrize("place", ["before", "after"])
def test_another_interposer_of_dlsym_and_we_find_each_other(
    place: str, preload: Preload, program: Callable[..., Path], daemon: FakeDaemon
) -> None:
    other = str(program(INTERPOSER, "-shared", "-fPIC", name="libinterposer.so"))
    both = [other, str(preload.shim)] if place == "before" else [str(preload.shim), other]
    with Job(preload.environment(LD_PRELOAD=":".join(both))) as job:
        assert job.do("shim.interposer_asked()") != 0

        assert is_held_and_goes(job, daemon)


def library(name: str) -> str:
    """Return the path of a library; skip the test if it is not installed."""
    if name == "asan":
        found = subprocess.run(
            ["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
        # If there is none, g++ prints the bare name, without a path.
        path = os.path.realpath(found) if "/" in found else None
    else:
        path = ctypes.util.find_library(name)
    if path is None:
        pytest.skip(f"lib{name} is not installed")
    return path


@pytest.mark.parametrize("name", ["asan", "jemalloc"])
def test_another_allocator_in_the_process(name: str, preload: Preload, daemon: FakeDaemon) -> None:
    both = f"{library(name)}:{preload.shim}"
    with Job(preload.environment(LD_PRELOAD=both, ASAN_OPTIONS="detect_leaks=0")) as job:
        assert is_held_and_goes(job, daemon)


def test_an_allocator_that_looks_for_the_next_one_while_it_allocates(
    preload: Preload, program: Callable[..., Path], daemon: FakeDaemon
) -> None:
    other = program(ALLOCATOR, "-shared", "-fPIC", name="liballocator.so")
    with Job(preload.environment(LD_PRELOAD=f"{other}:{preload.shim}")) as job:
        assert job.do("shim.allocations()") > 0

        assert is_held_and_goes(job, daemon)


def test_of_two_copies_of_us_the_second_steps_aside(
    preload: Preload, tmp_path: Path, daemon: FakeDaemon
) -> None:
    """As when /etc/ld.so.preload names one and `tandem run` that of another environment."""
    (tmp_path / "other").mkdir()
    copy = shutil.copy(preload.shim, tmp_path / "other")
    with Job(preload.environment(LD_PRELOAD=f"{preload.shim}:{copy}")) as job:
        job.start("launch()")
        taken = daemon.attach(hold=True)
        taken.until("waiting_threads", 1)
        taken.process.set_gate(hold=False)

        assert job.result() == 0
        assert job.do("alloc(4096)[0]") == 0
        assert taken.until("device_bytes", 4096)
        assert not daemon.has_caller()


LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207


def ptrace(request: int, pid: int) -> None:
    nothing = ctypes.c_void_p()
    if LIBC.ptrace(ctypes.c_long(request), pid, nothing, nothing) != 0:
        pytest.skip(f"ptrace is not allowed here: {os.strerror(ctypes.get_errno())}")


@contextmanager
def debugger(pid: int) -> Iterator[None]:
    """Attach a debugger as gdb does, without stopping anything."""
    ptrace(PTRACE_SEIZE, pid)
    yield
    ptrace(PTRACE_INTERRUPT, pid)
    os.waitpid(pid, 0)
    ptrace(PTRACE_DETACH, pid)


def test_a_debugged_job_is_recorded_and_left_alone(preload: Preload, daemon: FakeDaemon) -> None:
    with Job(preload.environment()) as job, debugger(job.pid):
        job.start("launch()")
        taken = daemon.attach(hold=True)

        assert job.result() == 0
        assert job.do(WRITES) == 0
        assert taken.until("ungated", True).open_segments == 0
        taken.records()
        job.do("launch()")
        assert len(taken.records()) == 1


@pytest.mark.slow  # the shim looks for one once a second
def test_a_debugger_may_come_and_go(preload: Preload, daemon: FakeDaemon) -> None:
    with Job(preload.environment()) as job:
        job.start("launch()")
        taken = daemon.attach()
        job.result()
        taken.until("busy", False)
        job.do("cu.fake_hold(1)")
        job.do("launch(function=2)")
        with debugger(job.pid):
            taken.until("ungated", True)
            taken.process.set_gate(hold=True)
            markers = job.do(WRITES)
            assert job.do("launch(function=3)") == 0
            assert job.do(WRITES) == markers
            job.do("cu.fake_hold(0)")
            taken.until("busy", False)  # nothing of it still seems to run

        taken.until("ungated", False)
        job.start("launch()")
        taken.until("waiting_threads", 1)


def test_a_profiled_job_is_recorded_and_left_alone(preload: Preload, daemon: FakeDaemon) -> None:
    with Job(preload.environment(CUDA_INJECTION64_PATH="/opt/profiler.so")) as job:
        job.start("launch()")
        daemon.attach(hold=True)

        assert job.result() == 0
        assert job.do(WRITES) == 0
