"""What the compiled parts of the normal build need of a machine, and which names they export."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "packaging"), str(ROOT / "csrc")]

import native_needs
import ninja_build

BUILT = ROOT / "build/native/release"
OUTPUTS = {name: BUILT / target.output for name, target in ninja_build.targets().items()}
WHEELS_GLIBC = (2, 28)  # packaging/wheel.py
# g++ headers and newer glibc headers use these in place of what older ones have.
OF_THE_HEADERS = {"__libc_single_threaded", "fstat", "pthread_cond_clockwait"}

pytestmark = pytest.mark.skipif(shutil.which("readelf") is None, reason="no binutils here")


@pytest.mark.parametrize("name", OUTPUTS)
def test_nobody_sees_names_that_are_not_ours(name):
    """Such as names of the C++ library inside, which other code would take for its own."""
    assert native_needs.strangers(OUTPUTS[name]) == set()


@pytest.mark.parametrize("name", sorted(OUTPUTS.keys() - {"native"}))
def test_what_runs_in_jobs_needs_nothing_but_glibc(name):
    """In a normal build only the Python module may use the machine's C++ library."""
    assert native_needs.libraries(OUTPUTS[name]) <= native_needs.GLIBC


def test_the_sources_use_nothing_that_glibc_has_only_since_2_28():
    """So a wheel can be made of them. The machine's glibc tells which version has which symbol."""
    since = {}
    for library in ("libc.so.6", "libm.so.6"):
        rows = told("readelf", "-W", "--dyn-syms", _glibcs(library))
        for name, version in re.findall(r" (\w+)@@?GLIBC_([\d.]+)", rows):
            since[name] = min(since.get(name, (9,)), native_needs.version(version))

    newer = {name for name in _asked_for() if since.get(name, (0,)) > WHEELS_GLIBC}

    assert since["gettid"] == (2, 30)
    assert {name for name in newer if not name.startswith("__isoc23_")} <= OF_THE_HEADERS


def test_a_file_that_asks_for_more_is_complained_of(tmp_path):
    source = tmp_path / "late.cpp"
    source.write_text(
        "#include <unistd.h>\n#include <string>\nint late() { return gettid(); }\n"
        "std::string words(int n) { return std::string(n, '.'); }\n"
    )
    late = tmp_path / "late.so"
    subprocess.run(["g++", "-shared", "-fPIC", source, "-o", late], check=True)

    found = native_needs.complaints(late, WHEELS_GLIBC)

    assert len(found) == 3
    assert "libstdc++" in found[0]
    assert re.match(r"needs glibc 2\.3\d, and 2\.28 was to do", found[1])
    assert "shows" in found[2]
    assert "_Z4latev" in native_needs.strangers(late)
    assert native_needs.find(tmp_path) == [late]


def _asked_for():
    """Return the foreign symbols that the compiled objects ask for."""
    names = set()
    lines = (BUILT / "build.ninja").read_text().splitlines()
    for output in OUTPUTS.values():
        (line,) = [one for one in lines if one.startswith(f"build {output.relative_to(ROOT)}:")]
        objects = [str(ROOT / word) for word in line.split() if word.endswith(".o")]
        names |= set(re.findall(r"^ +[Uw] (\w+)$", told("nm", "-u", *objects), re.M))
    return names


def _glibcs(library):
    """Return where the loader finds the library."""
    return re.search(rf"{re.escape(library)} => (\S+)", told("ldd", sys.executable))[1]


def told(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout
