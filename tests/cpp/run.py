"""Builds the C++ tests in one variant and runs every program."""

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "csrc"))

import ninja_build

# A sanitizer's finding must fail the program, and must say where it was.
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


def run(program: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program)],
        env={**os.environ, **OPTIONS},
        timeout=300,
        capture_output=True,
        text=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", choices=["release", "asan", "tsan"], required=True)
    variant = parser.parse_args().variant
    names = list(ninja_build.test_targets())
    programs = ninja_build.build(names, variant)
    failed = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        ends = pool.map(run, programs.values())
    for name, done in zip(programs, ends, strict=True):
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        print(f"{variant} {name}: {last if done.returncode == 0 else 'FAILED'}")
        if done.returncode != 0:
            failed.append(name)
            print(done.stdout[-4000:] + done.stderr[-8000:])
    print(f"{variant}: {len(programs) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed or not programs else 0


if __name__ == "__main__":
    sys.exit(main())
