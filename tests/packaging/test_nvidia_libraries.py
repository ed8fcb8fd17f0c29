"""NVIDIA's libraries come from packages into a folder of their version, or the reason is given."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "packaging" / "nvidia_libraries.py"
APT = """#!/bin/sh
case "$*" in
  *indextargets*) echo "Debian-Security x y"; echo "{source} somewhere/debian" ;;
  *download*) touch cuda.deb ml.deb; grep -q "somewhere/debian $SUITE non-free" sources.list ;;
esac
"""
# Creates what both packages contain; the argument after -x is the package.
DPKG = """#!/bin/sh
mkdir -p "$3/lib" && cd "$3/lib"
case "$2" in
  *cuda.deb) touch libcuda.so.9.8.7 && ln -sf libcuda.so.9.8.7 libcuda.so.1 ;;
  *) touch libnvidia-ml.so.{version} libother.so.1 ;;
esac
"""


@pytest.fixture
def fetch(tmp_path, monkeypatch):
    def run(suite="stable", source="Debian Debian", version="9.8.7"):
        programs = tmp_path / "bin"
        programs.mkdir()
        for name, text in {"apt-get": APT, "dpkg": DPKG}.items():
            program = programs / name
            program.write_text(text.replace("{source}", source).replace("{version}", version))
            program.chmod(0o755)
        keyring = tmp_path / "keyring.gpg"
        keyring.touch()
        text = SCRIPT.read_text().replace(
            '"/usr/share/keyrings/debian-archive-keyring.gpg"', repr(str(keyring))
        )
        script = tmp_path / "packaging" / SCRIPT.name
        script.parent.mkdir()
        script.write_text(text)
        return subprocess.run(
            [sys.executable, script, "--suite", suite],
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "SUITE": suite},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_they_are_in_a_folder_of_their_version(fetch, tmp_path):
    done = fetch()

    folder = tmp_path / "build" / "nvidia" / "9.8.7"
    assert (done.returncode, done.stdout) == (0, f"{folder}\n"), done.stderr
    found = sorted(path.name for path in folder.iterdir())
    assert found == ["libcuda.so.1", "libcuda.so.9.8.7", "libnvidia-ml.so.9.8.7"]
    assert (folder / "libcuda.so.1").readlink() == Path("libcuda.so.9.8.7")


def test_two_versions_are_refused(fetch):
    done = fetch(version="9.8.6")

    assert done.returncode == 1
    assert "['9.8.6', '9.8.7'], not one" in done.stderr


def test_a_machine_without_a_mirror_is_told_what_else_to_do(fetch):
    done = fetch(source="Other Other")

    assert done.returncode == 1
    assert "no mirror of Debian" in done.stderr
    assert "TANDEM_NVIDIA_LIBRARIES" in done.stderr
