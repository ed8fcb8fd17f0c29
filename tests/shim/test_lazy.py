"""A process that never uses CUDA pays only for the loader."""

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from shim_support import Preload

COMMANDS = {
    "true": ["/bin/true"],
    "pipe": ["bash", "-c", "ls | wc"],
    "python": ["python3", "-S", "-c", "pass"],
}
OLDEST_GLIBC = (2, 17)  # docs/operations.md; the first for aarch64
# The system calls that loading one more library takes.
LOADING = {"openat", "read", "newfstatat", "fstat", "mmap", "mprotect", "close", "pread64"}


def calls_of(command: list[str], environment: dict[str, str], log: Path) -> Counter[str]:
    preload = environment.pop("LD_PRELOAD", None)
    passed = ["-E", f"LD_PRELOAD={preload}"] if preload else []
    subprocess.run(
        ["strace", "-f", "-o", str(log), *passed, *command],
        env=environment,
        check=True,
        capture_output=True,
    )
    found = Counter(re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.M))  # short pids are padded
    assert found["execve"], "nothing was traced"
    return found


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("name", COMMANDS)
def test_no_system_call_beyond_the_loaders(name: str, preload: Preload, tmp_path: Path) -> None:
    bare = preload.environment()
    del bare["LD_PRELOAD"]

    without = calls_of(COMMANDS[name], bare, tmp_path / "bare")
    loaded = calls_of(COMMANDS[name], preload.environment(), tmp_path / "loaded")

    added = {call for call in loaded if loaded[call] > without[call]}
    assert added <= LOADING
    assert {"connect", "socket"}.isdisjoint(set(loaded) - set(without))
    assert loaded["clone"] + loaded["clone3"] == without["clone"] + without["clone3"]


def test_output_and_exit_code_are_the_programs(preload: Preload) -> None:
    done = subprocess.run(
        ["bash", "-c", "echo out; echo err >&2; exit 7"],
        env=preload.environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")


def test_the_library_needs_only_libc(preload: Preload) -> None:
    listing = read(preload, "-d")

    needed = re.findall(r"NEEDED.*\[(.*)\]", listing)
    assert needed == ["libc.so.6"]


def test_every_glibc_since_2_17_can_load_it(preload: Preload) -> None:
    """If glibc lacks a version that the library asks for, the process ends before it begins."""
    listing = read(preload, "-V").partition(".gnu.version_r")[2]

    asked_for = re.findall(r"Name: (\w+?)_([\d.]+)", listing)
    assert {name for name, _ in asked_for} == {"GLIBC"}  # nothing from the C++ runtime
    newest = max(tuple(map(int, version.split("."))) for _, version in asked_for)
    assert newest <= OLDEST_GLIBC


def test_the_environment_of_setuid_programs_is_not_read(preload: Preload) -> None:
    """Their caller controls it, and ld.so.preload loads the library there too: secure_getenv(3)."""
    asked_for = re.findall(r"UND (\w*getenv)@", read(preload, "--dyn-syms"))

    assert asked_for == ["secure_getenv"]


def read(preload: Preload, what: str) -> str:
    command = ["readelf", "-W", what, str(preload.shim)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
