"""Builds and runs every C++ test program, each as one test."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "csrc"))

import ninja_build

# Those of the driver compile all of it once more, for the sanitizers; the results that they see are
# also those of the conformance tests.
NAMES = [name for name in sorted(ninja_build.test_targets()) if not name.startswith("driver-")]


@pytest.mark.slow  # to compile; `make sanitize` runs them all anyway
@pytest.mark.timeout(600)  # the first program of an area compiles all of its sources
@pytest.mark.parametrize("name", NAMES)
def test_cpp(name: str) -> None:
    program = ninja_build.build([name])[name]

    done = subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith(" passed")
