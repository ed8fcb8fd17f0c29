"""How many of the shim's instructions a launch executes, and in how many cache lines of code.

After a launch of a real driver little of the shim is still cached, so this is what a launch costs.
In a loop on a driver that does nothing everything stays cached, and half the cost hardly shows.
"""

from __future__ import annotations

import bisect
import json
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from shim_daemon import FakeDaemon
from shim_support import ROOT

import ninja_build

LINE_BYTES = 64
# These leave room for another compiler, not for another design. GCC 12: 417 in 40, and 92 in 15.
MOST_MANAGED, MOST_SWITCHED_OFF = 470, 120
MOST_LINES_MANAGED, MOST_LINES_SWITCHED_OFF = 48, 20
# Whether the helper sleeps is random here, because each launch takes as long as its single steps.
WAKING = ("wake_helper_now(", "ring_doorbell(", "futex_wake_all(", "Descriptor::number(", "_init")

STEPPER = """
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <cuda.h>
#include <link.h>
#include <ucontext.h>
static unsigned long begin, end, places[100000];
static volatile unsigned long count;
static volatile bool stepping;
static const unsigned long kTrap = 0x100;  // the processor's flag: a signal after each instruction
static void on_step(int, siginfo_t*, void* context) {
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const unsigned long at = static_cast<unsigned long>(registers[REG_RIP]);
  if (begin <= at && at < end && count < 100000) places[count++] = at - begin;
  if (!stepping) registers[REG_EFL] &= ~static_cast<long long>(kTrap);
}
static int find_shim(dl_phdr_info* info, size_t, void*) {
  if (!strstr(info->dlpi_name, "libtandem")) return 0;
  begin = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type == PT_LOAD && part.p_flags & PF_X)
      end = begin + part.p_vaddr + part.p_memsz;
  }
  return 1;
}
int main() {
  const auto once = [] {
    cuLaunchKernel((CUfunction)9, 4, 1, 1, 32, 1, 1, 0, (CUstream)5, nullptr, nullptr);
  };
  for (int i = 0; i < 40; i++) {  // its duration is known by then
    once();
    const timespec pause{0, 2000000};  // for the helper, which reads what was measured
    nanosleep(&pause, nullptr);
  }
  dl_iterate_phdr(find_shim, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = on_step;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, nullptr);
  for (int i = 0; i < 20; i++) {
    count = 0;
    stepping = true;
    asm volatile("pushfq; orq %0, (%%rsp); popfq" : : "i"(kTrap) : "memory", "cc");
    once();
    stepping = false;
    std::printf("[");
    for (unsigned long k = 0; k < count; k++) std::printf("%s%lu", k ? "," : "", places[k]);
    std::printf("]\\n");
  }
}
"""

Where = Callable[[int], str]


@pytest.fixture(scope="module")
def where(shim_library: Path) -> Where:
    """Return the function at an offset in the shim."""
    shown = subprocess.run(
        ["nm", "-C", "-n", "--defined-only", str(ROOT / shim_library)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    symbols = [line.split(" ", 2) for line in shown.splitlines()]
    code = [(int(at, 16), name) for at, kind, name in symbols if kind in "tTwW"]
    starts = [at for at, _ in code]
    return lambda at: code[bisect.bisect_right(starts, at) - 1][1]


@pytest.fixture
def stepper(preload, program) -> list[str]:
    """A program that executes launches one instruction at a time."""
    if platform.machine() != "x86_64":
        pytest.skip("steps by the trap flag of x86-64")
    include = ["-D__CUDA_API_VERSION_INTERNAL", "-isystem", str(ninja_build.cuda_include())]
    return [str(program(STEPPER, *include, str(preload.driver), name="stepper"))]


def _usual(lines: str, where: Where) -> list[int]:
    """Return the instruction offsets of the shortest launch, without those of a wake-up."""
    launches = [
        [at for at in json.loads(line) if not any(name in where(at) for name in WAKING)]
        for line in lines.splitlines()
    ]
    return min(launches, key=len)


def _lines(places: list[int]) -> int:
    return len({at // LINE_BYTES for at in places})


def test_a_managed_launch_is_short(preload, stepper, where):
    daemon = FakeDaemon(preload.folder)
    job = subprocess.Popen(
        stepper, env=preload.environment(FAKE_CONTEXT="1"), stdout=subprocess.PIPE, text=True
    )
    try:
        daemon.attach()
        out, _ = job.communicate(timeout=60)
    finally:
        job.kill()
        daemon.close()

    places = _usual(out, where)

    assert job.returncode == 0
    assert "cuLaunchKernel" in map(where, places)
    assert len(places) <= MOST_MANAGED
    assert _lines(places) <= MOST_LINES_MANAGED


def test_a_launch_with_the_shim_switched_off_is_shorter(preload, stepper, where):
    environment = preload.environment(FAKE_CONTEXT="1", TANDEM_DISABLE="1")

    done = subprocess.run(
        stepper, env=environment, stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )

    places = _usual(done.stdout, where)

    assert 0 < len(places) <= MOST_SWITCHED_OFF
    assert _lines(places) <= MOST_LINES_SWITCHED_OFF
