"""Builds the C++ tests in each variant and runs every program."""

import argparse
import os
import subprocess
import sys
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "csrc"))

import ninja_build

# A sanitizer's finding must fail the program and say where it was.
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    # By default TSan waits a second at each exit, for threads that race with it.
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1:atexit_sleep_ms=50",
}
Ended = subprocess.CompletedProcess[str]


LONGEST_S = 900  # 40 s of CPU time may take minutes on a busy machine


def names_for(variant: str) -> list[str]:
    """Return the programs in which a variant can find anything: for TSan those with threads."""
    found = ninja_build.test_targets()
    if variant != "tsan":
        return list(found)
    return [name for name, target in found.items() if _has_threads(ROOT / target.sources[0])]


def _has_threads(source: Path) -> bool:
    return "#include <thread>" in source.read_text()


def run(program: Path) -> Ended:
    return subprocess.run(
        ["timeout", str(LONGEST_S), program],  # which then returns 124
        env={**os.environ, **OPTIONS},
        capture_output=True,
        text=True,
    )


def report(variant: str, names: Collection[str], ends: Iterable[Ended]) -> list[str]:
    """Print how each program ended; return the output of those that failed."""
    failures = []
    for name, done in zip(names, ends, strict=True):
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        print(f"{variant} {name}: {last if done.returncode == 0 else 'FAILED'}")
        if done.returncode != 0:
            failures.append(f"{variant} {name} failed ({done.returncode}):\n{said(done)}")
    passed = len(names) - len(failures)
    print(f"{variant}: {passed} passed, {len(failures)} failed", flush=True)
    return failures


def said(done: Ended) -> str:
    late = f"did not end within {LONGEST_S} s\n" if done.returncode == 124 else ""
    return late + done.stdout[-4000:] + done.stderr[-8000:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", choices=["release", "asan", "tsan"], nargs="+", required=True)
    parser.add_argument("--only-build", action="store_true", help="run none of them")
    arguments = parser.parse_args()
    if arguments.only_build:
        for variant in arguments.variant:
            ninja_build.build(names_for(variant), variant)
        return 0
    under_way = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for variant in arguments.variant:  # the next variant compiles while these run
            programs = ninja_build.build(names_for(variant), variant)
            under_way.append((variant, programs, pool.map(run, programs.values())))
        failures = [text for each in under_way for text in report(*each)]
    print(*failures, sep="\n")  # last, for readers who see only the end of a log
    return 1 if failures or not all(programs for _, programs, _ in under_way) else 0


if __name__ == "__main__":
    sys.exit(main())
