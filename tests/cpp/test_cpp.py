"""Builds and runs every C++ test program, each as one test: as ASan and UBSan see it.

That is the build of `make sanitize` too, which after the tests has it already. What the optimiser
makes of the same sources, all tests of the built package see.
"""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "csrc"))

import run

import ninja_build

# Those of the driver compile all of it once more; the results that they see are also those of the
# conformance tests.
NAMES = [name for name in sorted(ninja_build.test_targets()) if not name.startswith("driver-")]


@pytest.mark.slow  # to compile
@pytest.mark.timeout(1500)  # the first program of an area compiles all of its sources
@pytest.mark.parametrize("name", NAMES)
def test_cpp(name: str) -> None:
    done = run.run(ninja_build.build([name], "asan")[name])

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith(" passed")


def test_tsan_sees_every_program_that_starts_a_thread() -> None:
    texts = {
        name: (ROOT / target.sources[0]).read_text()
        for name, target in ninja_build.test_targets().items()
    }
    starters = [
        n for n, t in texts.items() if re.search(r"std::(thread|async)\b|pthread_create", t)
    ]

    assert run.names_for("tsan") == starters
