"""Builds and runs every C++ test program as one test each, under ASan and UBSan.

`make sanitize` uses the same build, so after the tests it need not compile. All tests of the built
package exercise the optimised build of the same sources.
"""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "csrc"))

import run

import ninja_build

# The driver's programs would compile the whole driver once more, and the conformance tests check
# the same results.
NAMES = [name for name in sorted(ninja_build.test_targets()) if not name.startswith("driver-")]


@pytest.mark.slow  # because it compiles
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
