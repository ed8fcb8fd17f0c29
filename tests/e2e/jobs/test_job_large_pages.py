"""Jobs where the kernel has pages of 64 KiB, as on much of aarch64."""

import subprocess
import sys
from pathlib import Path

import pytest
from running_job import until

MIB = 1 << 20
SIZES = (10 * MIB, 33 * MIB)
SOURCE = Path(__file__).parent / "large_pages.cpp"
ASKS = "from cuda.bindings import driver as cu; print(cu.cuInit(0))"


@pytest.fixture(scope="session")
def large_pages(made_once):
    def compiled(path):
        command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", str(SOURCE), "-o", str(path)]
        subprocess.run([*command, "-ldl"], check=True)

    return made_once("large_pages.so", compiled)


@pytest.fixture
def place(fresh_place, large_pages):
    fresh_place.start_daemon()  # without the library, so with real pages
    fresh_place.env["LD_PRELOAD"] = str(large_pages)
    return fresh_place


def test_a_job_attaches_and_its_memory_comes_back_from_the_host(place):
    job = place.job("kept", "--swappable")
    assert job.do("os.sysconf('SC_PAGESIZE')") == 64 << 10
    job.do("exec('import swapping', globals())")
    addresses = job.do(f"swapping.keep{SIZES}")

    place.tandem("pause", "kept")
    with place.client() as client:
        until(lambda: client.job("kept").swapped_bytes >= sum(SIZES), what="it is on the host")
    place.tandem("resume", "kept")

    assert job.do(f"swapping.kept({addresses}, {SIZES})") == [True] * len(SIZES)


def test_its_calls_are_traced(place):
    words = [sys.executable, "-m", "tandem.cli", "trace", "calls", "--", sys.executable, "-c", ASKS]

    done = subprocess.run(words, env=place.env, capture_output=True, text=True, check=True)

    assert "cuInit(Flags=0) = CUDA_SUCCESS" in done.stderr
